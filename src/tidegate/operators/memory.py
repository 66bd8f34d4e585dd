"""Keeping memory between batches instead of handing it back to the system after each."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_LARGEST = 1 << 30


@cache
def keep_memory() -> bool:
    """Let this process reuse the memory of large columns; returns whether it could be asked to.

    By default glibc maps every large array anew and unmaps it when it is freed, and Arrow's own pool returns memory soon:
    each batch then pays for tens of thousands of page faults, a quarter of the time of small kernels. It is for worker
    processes that do nothing else, since it changes the whole process: memory stays at the peak of what batches needed.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    pa.set_memory_pool(pa.system_memory_pool())
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _LARGEST))
