"""The errors tidegate raises.

::

    TidegateError
    ├── UserError            something the caller can fix
    │   ├── QueryError       found when the query is built
    │   │   ├── UnknownStepError  a step that does not exist, an AttributeError too
    │   │   └── CallError         arguments that a step does not take, a TypeError too
    │   ├── UnsupportedError found when it is compiled: the chosen runtime cannot do it
    │   ├── DataError        found in the data while the query runs
    │   └── CheckpointError  the checkpoint cannot serve this query
    ├── EnvironmentFault     the machine lacks something (Java, disk, a package)
    └── InternalError        a bug of tidegate
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable


class TidegateError(Exception):
    """Root of everything tidegate raises on purpose."""


class UserError(TidegateError):
    """A mistake of the caller; the message says what to do."""


class QueryError(UserError):
    """A query that cannot mean anything, found when it is built."""


class UnknownStepError(QueryError, AttributeError):
    """A step that does not exist; the message says which one to take."""


class CallError(QueryError, TypeError):
    """Arguments that a function does not take, or one that is missing; the message says what to write."""


class UnsupportedError(UserError):
    """A valid query that the chosen runtime cannot run."""


class DataError(UserError):
    """Input that breaks what the query declared about it."""


class CheckpointError(UserError):
    """A checkpoint that belongs to another query or is already finished."""


class EnvironmentFault(TidegateError):
    """Something the machine lacks."""


class InternalError(TidegateError):
    """A bug of tidegate: an invariant that does not hold."""


class SlowWarning(UserWarning):
    """The answer is right, but part of the query runs much slower than it could; the message says which and why."""


def warn_slow(message: str) -> None:
    """Issue a `SlowWarning` at the line of the user's program that called tidegate."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "tidegate":
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]  # None above the outermost
    warnings.warn(message, SlowWarning, stacklevel=level)


class SetAsideWarning(UserWarning):
    """Tuples lie further in the future than their stream allows and are set aside; the message names the first one."""


class SilentPartitionWarning(UserWarning):
    """A partition of a topic has brought nothing for long, and holds back what others bring; the message names it."""


def choices(names: Iterable[str]) -> str:
    """Render valid choices for a message, in their own order."""
    listed = [f"'{name}'" for name in names]
    return ", ".join(listed) if listed else "none"
