"""The heavy customers of a phone network (StreamCloud §IV, figure 2, and §X.B): the query of ``tidegate demo``."""

from __future__ import annotations

import narwhals as nw

from tidegate.query.aggregates import count, mean
from tidegate.stream import Stream, stream

THRESHOLD_SECONDS = 450


def heavy_customers(calls: str) -> Stream:
    """Who, over an hour, makes calls that are long on average; asked every minute."""
    return (
        stream(calls, time="ts", name="calls")
        .with_columns(duration=nw.col("end_s") - nw.col("start_s"), name="duration")
        .key_by("src")
        .window("1 hour", every="1 minute")
        .aggregate(calls=count(), avg_duration=mean("duration"), name="per_customer")
        .filter(nw.col("avg_duration") > THRESHOLD_SECONDS, name="heavy")
    )
