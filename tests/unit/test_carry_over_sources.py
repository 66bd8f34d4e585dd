"""How far sources were read goes over: files are read once, the one that was begun from where it was, new ones too.

The query has no state, so that nothing but sources matters; what Spark notes of the files that it has read is written here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.carry_over.to_local import write_snapshot
from tidegate.carry_over.to_spark import bring_to_spark
from tidegate.compile.compiler import compile_query
from tidegate.errors import CheckpointError, DataError
from tidegate.query.nodes import Source
from tidegate.runtime.local.checkpoint import LocalCheckpoint, StateFromSpark
from tidegate.runtime.local.durable_folder import DraftWriter, ToDurableFolders
from tidegate.runtime.spark.checkpoint import Checkpoint, CheckpointInfo
from tidegate.runtime.spark.codec import Header
from tidegate.runtime.spark.continued import Continued
from tidegate.runtime.spark.inputs import NamedFiles
from tidegate.runtime.spark.sources import StagedSource, link_name
from tidegate.sources.files import Files
from tidegate.sources.growing import GrowingFiles, known_from, version_of
from tidegate.sources.positions import ReadPosition
from tidegate.watermark import START

TIME = pa.timestamp("us", tz="UTC")
ROWS = 10


def rows(first: int) -> pa.Table:
    times = pa.array([1_000 * (first + row) for row in range(ROWS)], TIME)
    return pa.table({"ts": times, "n": pa.array(range(first, first + ROWS), pa.int64())})


class Place:
    """A folder of files, a query over it, and what each run leaves."""

    def __init__(self, folder: Path, follow: bool) -> None:
        self.folder, self.follow = folder, follow
        (folder / "in").mkdir()
        for name in "abc":
            self.add(name)
        self.spark = Checkpoint(folder / "on-spark")

    @property
    def query(self) -> tg.Stream:
        """The query over the files that are there now."""
        files = str(self.folder / "in" / "*.parquet")
        return tg.stream(files, time="ts", follow=self.follow).select("ts", "n")

    def path(self, name: str) -> str:
        return str(self.folder / "in" / f"{name}.parquet")

    def add(self, name: str) -> None:
        pq.write_table(rows(ROWS * "abcdef".index(name)), self.path(name))

    def stopped_in_process(self, begun: str | None, row: int, left: str) -> Path:
        """The checkpoint of a run that was stopped behind a row of a file, or before all that are left."""
        of, plan = self.folder / "cp", compile_query(self.query.node, "local")
        paths = tuple(map(self.path, "abc"))
        size = 0 if begun is None else Path(self.path(begun)).stat().st_size
        position = ReadPosition(START, START, row, begun and self.path(begun), size, paths)
        if self.follow:
            known = known_from({path: version_of(path) for path in paths})
            position = replace(position, files=tuple(map(self.path, left)), known=known)
        found = LocalCheckpoint.open(of, plan, "any")

        def bring(checkpoint: LocalCheckpoint) -> tuple[ReadPosition, ...]:
            write_snapshot(plan, {}, {plan.sources[0].name: position}, checkpoint)
            return (position,)

        writer = DraftWriter(self.folder / "out", "parquet", self.query.schema)
        found.begin_with(StateFromSpark(Path("nothing"), bring), ToDurableFolders(self.folder / "out", (writer,)))
        found.close()
        return of

    def on_spark(self, of: Path) -> tuple[StagedSource, Continued]:
        """What a run on Spark begins with, and the files that it is given."""
        plan = compile_query(self.query.node, "spark")
        found = bring_to_spark(of, self.query.node, "dedicated", plan, self.spark)
        source = plan.sources[0]
        return StagedSource.of(source, self.spark.inputs(0), None, found.positions[source.name]), found

    def stopped_on_spark(self, read: str, of: Path | None) -> Path:
        """The checkpoint of a run on Spark that has read some of its files in one batch."""
        spark = self.spark.spark
        lines = []
        for name in read:
            path = self.spark.inputs(0) / link_name(self.path(name), ".parquet")
            lines.append(json.dumps({"path": path.as_uri(), "timestamp": 1, "batchId": 0}))
        for name, text in {
            "metadata": '{"id":"query"}',
            "commits/0": "v1\n{}",
            "offsets/0": 'v1\n{}\n{"logOffset":0}',
            "sources/0/0": "\n".join(["v1", *lines]),
        }.items():
            (spark / name).parent.mkdir(parents=True, exist_ok=True)
            (spark / name).write_text(text)
        (self.spark.folder / "lock").touch()
        self.spark.write(
            CheckpointInfo("no stateful step", (1, 1), "any", 1, continues=None if of is None else str(of))
        )
        return self.spark.folder

    def ended_in_process(self, of: Path, name: str = "end") -> list[int]:
        """The numbers that a run in process gives, which goes on until all files are read."""
        to: dict[str, Any] = {"to": self.folder / name, "checkpoint": self.folder / f"cp-{name}", "continue_from": of}
        with tg.start(self.query, **to) as job:
            if self.follow:
                wanted = ROWS * len(list((self.folder / "in").glob("*")))
                while job.running.graph.newest < 1_000 * (wanted - 1):
                    assert not job.wait(0.01)
                job.stop()
        found: list[int] = pq.read_table(self.folder / name).column("n").to_pylist() if job.results else []
        return found


@pytest.fixture(params=[False, True], ids=["bounded", "growing"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


def linked(staged: StagedSource) -> set[str]:
    return {Path(path.readlink()).stem for path in staged.folder.iterdir() if path.is_symlink()}


def read_by_worker(staged: StagedSource, path: str) -> list[int]:
    """What a worker reads of a file that Spark names."""
    source: Source = staged.source
    assert isinstance(source.origin, Files | GrowingFiles)
    files = source.origin if isinstance(source.origin, Files) else source.origin.files
    named = NamedFiles(source, files, (), True, staged.before)
    tables = named.tables([path], pa.table({}), Header())
    return [number for table, _ in tables for number in table.column("n").to_pylist()]


def test_on_spark_the_file_that_was_begun_is_read_from_where_it_was(place: Place) -> None:
    staged, found = place.on_spark(place.stopped_in_process("b", 3, "bc"))
    assert linked(staged) == {"b", "c"}
    assert read_by_worker(staged, place.path("b")) == list(range(14, 20))
    assert read_by_worker(staged, place.path("c")) == list(range(20, 30))
    assert Continued.read(place.spark).positions == found.positions
    place.add("d")
    staged.add_new_files()
    assert linked(staged) == {"b", "c", "d"}
    again = StagedSource.of(staged.source, staged.folder, None, staged.before)
    assert linked(again) == {"b", "c", "d"}


def test_a_file_that_has_changed_since_it_was_begun_is_refused(place: Place) -> None:
    of = place.stopped_in_process("b", 3, "bc")
    pq.write_table(rows(50).slice(2), place.path("b"))
    with pytest.raises((CheckpointError, DataError), match=r"b\.parquet"):
        place.on_spark(of)
    assert not place.spark.spark.exists()


def test_in_process_files_that_were_read_on_spark_are_not_read_again(place: Place) -> None:
    of = place.stopped_on_spark("ac", None)
    place.add("d")
    assert sorted(place.ended_in_process(of)) == [*range(10, 20), *range(30, 40)]
    assert sorted(place.ended_in_process(of, "again")) == [*range(10, 20), *range(30, 40)]


@pytest.mark.parametrize(("read", "left"), [("b", range(20, 30)), ("", range(14, 30)), ("bc", range(0))])
def test_a_third_leg_knows_what_both_before_it_have_read(place: Place, read: str, left: range) -> None:
    first = place.stopped_in_process("b", 3, "bc")
    place.on_spark(first)
    second = place.stopped_on_spark(read, first)
    if place.follow and not left:
        place.add("d")
        left = range(30, 40)
    assert sorted(place.ended_in_process(second)) == list(left)


def test_a_table_goes_on_behind_the_row_where_it_was(tmp_path: Path) -> None:
    query = tg.stream(rows(0), time="ts").select("ts", "n")
    plan = compile_query(query.node, "spark")
    position = ReadPosition(START, START, last=3)
    staged = StagedSource.of(plan.sources[0], tmp_path / "0", None, position)
    assert pq.read_table(staged.folder / "table.parquet").column("n").to_pylist() == list(range(4, 10))
