"""Random lives of a query that goes from one runtime to the other and back, each leg stopped somewhere, against the law.

Legs in process end at any operation on their files; those on Spark are batches of the driver of cells. No tuple is late, so
there is one answer, wherever a leg ends and however many instances and cells it has.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidegate as tg
from tests.kit.check_durable import Attempt, run_once
from tests.kit.moving import KEYS, SCHEMA, TIME
from tests.kit.spark_driver import MOST_CELLS, Batch, Driver, forget
from tidegate.carry_over import same_steps
from tidegate.carry_over.to_local import gathered, write_snapshot
from tidegate.carry_over.to_spark import SparkState, publish_results
from tidegate.compile.compiler import compile_query
from tidegate.query.nodes import Source, sources
from tidegate.reference import Advance, Event, Rows, interpret
from tidegate.results import read_results
from tidegate.runtime.local.checkpoint import LocalCheckpoint, StateFromSpark
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.spark.cell_batch import TaskBatch
from tidegate.runtime.spark.control import SetMapping
from tidegate.sources.positions import ReadPosition
from tidegate.state.epochs import ADOPT, RECREATE
from tidegate.state.storage import open_storage
from tidegate.testing import difference, last_revisions
from tidegate.watermark import END, START

DISORDER = 2_000
ROWS = 36


def arriving(chance: random.Random, every: int) -> pa.Table:
    """Tuples in the order in which they come, none of them further behind another than the disorder."""
    times = [10_000 + number * every - chance.randrange(DISORDER) for number in range(ROWS)]
    columns: list[Any] = [
        times,
        [chance.choice([None, *range(KEYS // 3)]) for _ in times],
        [chance.randrange(100) for _ in times],
        [[chance.randrange(KEYS // 2) for _ in range(chance.randrange(4))] for _ in times],
    ]
    columns[0] = pa.array(times, TIME)
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


@dataclass(slots=True)
class CarriedLife:
    """One random life: where it is now, and how far each source was read."""

    kind: str
    seed: int
    query: tg.Stream
    folder: Path
    chance: random.Random = field(init=False)
    data: Mapping[str, pa.Table] = field(init=False)
    tables: list[pa.Table] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    legs: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.kind} {self.seed}")
        self.data = {
            source.name: arriving(self.chance, self.chance.choice([200, 500, 900]))
            for source in sources(self.query.node)
        }

    def check(self) -> int:
        """Lives it; how many legs there were."""
        forget()
        here = self.chance.choice(["process", "spark"])
        state: Any = None
        for last in (False, *(self.chance.random() < 0.4 for _ in range(2)), True):
            state = self._in_process(state, last) if here == "process" else self._on_spark(state, last)
            here = "spark" if here == "process" else "process"
            if state is None:
                break
        events: list[Event] = [Rows(name, table) for name, table in self.data.items()]
        law = interpret(self.query.node, [*events, Advance(END)])
        made, rows = pa.concat_tables([self.query.schema.empty_table(), *self.tables]), law.rows
        if "revision" in self.query.schema.names:
            made, rows = last_revisions(made, ["k"]), last_revisions(rows, ["k"])
        assert law.late == 0
        told_apart = difference(made, rows)
        assert told_apart is None, f"{self.kind}, seed {self.seed}: {'; '.join(self.told)}\n{told_apart}"
        return self.legs

    def _place(self) -> Path:
        self.legs += 1
        place = self.folder / f"leg-{self.legs}"
        place.mkdir()
        return place

    def _in_process(self, state: tuple[Driver, dict[str, int]] | None, last: bool) -> Path | None:
        """A leg in process; its folder, None if it ended with the input."""
        place, chance = self._place(), self.chance
        begin = None if state is None else StateFromSpark(Path("before"), lambda found: self._from_spark(found, *state))
        while True:
            attempt = Attempt(
                Settings(chance.randint(1, 3), segment_rows=chance.choice([3, 50])),
                chance.randrange(2**16),
                0.5,
                None if last else chance.randint(1, 40),
                chance.random() < 0.5,
            )
            run_once(self.query, [], attempt, place, self._items, marked=False, continues=begin)
            plan = compile_query(self.query.node, "local")
            if list((place / "cp" / "snapshots").glob("[0-9]*")):
                before = LocalCheckpoint.of_stopped(place / "cp", plan)
                publish_results(before)
                ended = before.newest.finished
                if ended or chance.random() < 0.7:
                    break
        read = [position.last + 1 for position in before.newest.positions]
        self.told.append(f"process to {read}{', the end' if ended else ''}")
        self.tables.append(read_results(place / "out", "parquet", self.query.schema))
        return None if ended else place

    def _items(self, _: Any, source: Source) -> list[Any]:
        table, size = self.data[source.name], 3
        return [table.slice(at, size) for at in range(0, table.num_rows, size)]

    def _from_spark(
        self, checkpoint: LocalCheckpoint, driver: Driver, read: Mapping[str, int]
    ) -> tuple[ReadPosition, ...]:
        """What `carry_over.to_local` does, from cells of the driver."""
        plan = compile_query(self.query.node, "local")
        storage, batch = open_storage(driver.root.uri), driver.number - 1
        stores = {
            mine.number: gathered(storage, "query", other, batch) for mine, other in same_steps(plan, driver.plan)
        }
        positions = {}
        for source in plan.sources:
            newest = max([START, *(store.directory.newest.get(source.name, START) for store in stores.values())])
            positions[source.name] = ReadPosition(newest, START, last=read[source.name] - 1)
        write_snapshot(plan, stores, positions, checkpoint)
        return tuple(positions[source.name] for source in plan.sources)

    def _on_spark(self, before: Path | None, last: bool) -> tuple[Driver, dict[str, int]] | None:
        """A leg of batches; where it was stopped, None if it ended with the input."""
        place, chance = self._place(), self.chance
        cells = self._cells()
        forget()
        driver = Driver(
            self.query.node, cells, place, chance.choice([1, 3]), seed=self.legs, continues=before is not None
        )
        read = dict.fromkeys(self.data, 0)
        if before is not None:
            plan = compile_query(self.query.node, "local")
            found = LocalCheckpoint.of_stopped(before / "cp", plan)
            positions = {
                source.name: position for source, position in zip(plan.sources, found.newest.positions, strict=True)
            }
            steps = {mine.number: other for mine, other in same_steps(plan, driver.plan)}
            state = SparkState(plan, found, steps, positions, open_storage(driver.root.uri), "query")
            self.tables += [table for _, table in state.write()]
            read = {name: position.last + 1 for name, position in positions.items()}
        for _ in range(100 if last else chance.randint(1, 3)):
            self._batch(driver, {name: [self._next(name, read)] for name in self.data})
            if all(read[name] == ROWS for name in self.data):
                break
        ended = last or (all(read[name] == ROWS for name in self.data) and chance.random() < 0.5)
        self.told.append(f"cells {cells} to {list(read.values())}{', the end' if ended else ''}")
        if ended:
            self._batch(driver, {}, ends=True)
            return None
        return driver, read

    def _next(self, name: str, read: dict[str, int]) -> pa.Table:
        rows = self.chance.choice([0, 5, 11, 17])
        part = self.data[name].slice(read[name], rows)
        read[name] += part.num_rows
        return part

    def _batch(self, driver: Driver, parts: dict[str, list[pa.Table]], ends: bool = False) -> None:
        chance = self.chance
        if chance.random() < 0.3:
            forget()
        if driver.number and chance.random() < 0.3:
            driver.run_number += 1
            driver.start(self._cells())
        mappings = () if chance.random() < 0.6 else (self._mapping(),)
        for _ in range(chance.choice([1, 1, 2])):
            task = TaskBatch(driver.number, "query", f"run{driver.run_number}")
            results, told = driver.attempt(Batch(parts, mappings=mappings, ends=ends), task)
        driver.number += 1
        assert sum(one["late"] for one in told if "step" in one) == 0
        self.tables += results

    def _mapping(self) -> SetMapping:
        """Shards move, or windows are recreated, so that a leg may end while they change hands."""
        cells, protocol = self.chance.randint(1, MOST_CELLS), self.chance.choice([ADOPT, RECREATE])
        return SetMapping(0, cells=cells, protocol=protocol)

    def _cells(self) -> Any:
        return self.chance.choice([1, 2, 3, (1, MOST_CELLS), (2, MOST_CELLS)])


def lives(kind: str, query: tg.Stream, seeds: Sequence[int], folder: Path) -> int:
    """Some lives; how many legs there were in all."""
    legs = 0
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        legs += CarriedLife(kind, seed, query, place).check()
    return legs
