"""What a checkpoint of Spark's holds, read before a query starts from it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.errors import CheckpointError
from tidegate.runtime.spark.fingerprint import check
from tidegate.state.chunks import Directory


def check_stored(spark: SparkSession, checkpoint: str, wanted: Sequence[str]) -> None:
    """Refuse a checkpoint whose cells were written by another query than the one with the ``wanted`` fingerprints.

    It is read as Spark's readers of state do, wherever it is, which takes a second or two; only the directories of cells are
    looked at. A checkpoint that is not there, or holds no batch yet, serves any query.
    """
    known = spark.read.format("state-metadata").load(checkpoint)
    steps = sorted(row.operatorId for row in known.select("operatorId").distinct().collect())
    if not steps:
        return
    if len(steps) != len(wanted):
        raise CheckpointError(
            f"{checkpoint} was written by another query and cannot serve this one: it holds the state of {len(steps)} "
            f"stateful steps, and the query has {len(wanted)}. Start from a new checkpoint, or restore the query"
        )
    found = {mark for step in steps for mark in _fingerprints(spark, checkpoint, step)}
    strange = sorted(found - set(wanted))
    missing = [mark for mark in wanted if mark not in found]
    if strange and missing:
        check(strange[0], missing[0], checkpoint)


def _fingerprints(spark: SparkSession, checkpoint: str, step: int) -> set[str]:
    try:
        reader = spark.read.format("statestore").option("operatorId", step).option("stateVarName", "directory")
        rows = reader.load(checkpoint).select("value.data").collect()
    except PySparkException as error:
        if "STDS_COMMITTED_BATCH_UNAVAILABLE" in str(error):
            return set()
        raise
    return {Directory.decode(bytes(row.data)).fingerprint for row in rows}
