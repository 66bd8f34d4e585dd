"""How much decoded state a worker process may keep in memory.

Spark gives a cell to any worker that is free, so a worker soon holds every cell of its machine. What does not fit is decoded
anew in each batch: a fixed limit would be a cliff for state that outgrows it on a machine with memory to spare.
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path

LEAST_BYTES = 512 * 1024**2
PART = 8
"""Each cache takes at most one part in so many of the memory that a core has to itself."""
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@cache
def cache_bytes() -> int:
    """How much each of a worker's caches may hold: a part of its core's share of the memory, at least `LEAST_BYTES`."""
    return max(LEAST_BYTES, min(_machine_bytes() // (os.cpu_count() or 1), _process_bytes()) // PART)


def _machine_bytes() -> int:
    """The memory of the machine, or of the container."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = CONTAINER_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return whole
    return min(whole, int(limit)) if limit.isdigit() else whole


def _process_bytes() -> int:
    """What a process may take; Spark sets such a limit if `spark.executor.pyspark.memory` is given."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return soft if soft != resource.RLIM_INFINITY else 2**63
