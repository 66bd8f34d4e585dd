"""A run in process that dies within its input, when its snapshots are a few; another one goes on where it was.

``python -m tests.kit.killed_leg FILES OUT CHECKPOINT``: the process kills itself behind the list of its third snapshot, when
the parts that belong to it have not got their names.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.runtime.local.durable_folder import ToDurableFolders

THIRD = 3


def pairs(files: str, seconds: float = 0.0) -> tg.Stream:
    """Pairs of a stream with itself, then windows over them; a step before takes so long for each segment."""

    def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(seconds)
        return batch

    one = tg.stream(files, time="ts", disorder="2 ms").map_batches(slowly)
    both = one.join(one, on="k", within="4 ms", where=lambda l, r: l.n < r.n)
    return both.key_by("k").window("30 ms", every="10 ms").aggregate(pairs=tg.count(), n=tg.sum("n"))


def die(sink: ToDurableFolders, number: int, parts: Any) -> None:
    """Publish the parts of a snapshot, or die."""
    if number == THIRD:
        os.kill(os.getpid(), signal.SIGKILL)
    PUBLISH(sink, number, parts)


PUBLISH = ToDurableFolders.publish

if __name__ == "__main__":
    files, out, checkpoint = sys.argv[1:]
    ToDurableFolders.publish = die  # type: ignore[method-assign]
    query = pairs(files, seconds=0.003)
    tg.start(query, to=out, checkpoint=checkpoint, every="30 ms", segment_rows=20, waiting_rows=60).wait()
