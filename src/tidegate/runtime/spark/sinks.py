"""Where the results of a run go: a folder of parts, or the screen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.errors import CheckpointError, InternalError
from tidegate.results import Part, has_log, in_order, remove_unlisted, show_count, show_rows, visible_entries
from tidegate.runtime.spark.checkpoint import Checkpoint
from tidegate.runtime.spark.part_log import PartLog


class SparkSink(ABC):
    """Takes the results of a run; one that keeps nothing between runs needs `writer` and `close` alone."""

    folder: Path | None = None
    """Where it writes."""
    format: str | None = None
    parts: Path | None = None
    """The folder to which workers may write results themselves; a `committer` then takes what they say of it."""

    def check(self, checkpoint: Checkpoint, *, resumed: bool) -> None:
        """Refuses to begin, or to go on, where rows would be lost or mixed with others."""
        return

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
    """Parquet or JSON-lines parts in a folder, each result in it exactly once."""

    folder: Path
    format: str

    @property
    def parts(self) -> Path | None:  # type: ignore[override]
        return self.folder if self.format == "parquet" else None

    def check(self, checkpoint: Checkpoint, *, resumed: bool) -> None:
        if resumed and checkpoint.has_commits() and self.is_empty():
            raise CheckpointError(
                f"{checkpoint.folder} goes on from results in {self.folder}, and they are gone; start from a new checkpoint"
            )
        if not resumed and (not self.is_empty() or visible_entries(self.folder)):
            raise CheckpointError(
                f"{self.folder} is not empty, and its checkpoint is not {checkpoint.folder}: the results of two runs would "
                "be mixed. Choose another folder, or delete this one"
            )
        if resumed:
            self.clean()

    def is_empty(self) -> bool:
        return not has_log(self.folder)

    def clean(self) -> None:
        remove_unlisted(self.folder)

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
        PartLog(self.folder).begin()
        return _writer(df, checkpoint).foreachBatch(self.commit)

    def commit(self, df: DataFrame, batch: int) -> None:
        """Runs a batch, and commits the parts that its workers wrote."""
        PartLog(self.folder).add(batch, [Part(row["part"], row["rows"], row["bytes"]) for row in df.collect()])

    def close(self, results: int) -> None:
        self.clean()

    def __str__(self) -> str:
        return f"{self.format} to {self.folder}"


@dataclass
class SparkScreen(SparkSink):
    """The first rows on standard output: of each batch if ``live``, else of the whole run when it is over."""

    time: str
    show: int
    live: bool
    _held: list[pa.Table] = field(default_factory=list)

    def writer(self, df: DataFrame, checkpoint: Path) -> DataStreamWriter:
        return _writer(df, checkpoint).foreachBatch(self.take)

    def take(self, df: DataFrame, batch: int) -> None:
        """Takes the first rows of each partition. The batch is run once, and all of it: state depends on it."""
        rows = df.mapInArrow(_FirstRows(self.show), df.schema).toArrow()
        kept = in_order(rows, self.time)
        if self.live and kept.num_rows:
            print(show_rows(kept.slice(0, self.show)), flush=True)
        elif sum(table.num_rows for table in self._held) < self.show:
            self._held.append(kept)

    def close(self, results: int) -> None:
        if self.live:
            print(show_count(results, results), flush=True)
        elif results and self._held:
            rows = pa.concat_tables(self._held).slice(0, self.show)
            print(f"{show_rows(rows)}\n{show_count(results, rows.num_rows)}", flush=True)
        else:
            print("(no rows)", flush=True)

    def __str__(self) -> str:
        return "to the screen"


def _writer(df: DataFrame, checkpoint: Path) -> DataStreamWriter:
    return df.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))


@dataclass(frozen=True)
class _FirstRows:
    """Keeps the first rows of a partition and reads the rest."""

    limit: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = self.limit
        for batch in batches:
            if left > 0:
                yield batch.slice(0, left)
            left -= batch.num_rows
