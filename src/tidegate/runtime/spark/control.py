"""Control in band: rows of a small file stream that travel with the data, before the watermark.

A control row has the event time at which Spark's watermark is to see it and a message. The one message so far is the end
of the input: its time is so late that every window expires. Spark's offset log makes control rows replay-safe.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegate.query.nodes import Source

COLUMN = "__tg_control"
END = "end"
FAR = datetime(9999, 1, 1, tzinfo=UTC)


def with_control(df: DataFrame, source: Source, folder: str | None) -> DataFrame:
    """The data with the control stream in it, told apart by a column of messages; the data as it is if there is none."""
    if folder is None:
        return df
    rows = df.sparkSession.readStream.schema("time timestamp, message string").json(folder)
    columns = [
        F.col("time").cast(field.dataType).alias(field.name)
        if field.name == source.time
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in df.schema
    ]
    data = df.withColumn(COLUMN, F.lit(None).cast("string"))
    return data.unionByName(rows.select(*columns, F.col("message").alias(COLUMN)))


def send(folder: Path, message: str, time: datetime) -> None:
    """Put a control row into the stream, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{uuid.uuid4().hex}"
    draft.write_text(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "message": message}) + "\n")
    draft.rename(folder / f"{uuid.uuid4().hex}.json")
