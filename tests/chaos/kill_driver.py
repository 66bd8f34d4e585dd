"""A driver whose processes are killed: runs a query to its end, from where its checkpoint stands, however often it fails.

python -m tests.chaos.kill_driver QUERY FILES FOLDER CELLS MASTER
"""

from __future__ import annotations

import sys

from pyspark.errors import PySparkException

import tidegate as tg
from tests.kit.killed_run import QUERIES


def main(name: str, files: str, folder: str, cells: str, master: str) -> None:
    """Run to the end; says when each batch is through, and when it failed."""
    while True:
        try:
            tg.run(
                QUERIES[name](files),
                to=f"{folder}/out",
                checkpoint=f"{folder}/checkpoint",
                spark=master,
                files_per_batch=1,
                cells=int(cells),
                progress=lambda progress: print(f"batch {progress.batch}", flush=True),
            )
        except (tg.EnvironmentFault, PySparkException, OSError) as error:
            print(f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        except tg.CheckpointError as error:
            if "is finished" not in str(error):
                raise
            return  # the driver before was killed after its last step
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
