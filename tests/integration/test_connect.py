"""A query over Spark Connect: the client has no Java process of its own, and the result is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.testing import difference

TUPLES = pa.table(
    {
        "ts": pa.array([second * 1_000_000 for second in range(12)], pa.timestamp("us", tz="UTC")),
        "k": [second % 3 for second in range(12)],
    }
)

CLIENT = """
import sys
from pyspark.sql import SparkSession
import tidegate as tg
folder = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
df = spark.readStream.schema("ts timestamp, k long").option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
counts = tg.stream(df, time="ts").key_by("k").window("2 seconds").aggregate(n=tg.count())
results = counts.to_spark(state=f"{folder}/state", cells=int(sys.argv[2]))
for _ in range(2):
    writer = results.writeStream.format("parquet").option("path", f"{folder}/out")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    tg.end_input(f"{folder}/state/control")
spark.stop()
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("cells", [1, 2])
def test_a_query_over_connect_gives_the_same(tmp_path: Path, cells: int) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio, of the extra 'dev'")
    (tmp_path / "in").mkdir()
    for number in range(3):
        file = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(TUPLES.slice(4 * number, 4), file)
        os.utime(file, (1_700_000_000 + number,) * 2)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", CLIENT, str(tmp_path), str(cells)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    law: list[pa.Table] = []
    counts = tg.stream(TUPLES, time="ts").key_by("k").window("2 seconds").aggregate(n=tg.count())
    tg.run(counts, on="local", to=law.append, progress=False)
    expected = pa.concat_tables(law)
    made = pa.concat_tables([pq.read_table(file) for file in (tmp_path / "out").glob("*.parquet")])
    assert difference(made.select(expected.column_names).cast(expected.schema), expected) is None
