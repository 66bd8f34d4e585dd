"""State in an object store: the same answer, and the same refusals, with a real S3 server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.kit.s3 import s3_options
from tests.kit.spark_driver import Batch, Driver, forget
from tidegate.reference import interpret
from tidegate.state.storage import open_storage
from tidegate.testing import difference

TUPLES = pa.table(
    {
        "ts": pa.array([second * 1_000_000 for second in range(40)], pa.timestamp("us", tz="UTC")),
        "k": [second % 3 for second in range(40)],
    }
)


def counts(origin: Any) -> tg.Stream:
    stream = tg.stream(origin, time="ts", name="s")
    return stream.key_by("k").window("10 seconds", every="5 seconds").aggregate(n=tg.count())


@pytest.mark.parametrize("cells", [1, 2])
def test_batches_that_are_tried_again_by_new_workers_give_the_laws_answer(
    s3_port: int, tmp_path: Path, cells: int
) -> None:
    query = counts(TUPLES.schema)
    uri = f"s3://bucket/{tmp_path.name}-{cells}"
    driver = Driver(query.node, cells, uri, retain=2, storage_options=s3_options(s3_port))
    parts = [TUPLES.slice(at, 10) for at in range(0, 40, 10)]
    outcome = driver.run([Batch({"s": [part]}, attempts=2, restart=True, cold=True, zombie=True) for part in parts])
    law = interpret(query.node, outcome.events)
    assert difference(pa.concat_tables(outcome.tables), law.rows) is None
    assert not driver.held()
    forget()


def test_a_query_on_spark_keeps_its_state_there(spark: Any, s3_port: int, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        file = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(TUPLES.slice(10 * number, 10), file)
        os.utime(file, (1_700_000_000 + number,) * 2)
    df = spark.readStream.schema("ts timestamp, k long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    uri, options = f"s3://bucket/{tmp_path.name}", s3_options(s3_port)
    results = counts(df).to_spark(state=uri, storage_options=options, control=tmp_path / "control")
    for _ in range(2):
        writer = results.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        tg.end_input(tmp_path / "control")
    law: list[pa.Table] = []
    tg.run(counts(TUPLES), on="local", to=law.append, progress=False)
    made = spark.read.parquet(str(tmp_path / "out")).toArrow()
    expected = pa.concat_tables(law)
    assert difference(made.select(expected.column_names).cast(expected.schema), expected) is None
    assert open_storage(uri, options).names(f"{query.id}/step-0/cell-0")
