"""A run on Spark whose checkpoint is on a disk that is full, and again when there is room.

``unshare --map-root-user --mount python -m tests.kit.full_disk_run FILES OUT DISK``: mounts a small disk of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tidegate as tg


def query(files: str) -> tg.Stream:
    """A window over all of the input, so that state grows."""
    flows = tg.stream(files, time="time").key_by("trafficSrc").window("1 day")
    return flows.aggregate(flows=tg.count(), amount=tg.sum("flowAmount"))


def run(files: str, out: str, disk: str) -> None:
    """One run."""
    checkpoint = Path(disk) / "checkpoint"
    tg.run(query(files), to=out, checkpoint=checkpoint, spark="local[2]", files_per_batch=1, progress=False)


if __name__ == "__main__":
    files, out, disk = sys.argv[1:]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    try:
        run(files, out, disk)
    except tg.EnvironmentFault as fault:
        print(fault, flush=True)
    subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
    run(files, out, disk)
