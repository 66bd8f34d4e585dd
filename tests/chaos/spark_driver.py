"""A driver that may be killed: runs the demo's query on Spark, from where its checkpoint stands.

python -m tests.chaos.spark_driver DATA OUT CHECKPOINT MASTER
"""

from __future__ import annotations

import sys
from pathlib import Path

import tidegate as tg
from tests.chaos.queries import demo


def main(data: str, out: str, checkpoint: str, master: str) -> None:
    """Run to the end; says when each batch is through."""
    result = tg.run(
        demo(Path(data)),
        to=out,
        checkpoint=checkpoint,
        spark=master,
        files_per_batch=1,
        progress=lambda progress: print(f"batch {progress.batch}", flush=True),
    )
    print(f"finished, {result.late} late", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
