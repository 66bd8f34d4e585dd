"""Control in band: rows of a small file stream that travel with the data, before the watermark.

A control row has the event time at which Spark's watermark is to see it and a message. There are two: the end of the
input, whose time is so late that every window expires, and the number of instances of each cell, whose time is so early
that no watermark moves; it goes to every cell of every stateful step. Spark's offset log makes control rows replay-safe.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.errors import DataError
from tidegate.query.nodes import Source

COLUMN = "__tg_control"
END = "end"
FAR = datetime(9999, 1, 1, tzinfo=UTC)
# A watermark of Spark's never goes back, and its first is here.
EARLY = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANCES = "instances"


@dataclass(frozen=True, slots=True, order=True)
class SetInstances:
    """The message that cells are to run so many instances; of two in one batch the one sent later counts."""

    sent_ns: int
    number: int

    def __str__(self) -> str:
        return f"{_INSTANCES} {self.number} {self.sent_ns}"

    @classmethod
    def parse(cls, message: str) -> SetInstances:
        """The message of a text."""
        match message.split():
            case [kind, number, sent_ns] if kind == _INSTANCES and number.isdigit() and sent_ns.isdigit():
                return cls(int(sent_ns), int(number))
            case _:
                raise DataError(
                    f"the control stream holds the message {message!r}, which this tidegate does not know; write to it "
                    "with tg.set_instances and tg.end_input, of the version that runs the query"
                )


def for_cells(messages: Iterable[str]) -> SetInstances | None:
    """What cells have to know of the messages of a batch."""
    return max((SetInstances.parse(message) for message in messages if message != END), default=None)


def with_control(df: DataFrame, source: Source, folder: str | None) -> DataFrame:
    """The data with the control stream in it, told apart by a column of messages; the data as it is if there is none."""
    if folder is None:
        return df
    rows = _read(df.sparkSession, folder)
    columns = [
        F.col("time").cast(field.dataType).alias(field.name)
        if field.name == source.time
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in df.schema
    ]
    data = df.withColumn(COLUMN, F.lit(None).cast("string"))
    return data.unionByName(rows.select(*columns, F.col("message").alias(COLUMN)))


def to_cells(spark: SparkSession, folder: str, keys: tuple[int, ...]) -> DataFrame:
    """What cells are told, as rows of each of them: its group key and the message."""
    every = F.explode(F.array(*(F.lit(key).cast("int") for key in keys))).alias("cell")
    return _read(spark, folder).where(F.col("message") != END).select(every, F.col("message").alias("control"))


def send_instances(folder: Path, number: int) -> None:
    """Ask every cell for a number of instances."""
    send(folder, str(SetInstances(time.time_ns(), number)), EARLY)


def send(folder: Path, message: str, moment: datetime) -> None:
    """Put a control row into the stream, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{uuid.uuid4().hex}"
    draft.write_text(json.dumps({"time": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "message": message}) + "\n")
    draft.rename(folder / f"{uuid.uuid4().hex}.json")


def _read(spark: SparkSession, folder: str) -> DataFrame:
    return spark.readStream.schema("time timestamp, message string").json(folder)
