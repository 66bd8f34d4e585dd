"""Loops over pairs of tuples, compiled from their source once in a process; the GIL is released while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

_compiled: dict[str, Callable[..., int]] = {}
_lock = threading.Lock()


def compiled(source: str) -> Callable[..., int]:
    """The function ``loop`` of a source, compiled for the arguments of each first call.

    ``loop(lows, highs, starts, stops, at, out_new, out_stored, …)`` tries new tuple ``i`` against the stored ones from
    ``lows[i]`` to before ``highs[i]`` that lie in one of the stretches ``starts[b]`` to ``stops[b]``. It returns how many
    pairs it noted. ``at`` is where to begin, stretch and tuple, and holds where to go on: it is past the last stretch when
    all is done. ``at[2]`` is 1 if the predicate failed on the pair ``at[0], at[1]``.
    """
    with _lock:
        if source not in _compiled:
            scope: dict[str, Any] = {"np": np}
            exec(source, scope)  # the source is our own: a predicate is a tree of known operations
            # Floats divided by zero are infinite or NaN, as in Arrow; whole numbers divided by zero are found before.
            _compiled[source] = njit(scope["loop"], nogil=True, error_model="numpy")
        return _compiled[source]
