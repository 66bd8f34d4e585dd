"""Random texts by the column: substrings of one long text of letters, so that a column costs one gather of bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

POOL_BYTES = 1 << 20
FEWEST = 3
"""Length of the shortest name, word or description."""
GAP_ODDS = 13
"""One letter in so many is a gap between two words."""

Random = np.random.Generator
Numbers = npt.NDArray[np.int64]


def letters(random: Random, gap: str = "") -> npt.NDArray[np.uint8]:
    """A long text of the letters a to z, with ``gap`` in between if there is one."""
    drawn = random.integers(ord("a"), ord("z"), POOL_BYTES, np.uint8, endpoint=True)
    if gap:
        drawn[random.integers(0, GAP_ODDS, POOL_BYTES) == 0] = ord(gap)
    return drawn


def substrings(random: Random, pool: npt.NDArray[np.uint8], lengths: Numbers) -> pa.Array:
    """A text of each length, from anywhere in the pool."""
    ends = np.cumsum(lengths)
    starts = random.integers(0, len(pool) - int(lengths.max(initial=0)), len(lengths))
    places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(pool[places]))


def words(random: Random, pool: npt.NDArray[np.uint8], rows: int, limit: int) -> pa.Array:
    """Texts of 3 to ``limit`` − 1 letters, without the blanks at their ends."""
    return pc.utf8_trim_whitespace(substrings(random, pool, random.integers(FEWEST, limit, rows)))


def padding(random: Random, pool: npt.NDArray[np.uint8], used: Numbers, average: int) -> pa.Array:
    """What an event carries beside its columns: with their ``used`` bytes it has ``average`` ± 20 % of the rest."""
    rest = np.maximum(average - used, 0)
    spread = np.rint(rest * 0.2).astype(np.int64)
    extra = (random.random(len(rest)) * 2 * spread).astype(np.int64)
    return substrings(random, pool, rest - spread + extra)
