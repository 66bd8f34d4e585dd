"""Random lives of a query on Spark, without Spark: mappings, cells, restarts, ends at any file operation, zombies.

A life is told by a seed. Queries are few and fixed, so that what is compiled for them is compiled once; data, batches and
all that happens are drawn anew for each life.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.lowering import lowered
from tests.kit.memory_storage import MemoryStorage
from tests.kit.spark_driver import MOST_CELLS, Batch, Driver, forget
from tidegate.query.nodes import sources
from tidegate.reference import interpret
from tidegate.runtime.spark import cell_batch
from tidegate.runtime.spark.control import SetMapping
from tidegate.state.chunks import Data
from tidegate.state.epochs import ADOPT, RECREATE, SHARDS_OF_A_STEP, SIDE
from tidegate.testing import difference, last_revisions

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema({"ts": TIME, "k": pa.int64(), "n": pa.int64(), "tags": pa.list_(pa.int64())})
KEYS = 12


class ProcessEnds(BaseException):
    """Nothing of ours handles it."""


@dataclass(slots=True)
class MortalStorage(MemoryStorage):
    """A storage in memory whose process ends after ``left`` operations, before the last of them is done or behind it."""

    left: int | None = None
    behind: bool = False
    removed: list[str] = field(default_factory=list)

    def put(self, name: str, data: Data) -> None:
        self._do(lambda: MemoryStorage.put(self, name, data))

    def get(self, name: str) -> bytes | None:
        return self._do(lambda: MemoryStorage.get(self, name))

    def names(self, folder: str) -> list[str]:
        return self._do(lambda: MemoryStorage.names(self, folder))

    def remove(self, names: Iterable[str]) -> None:
        gone = list(names)
        self.removed += gone
        self._do(lambda: MemoryStorage.remove(self, gone))

    def _do(self, work: Callable[[], Any]) -> Any:
        if self.left is None:
            return work()
        self.left -= 1
        if self.left == 0 and not self.behind:
            raise ProcessEnds
        found = work()
        if self.left == 0:
            raise ProcessEnds
        return found


def stream(name: str = "one") -> tg.Stream:
    return tg.stream(SCHEMA, time="ts", disorder="2ms", name=name)


def applied() -> tg.Stream:
    return (
        stream()
        .key_by(tg.each("tags", name="tag", distinct=False))
        .window("6ms", every="3ms")
        .apply(
            update=lambda window, arriving: tg.updated(
                {"seen": window.state["seen"] + 1, "last": arriving["n"]},
                rows=[{"tag": window.key, "seen": window.state["seen"], "n": arriving["n"]}],
            ),
            output=lambda window: {"tag": window.key, "seen": -window.state["seen"], "n": window.state["last"]},
            state={"seen": pa.int64(), "last": pa.int64()},
            initial={"seen": 0, "last": None},
            returns={"tag": pa.int64(), "seen": pa.int64(), "n": pa.int64()},
        )
    )


def sliding(two: bool = False) -> tg.Stream:
    counts = stream().key_by("k").window("6ms", every="2ms").aggregate(n=tg.sum("n"), some=tg.collect("n"))
    if not two:
        return counts
    return counts.key_by("n").window("9ms").aggregate(keys=tg.count())


def running() -> tg.Stream:
    """A total per key, which is forgotten when it can be divided by three."""
    return (
        stream()
        .key_by("k")
        .running(
            create=lambda arriving: {"n": arriving["n"]},
            add=lambda state, arriving: {"n": state["n"] + arriving["n"]},
            merge=lambda carried, period: {"n": carried["n"] + period["n"]},
            output=lambda state: tg.updated(rows={"n": state["n"]}, retire=state["n"] % 3 == 0),
            every="3ms",
            state={"n": pa.int64()},
            returns={"n": pa.int64()},
        )
    )


def odd(l: Any, r: Any) -> Any:
    return (l.n + r.n) % 2 == 1


QUERIES: dict[str, Callable[[], tg.Stream]] = {
    "windows": sliding,
    "two steps": lambda: sliding(two=True),
    "many keys": lambda: stream().key_by(tg.each("tags", name="k")).window("5ms").aggregate(n=tg.sum("n")),
    "revisions": lambda: stream().key_by("k").window("4ms", lateness="7ms").aggregate(n=tg.sum("n")),
    "apply": applied,
    "join by key": lambda: stream().join(stream("two"), on="k", within="4ms"),
    "join by key in windows": lambda: stream().join(stream("two"), on="k", window="5ms", every="3ms"),
    "full join": lambda: stream().join(stream("two"), on="k", within="3ms", where=odd, how="full"),
    "semi join": lambda: stream().join(stream("two"), on="k", within="4ms", where=odd, how="semi"),
    "left join in windows": lambda: stream().join(stream("two"), on="k", window="5ms", every="3ms", how="left"),
    "left join, any pair": lambda: stream().join(stream("two"), within="3ms", where=odd, how="left"),
    "right join, any pair": lambda: stream().join(stream("two"), window="5ms", every="3ms", where=odd, how="right"),
    "full join, any pair": lambda: stream().join(stream("two"), within="3ms", where=odd, how="full"),
    "full join, any pair in windows": lambda: stream().join(stream("two"), window="4ms", where=odd, how="full"),
    "semi join, any pair": lambda: stream().join(stream("two"), within="4ms", where=odd, how="semi"),
    "anti join, any pair": lambda: stream().join(stream("two"), within="2ms", where=odd, how="anti"),
    "any pair": lambda: stream().join(stream("two"), within="3ms", where=odd),
    "running": running,
    "bags": lambda: lowered(stream().join(stream("two"), on="k", window="5ms", every="3ms"), "multi"),
    "sessions": lambda: stream().key_by("k").session("1ms").aggregate(n=tg.sum("n"), all=tg.collect("n")),
    "short sessions": lambda: (
        stream().key_by(tg.each("tags", name="k")).session("2ms", most="3ms").aggregate(n=tg.sum("n"))
    ),
    "count windows": lambda: (
        stream().key_by("k").count_window(4, every=2).aggregate(n=tg.sum("n"), all=tg.collect("n"))
    ),
    "as of": lambda: stream().join_asof(stream("two"), on="k", tolerance="4ms", how="left"),
    "as of any": lambda: stream().join_asof(stream("two"), on="k").select("ts", "k", "n", "n_right"),
    "lookup": lambda: stream().lookup(stream("two"), on="k", how="left", deleted=nw.col("n") % 3 == 0),
    "any pair in windows": lambda: stream().join(stream("two"), window="4ms", where=odd),
}


RECREATING = ("windows", "two steps", "many keys", "revisions", "join by key", "join by key in windows")
"""Those whose windows, or pairs, can be recreated in another cell."""


@dataclass(slots=True)
class Life:
    """One random life of a query."""

    kind: str
    seed: int
    chance: random.Random = field(init=False)
    base: int = 0
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.kind} {self.seed}")

    def check(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """Lives it, and compares with the law; how many epochs there were beyond the first of each step."""
        chance, query = self.chance, QUERIES[self.kind]()
        storage = MortalStorage()
        monkeypatch.setattr(cell_batch, "open_storage", lambda uri, options: storage)
        forget()
        driver = Driver(query.node, self._cells(), "memory", instances=chance.choice([1, 1, 3]), retain=2)
        read = [source.name for source in sources(query.node)]
        for number in range(chance.randint(2, 4)):
            self._live(driver, storage, self._batch(number, read))
        self._live(driver, storage, Batch({}, ends=True))
        law = interpret(query.node, driver.outcome.events)
        made = pa.concat_tables([query.schema.empty_table(), *driver.outcome.tables])
        rows = law.rows
        if "revision" in query.schema.names:
            made, rows = last_revisions(made, ["k"]), last_revisions(rows, ["k"])
        where = f"{self.kind}, seed {self.seed}: " + "; ".join(self.told)
        different = difference(made, rows)
        assert different is None, f"{where}\n{different}"
        assert (driver.outcome.late, driver.outcome.unfilled) == (law.late, law.unfilled), where
        assert not driver.held(), f"{where}: state is left"
        epochs = {(one["step"], one["epoch"]) for batch in driver.outcome.reports for one in batch if "step" in one}
        return sum(epoch > 0 for _, epoch in epochs)

    def _live(self, driver: Driver, storage: MortalStorage, batch: Batch) -> None:
        """One batch, in which the process may end, once or more often; then the query is started again."""
        storage.left = None
        for _ in range(3):
            if self.chance.random() < 0.2:
                storage.left, storage.behind = self.chance.randint(1, 25), self.chance.random() < 0.5
            try:
                driver.batch(batch)
            except ProcessEnds:
                self.told.append(f"ended in batch {driver.number}")
                storage.left = None
                forget()
                driver.run_number += 1
                if self.chance.random() < 0.3:
                    driver.start(self._cells())
            else:
                storage.left = None
                return
        driver.batch(batch)

    def _cells(self) -> Any:
        cells = self.chance.choice([2, 3, (1, MOST_CELLS), (1, MOST_CELLS), (2, MOST_CELLS), 1])
        self.told.append(f"cells {cells}")
        return cells

    def _batch(self, number: int, read: list[str]) -> Batch:
        chance = self.chance
        parts = {name: [self._table(chance.choice([0, 4, 9])) for _ in range(chance.choice([1, 2]))] for name in read}
        self.base += chance.choice([0, 2_000, 5_000])
        restart = chance.random() < 0.15
        mappings = tuple(self._mapping(sent) for sent in range(chance.choice([0, 0, 1, 1, 2])))
        return Batch(
            parts,
            attempts=chance.choice([1, 1, 1, 2]),
            instances=(chance.randint(1, 3),) if chance.random() < 0.1 else (),
            mappings=mappings,
            restart=restart,
            cells=self._cells() if restart and chance.random() < 0.7 else None,
            cold=chance.random() < 0.3,
            zombie=chance.random() < 0.2,
        )

    def _table(self, rows: int) -> pa.Table:
        chance = self.chance
        times = sorted(self.base + chance.randrange(6_000) for _ in range(rows))
        columns = [
            pa.array(times, TIME),
            [chance.choice([None, *range(KEYS)]) for _ in range(rows)],
            [chance.randrange(100) for _ in range(rows)],
            [[chance.randrange(KEYS) for _ in range(chance.randrange(4))] for _ in range(rows)],
        ]
        return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)

    def _mapping(self, sent: int) -> SetMapping:
        chance = self.chance
        cells = chance.randint(1, MOST_CELLS)
        kind = chance.choice(["cells", "all", "some", "rows", "columns"])
        # Of steps that cannot do it, it is left out.
        protocol = RECREATE if chance.random() < (0.5 if self.kind in RECREATING else 0.1) else ADOPT
        self.told.append(f"{kind} to {cells} by {protocol}")
        given: dict[str, Any] = {"protocol": protocol}
        if kind == "cells":
            given["cells"] = cells
        elif kind == "all":
            given["mapping"] = tuple(chance.choices(range(cells), k=SHARDS_OF_A_STEP))
        elif kind == "some":
            some = chance.sample(range(SHARDS_OF_A_STEP), 300)
            given["moves"] = {shard: chance.randrange(cells) for shard in some}
        else:
            by, turn = (SIDE if kind == "rows" else 1), chance.randrange(SIDE)
            given["mapping"] = tuple((shard // by + turn) % SIDE * cells // SIDE for shard in range(SHARDS_OF_A_STEP))
        return SetMapping(sent, **given)
