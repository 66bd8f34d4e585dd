"""What lies too far in the future leaves a DataFrame before any step or watermark sees it, and is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from tidegate.query.event_time import format_duration
from tidegate.query.nodes import Source

AHEAD = "tidegate_ahead/"


def without_future(source: Source, df: DataFrame, read: Counter[str]) -> DataFrame:
    """The tuples of a source at most ``ahead`` after the clock, which is the batch's timestamp.

    How many others there were is observed: once each time that the query reads the source, which ``read`` counts.
    """
    if source.ahead_us is None:
        return df
    read[source.name] += 1
    now = F.current_timestamp()
    if isinstance(df.schema[source.time].dataType, TimestampNTZType):
        now = F.convert_timezone(None, F.lit("UTC"), F.localtimestamp())
    ahead = F.coalesce(F.col(source.time) > now + F.lit(timedelta(microseconds=source.ahead_us)), F.lit(False))
    observed = df.observe(f"{AHEAD}{read[source.name]}:{source.name}", F.count_if(ahead).alias("tuples"))
    return observed.where(~ahead)


def set_aside(observed: Mapping[str, Any]) -> dict[str, int]:
    """How many tuples of each source a batch set aside, if any; one that is read several times counts once."""
    found: dict[str, int] = {}
    for name, row in observed.items():
        if name.startswith(AHEAD) and row is not None and row["tuples"]:
            source = name.removeprefix(AHEAD).split(":", 1)[1]
            found[source] = max(found.get(source, 0), int(row["tuples"]))
    return found


def notice(source: Source, tuples: int) -> str:
    """What is said about the tuples of a source that were set aside."""
    lie = "1 tuple lies" if tuples == 1 else f"{tuples:,} tuples lie"
    return (
        f"stream '{source.name}': {lie} more than {format_duration(source.ahead_us or 0)} after the clock; set aside and "
        "counted, such tuples move no watermark. If they are meant, allow more, as in tg.stream(..., ahead='2 days'), or "
        "all with ahead=None"
    )
