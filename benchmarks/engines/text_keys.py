"""The keys of a text as plain Python, for engines that call a function for every tuple; and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.workloads import Workload


def keys_of(workload: Workload) -> Callable[[str], set[str]]:
    """The set of words of a text, or of its pairs as "left right".

    >>> from benchmarks.workloads import PAIRCOUNT_L
    >>> sorted(keys_of(PAIRCOUNT_L)("a b c"))
    ['a b', 'a c', 'b c']
    """
    distance = workload.pair_distance
    if not distance:
        return lambda text: set(text.split(" "))

    def pairs(text: str) -> set[str]:
        words = text.split(" ")
        return {f"{left} {right}" for at, left in enumerate(words) for right in words[at + 1 : at + 1 + distance]}

    return pairs


def key_columns(workload: Workload, keys: pa.Array | pa.ChunkedArray | Sequence[str]) -> dict[str, pa.Array]:
    """The columns that a workload's keys have in its results, from keys as strings."""
    strings = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys, pa.string())
    if isinstance(strings, pa.ChunkedArray):
        strings = strings.combine_chunks()
    if workload.pair_distance:
        halves = pc.split_pattern(strings, " ")
        return {name: pc.list_element(halves, place) for place, name in enumerate(workload.keys)}
    (name,) = workload.keys
    return {name: strings.cast(pa.int64()) if workload.input_kind == "keyed" else strings}
