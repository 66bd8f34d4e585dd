"""The canonical order of values: null first, NaN last, −0.0 equal to 0.0, strings by bytes, lists and structs by parts."""

from __future__ import annotations

import math
from typing import Any


def canonical(value: Any) -> tuple[Any, ...]:
    """A key that sorts and compares Python values in canonical order.

    >>> sorted([float("nan"), 1.0, None, -0.0], key=canonical)
    [None, -0.0, 1.0, nan]
    """
    match value:
        case None:
            return (0,)
        case float() if math.isnan(value):
            return (2,)
        case float():
            return (1, value + 0.0)
        case str():
            return (1, value.encode())
        case list() | tuple():
            return (1, tuple(canonical(part) for part in value))
        case dict():
            return (1, tuple(canonical(part) for part in value.values()))
        case _:
            return (1, value)
