"""How results and metrics leave a stateful step: as rows of one schema, told apart by the column of metrics.

PySpark takes the step's output as pandas frames. Scalar columns pass through them untouched, over Arrow memory. Lists and
structs would become Python objects, and NaN in them null, so results with such columns travel packed, as encoded tables in
one binary column, and are unpacked behind the step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.query.schema import TIME, conform, contiguous
from tidegate.runtime.spark.types import spark_schema
from tidegate.state import chunks

METRICS = "__tg_metrics"
PACKED = "__tg_packed"
OBSERVED = "tidegate:"
"""What the names of observed metrics begin with; the number and the name of the stateful step follow."""
_OF_EACH_CELL = ("cell", "instances", "busy_ms")
ROWS_PER_PACK = 65_536
ROWS_PER_FRAME = 262_144  # Spark writes one frame while the next is made


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a cell tells about a batch.

    ``busy_ms`` is how long its instances worked, added up; ``damaged`` counts files of the chunk cache that held something
    else than was put there.
    """

    cell: int
    late: int
    state_rows: int
    state_bytes: int
    instances: int
    busy_ms: int
    damaged: int
    cells: int = 1


@dataclass(frozen=True, slots=True)
class Outward:
    """The way out for results of a schema; event time travels unpacked, since a later stateful step needs it.

    It travels with a zone, UTC: Spark's watermarks know no other times.
    """

    schema: pa.Schema
    time: str

    @property
    def packs(self) -> bool:
        """Whether results travel packed."""
        return any(pa.types.is_nested(kind) for kind in self.schema.types)

    @property
    def is_naive(self) -> bool:
        """Whether event time has no zone."""
        return bool(self.schema.field(self.time).type != TIME)

    @property
    def columns(self) -> pa.Schema:
        """The columns of what travels."""
        packed = [pa.field(self.time, TIME), pa.field(PACKED, pa.binary())]
        results = (
            packed if self.packs else [pa.field(self.time, TIME) if f.name == self.time else f for f in self.schema]
        )
        return pa.schema([*results, pa.field(METRICS, pa.string())])

    def results(self, table: pa.Table) -> Iterator[pd.DataFrame]:
        """Results as they travel."""
        if self.packs:
            parts = [table.slice(at, ROWS_PER_PACK) for at in range(0, table.num_rows, ROWS_PER_PACK)]
            naive = pa.array([pc.min(part.column(self.time)) for part in parts], self.schema.field(self.time).type)
            times = naive.cast(TIME)
            packs = pa.array(map(chunks.encode, parts), pa.binary())
            yield _frame(pa.table([times, packs, pa.nulls(len(packs), pa.string())], schema=self.columns))
        else:
            for at in range(0, table.num_rows, ROWS_PER_FRAME):
                part = conform(table.slice(at, ROWS_PER_FRAME), pa.schema(list(self.columns)[:-1]))
                yield _frame(pa.table([*part.columns, pa.nulls(part.num_rows, pa.string())], schema=self.columns))

    def metrics(self, metrics: Metrics) -> pd.DataFrame:
        """Metrics as they travel."""
        nulls = [pa.nulls(1, field.type) for field in self.columns if field.name != METRICS]
        return _frame(pa.table([*nulls, pa.array([json.dumps(asdict(metrics))])], schema=self.columns))

    def arrived(self, df: DataFrame, step: str) -> DataFrame:
        """The results alone; the metrics go to the query's progress on the way."""
        results = df.observe(f"{OBSERVED}{step}", *_observed()).where(F.col(METRICS).isNull()).drop(METRICS)
        if self.packs:
            return results.mapInArrow(unpack, spark_schema(self.schema))
        wanted = spark_schema(self.schema)[self.time].dataType
        return results.withColumn(self.time, F.col(self.time).cast(wanted)) if self.is_naive else results


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of packed results."""
    for batch in batches:
        for pack in batch.column(PACKED):
            yield from chunks.decode(pack.as_buffer()).to_batches()


def _observed() -> list[Column]:
    """What progress shows: sums over the cells that had something to do, and what each of them did."""
    told = {field.name: F.get_json_object(METRICS, f"$.{field.name}").cast("long") for field in fields(Metrics)}
    sums = [F.sum(told[name]).alias(name) for name in told if name != "cell"]
    each = F.struct(*(told[name].alias(name) for name in _OF_EACH_CELL))
    return [*sums, F.sort_array(F.collect_list(F.when(F.col(METRICS).isNotNull(), each))).alias("by_cell")]


def _frame(table: pa.Table) -> pd.DataFrame:
    columns = {name: contiguous(table.column(name)) for name in table.column_names}
    return pd.DataFrame({name: pd.Series(pd.arrays.ArrowExtensionArray(array)) for name, array in columns.items()})
