"""A class as an operator against the same class run plainly: one object, one tuple after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import TIME
from tests.kit.effort import examples
from tests.kit.spark_driver import Batch, Driver
from tidegate.testing import answer, difference

SCHEMA = pa.schema([("ts", TIME), ("a", pa.string()), ("b", pa.int64()), ("does", pa.int64()), ("n", pa.int64())])
RETURNS = {"told": pa.string()}


class Everything:
    """Dicts of values, lists, sets and dicts, used in every way that is allowed; what is inside is told in order."""

    BASE = 100

    def __init__(self) -> None:
        self.less = -1
        self.plain: dict[tuple[str, int], int] = {}
        self.count: defaultdict[tuple[str, int], float] = defaultdict(float)
        self.listed: dict[tuple[str, int], list[int]] = {}
        self.bag: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        self.inner: dict[tuple[str, int], dict[int, str]] = {}

    def process(self, t: Any) -> Iterator[dict[str, str]]:
        key, n = (t["a"], t["b"]), t["n"]
        match t["does"]:
            case 0:
                self.plain[key] = self.plain.get(key, self.BASE) + n
            case 1:
                self.count[key] += n / 2
            case 2:
                self.listed.setdefault(key, []).append(n)
            case 3:
                self.bag[key].add(n)
            case 4:
                self.bag[key].discard(n)
            case 5:
                self.inner.setdefault(key, {})[n] = t["a"]
            case 6 if key in self.inner:
                self.inner[key].pop(n, None)
            case 7:
                yield self.row("popped", self.plain.pop(key, self.less), sorted(self.inner.pop(key, {}).items()))
            case 8 if key in self.count and key in self.listed:
                del self.count[key], self.listed[key]
            case 9:
                before = self.inner.get(key)
                self.inner[key] = {n: "new"}
                yield self.row("replaced", before is None, sorted((before or {}).items()))
            case 10:
                self.bag[key] |= {n, n + 1}
            case 11:
                self.plain.pop(key, None), self.count.pop(key, None), self.listed.pop(key, None)
                self.bag.pop(key, None), self.inner.pop(key, None)
        held = key in self.bag, key in self.inner, key not in self.plain
        inside = sorted(self.bag[key]) if held[0] else [], sorted(self.inner.get(key, {}).items())
        yield self.row(*held, self.plain.get(key), self.count.get(key), list(self.listed.get(key, [])), *inside)

    @staticmethod
    def row(*told: Any) -> dict[str, str]:
        return {"told": repr(told)}


def drawn(random: Random) -> list[pa.Table]:
    """Batches of tuples in order, no two of one time."""
    now, batches = 1_700_000_000_000_000, []
    for _ in range(random.randint(1, 5)):
        rows = []
        for _ in range(random.choice([1, 5, 15])):
            now += random.choice([1, 1_000])
            rows.append((now, random.choice("ab"), random.choice([1, 2]), random.randint(0, 11), random.randint(0, 2)))
        columns = list(zip(*rows, strict=True))
        kinds = [pa.int64(), *SCHEMA.types[1:]]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        batches.append(pa.table([arrays[0].cast(TIME), *arrays[1:]], schema=SCHEMA))
    return batches


@settings(max_examples=examples(10), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), cells=st.integers(1, 3), cold=st.booleans())
def test_a_class_gives_what_it_gives_plainly(seed: int, cells: int, cold: bool, tmp_path: Path) -> None:
    batches = drawn(Random(seed))
    plain, expected = Everything(), []
    for row in pa.concat_tables(batches).to_pylist():
        expected += [{"ts": row["ts"], **told} for told in list(plain.process(row))]
    query = tg.stream(SCHEMA, time="ts", name="s").apply(tg.operator(Everything, returns=RETURNS))
    wanted = pa.Table.from_pylist(expected, query.schema)
    law = answer(query, {"s": pa.concat_tables(batches)}).rows
    assert difference(law, wanted) is None
    outcome = Driver(query.node, cells).run([Batch({"s": [batch]}, cold=cold, restart=cold) for batch in batches])
    assert difference(pa.concat_tables([query.schema.empty_table(), *outcome.tables]), wanted) is None
