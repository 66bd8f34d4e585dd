"""Where the results of a run go: a folder of parts, or the screen."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.errors import CheckpointError, InternalError
from tidegate.query.outputs import untagged
from tidegate.results import Part, PartWriter, has_log, remove_unlisted, result_folder, visible_entries
from tidegate.runtime.spark.checkpoint import Checkpoint
from tidegate.runtime.spark.part_log import PartLog
from tidegate.tables import in_order, show_count, show_first

HeldResults: TypeAlias = Sequence[tuple[int, pa.Table]]
"""Results, each after the number of the result of the query that it belongs to."""


class SparkSink(ABC):
    """Takes the results of a run; one that keeps nothing between runs needs `writer` and `close` alone."""

    folder: Path | None = None
    """Where it writes."""
    folders: tuple[Path, ...] = ()
    """The folder of each result."""
    format: str | None = None
    parts: Path | None = None
    """The folder to which workers may write results themselves; a `committer` then takes what they say of it."""

    def check(self, checkpoint: Checkpoint, *, resumed: bool) -> None:
        """Refuses to begin, or to go on, where rows would be lost or mixed with others."""
        return

    @abstractmethod
    def beginning_with(self, held: HeldResults) -> SparkSink:
        """The same sink, which gets results of another run, that were not out there, with the first batch."""

    def is_empty(self) -> bool:
        """Whether nothing was committed to it yet."""
        return True

    def clean(self) -> None:
        """Removes what was left without being committed."""
        return

    @abstractmethod
    def writer(self, df: DataFrame, checkpoint: Path) -> DataStreamWriter:
        """A query, not started yet, that writes the results in a DataFrame."""

    def committer(self, df: DataFrame, checkpoint: Path) -> DataStreamWriter:
        """A query, not started yet, that commits the parts in a DataFrame, which workers have written."""
        raise InternalError(f"{self} takes no parts that workers write")

    def close(self, results: int) -> None:
        """Ends the output; called when the query has stopped, with the number of its results."""
        return


@dataclass(frozen=True)
class SparkFolder(SparkSink):
    """Parquet or JSON-lines parts in a folder, each result in it exactly once.

    Several results, which have ``names``, each have a folder in it. The batches of all are committed folder by folder: one
    that was committed to some of them when the driver died is run again, and then committed to the others.
    """

    folder: Path
    format: str
    names: tuple[str, ...] = ()
    held: HeldResults | None = None

    @property
    def folders(self) -> tuple[Path, ...]:  # type: ignore[override]
        """The folder of each result."""
        return tuple(result_folder(self.folder, name) for name in self.names or (None,))

    @property
    def parts(self) -> Path | None:  # type: ignore[override]
        # One query of Spark's has one sink of its own, and that takes nothing but what is in the batch.
        return self.folder if self.format == "parquet" or self.names or self.held is not None else None

    def beginning_with(self, held: HeldResults) -> SparkFolder:
        return replace(self, held=held)

    def check(self, checkpoint: Checkpoint, *, resumed: bool) -> None:
        for gone in (folder for folder in self.folders if not has_log(folder)):
            if resumed and checkpoint.has_commits():
                raise CheckpointError(
                    f"{checkpoint.folder} goes on from results in {gone}, and they are gone; start from a new checkpoint"
                )
        if not resumed and (not self.is_empty() or visible_entries(self.folder)):
            raise CheckpointError(
                f"{self.folder} is not empty, and its checkpoint is not {checkpoint.folder}: the results of two runs would "
                "be mixed. Choose another folder, or delete this one"
            )
        if resumed:
            self.clean()

    def is_empty(self) -> bool:
        return not any(map(has_log, self.folders))

    def clean(self) -> None:
        for folder in self.folders:
            remove_unlisted(folder)

    def writer(self, df: DataFrame, checkpoint: Path) -> DataStreamWriter:
        writer = _writer(df, checkpoint).format("parquet").option("path", str(self.folder))
        if self.format == "jsonl":
            writer = (
                writer.format("json")
                .option("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
                .option("timestampNTZFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
                .option("ignoreNullFields", "false")
            )
        return writer

    def committer(self, df: DataFrame, checkpoint: Path) -> DataStreamWriter:
        for folder in self.folders:
            PartLog(folder).begin()
        return _writer(df, checkpoint).foreachBatch(self.commit)

    def commit(self, df: DataFrame, batch: int) -> None:
        """Runs a batch, and commits the parts that its workers wrote."""
        rows = df.collect()
        for number, folder in enumerate(self.folders):
            own = [Part(row["part"], row["rows"], row["bytes"]) for row in rows if row["output"] == number]
            held = [table for output, table in self.held or () if output == number]
            if batch == 0 and held:
                writer = PartWriter(folder, self.format, held[0].schema, label=f"{batch:010}-{uuid.uuid4().hex}-")
                writer.write(pa.concat_tables(held))
                writer.close()
                own = [*writer.written, *own]
            PartLog(folder).add(batch, own)

    def close(self, results: int) -> None:
        self.clean()

    def __str__(self) -> str:
        return f"{self.format} to {self.folder}" + (f": {', '.join(self.names)}" if self.names else "")


@dataclass
class SparkScreen(SparkSink):
    """The first rows on standard output: of each batch if ``live``, else of the whole run when it is over.

    ``times`` are the event times of the results by their names; of one result under None.
    """

    times: Mapping[str | None, str]
    show: int
    live: bool
    first: HeldResults = ()
    _held: dict[str | None, list[pa.Table]] = field(default_factory=dict)

    def beginning_with(self, held: HeldResults) -> SparkScreen:
        return replace(self, first=held)

    def writer(self, df: DataFrame, checkpoint: Path) -> DataStreamWriter:
        return _writer(df, checkpoint).foreachBatch(self.take)

    def take(self, df: DataFrame, batch: int) -> None:
        """Takes the first rows of each partition. The batch is run once, and all of it: state depends on it."""
        columns = tuple(name for name in self.times if name is not None)
        rows = df.mapInArrow(_FirstRows(self.show, columns), df.schema).toArrow()
        for output, (name, time) in enumerate(self.times.items()):
            own = rows if name is None else untagged(rows, name)
            held = [table for number, table in self.first if number == output] if batch == 0 else []
            kept = in_order(pa.concat_tables([*(table.cast(own.schema) for table in held), own]), time)
            shown = self._held.setdefault(name, [])
            if self.live and kept.num_rows:
                print(show_first(name, kept.slice(0, self.show)), flush=True)
            elif sum(table.num_rows for table in shown) < self.show:
                shown.append(kept)

    def close(self, results: int) -> None:
        shown = results if self.live else 0
        for name in () if self.live else self.times:
            tables = self._held.get(name)
            rows = pa.concat_tables(tables).slice(0, self.show) if tables else None
            shown += 0 if rows is None else rows.num_rows
            print(show_first(name, rows), flush=True)
        if results or self.live:
            print(show_count(results, shown), flush=True)

    def __str__(self) -> str:
        return "to the screen"


def _writer(df: DataFrame, checkpoint: Path) -> DataStreamWriter:
    return df.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))


@dataclass(frozen=True)
class _FirstRows:
    """Keeps the first rows of a partition, of several results the first of each, and reads the rest."""

    limit: int
    results: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = dict.fromkeys(self.results or (None,), self.limit)
        for batch in batches:
            for name, limit in left.items():
                own = batch if name is None else batch.filter(batch.column(name).is_valid())
                if limit > 0 and own.num_rows:
                    yield own.slice(0, limit)
                left[name] = limit - own.num_rows
