"""A driver whose processes are killed: runs a query to its end, from where its checkpoint stands, however often it fails.

python -m tests.chaos.kill_driver QUERY FILES FOLDER CELLS MASTER

One session serves all attempts; when that is lost, so is the driver.
"""

from __future__ import annotations

import os
import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tidegate as tg
from tests.kit.killed_run import QUERIES


def main(name: str, files: str, folder: str, cells: str, master: str) -> None:
    """Run to the end; says when each batch is through, and when it failed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.executor.memory": "512m"}
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    while True:
        try:
            tg.run(
                QUERIES[name](files),
                to=f"{folder}/out",
                checkpoint=f"{folder}/checkpoint",
                spark=spark,
                files_per_batch=1,
                cells=int(cells),
                progress=lambda progress: print(f"batch {progress.batch}", flush=True),
            )
        except (tg.EnvironmentFault, PySparkException, Py4JError, OSError) as error:
            print(f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
            spark.range(1).count()  # of a session that is lost, this fails too
        except tg.CheckpointError as error:
            if "is finished" not in str(error):
                raise
            return  # the driver before was killed after its last step
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
