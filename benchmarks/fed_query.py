"""A streaming query on Spark whose micro-batches are put before it one by one, each timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.engines.tidegate_spark import rows_reported
from benchmarks.inputs import PRIMER


@dataclass
class FedQuery:
    """A running query over the files of a folder; `start_s` is what it took to start, `counts` the rows of a batch."""

    folder: Path
    query: StreamingQuery
    start_s: float = 0.0
    written: int = 0
    counts: Callable[[StreamingQueryProgress], int] = rows_reported
    _seen: int = -1

    @staticmethod
    def primed(folder: Path, schema: pa.Schema) -> Path:
        """A new folder with a file that has no rows: its columns, and the batch in which a query starts."""
        folder.mkdir(parents=True)
        pq.write_table(schema.empty_table(), folder / PRIMER)
        return folder

    def feed(self, table: pa.Table) -> StreamingQueryProgress:
        """Give it one batch, wait until that is committed, and return what Spark reports of it."""
        draft = self.folder / f".{self.written}"
        pq.write_table(table, draft)
        draft.rename(self.folder / f"{self.written:05}.parquet")
        self.written += 1
        self.query.processAllAvailable()
        while (last := self._newest()) is None:
            time.sleep(0.01)  # a batch's progress is published a little after its end
        self._seen = last.batchId
        return last

    def _newest(self) -> StreamingQueryProgress | None:
        """The report of the newest batch with rows, if it is a new one."""
        with_rows = [each for each in self.query.recentProgress if self.counts(each) > 0]
        return with_rows[-1] if with_rows and with_rows[-1].batchId > self._seen else None


def batch_ms(progress: StreamingQueryProgress) -> float:
    """The time of a micro-batch, from its trigger to its commit."""
    return float(progress.durationMs["triggerExecution"])
