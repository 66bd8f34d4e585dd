"""Where results go: a folder of parts, or the screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.errors import CheckpointError
from tidegate.results import in_order, logged_names, remove_unlisted, show_count, show_rows, visible_entries
from tidegate.runtime.spark.checkpoint import Checkpoint


class Sink(Protocol):
    """Something that takes the results of a run."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where it writes."""
        ...

    def check(self, checkpoint: Checkpoint, *, resumed: bool) -> None:
        """Refuse to begin, or to go on, where rows would be lost or mixed with others."""
        ...

    def is_empty(self) -> bool:
        """Whether nothing was committed to it yet."""
        ...

    def clean(self) -> None:
        """Remove what was left without being committed."""
        ...

    def start(self, df: DataFrame, checkpoint: Path) -> StreamingQuery:
        """Begin to write."""
        ...

    def close(self, results: int) -> None:
        """Called when the query has stopped, with the number of results it made."""
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """Parquet or JSON-lines parts in a folder, each result in it exactly once."""

    to: Path
    kind: str

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.to,)

    def check(self, checkpoint: Checkpoint, *, resumed: bool) -> None:
        if resumed and checkpoint.has_commits() and self.is_empty():
            raise CheckpointError(
                f"{checkpoint.folder} goes on from results in {self.to}, and they are gone; start from a new checkpoint"
            )
        if not resumed and (not self.is_empty() or visible_entries(self.to)):
            raise CheckpointError(
                f"{self.to} is not empty, and its checkpoint is not {checkpoint.folder}: the results of two runs would be "
                "mixed. Choose another folder, or delete this one"
            )
        if resumed:
            self.clean()

    def is_empty(self) -> bool:
        return not logged_names(self.to)

    def clean(self) -> None:
        remove_unlisted(self.to)

    def start(self, df: DataFrame, checkpoint: Path) -> StreamingQuery:
        writer = df.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
        if self.kind == "jsonl":
            writer = (
                writer.format("json")
                .option("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
                .option("timestampNTZFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
                .option("ignoreNullFields", "false")
            )
        else:
            writer = writer.format("parquet")
        return writer.start(str(self.to))

    def close(self, results: int) -> None:
        self.clean()

    def __str__(self) -> str:
        return f"{self.kind} to {self.to}"


@dataclass(slots=True)
class Screen:
    """The first rows on standard output: of each batch if ``live``, else of the whole run when it is over."""

    time: str
    show: int
    live: bool
    _held: list[pa.Table] = field(default_factory=list)

    @property
    def folders(self) -> tuple[Path, ...]:
        return ()

    def check(self, checkpoint: Checkpoint, *, resumed: bool) -> None:
        pass

    def is_empty(self) -> bool:
        return True

    def clean(self) -> None:
        pass

    def start(self, df: DataFrame, checkpoint: Path) -> StreamingQuery:
        writer = df.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
        return writer.foreachBatch(self.take).start()

    def take(self, df: DataFrame, batch: int) -> None:
        """Take the first rows of each partition. The batch is run once, and all of it: state hangs on it."""
        rows = df.mapInArrow(_Head(self.show), df.schema).toArrow()
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


@dataclass(frozen=True)
class _Head:
    """Keeps the first rows of a partition and reads the rest."""

    limit: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = self.limit
        for batch in batches:
            if left > 0:
                yield batch.slice(0, left)
            left -= batch.num_rows
