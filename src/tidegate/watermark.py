"""Watermarks: how far event time has come, in int64 microseconds since the epoch.

A watermark W says that no tuple with τ < W is still due. Its values are ordered as integers, so the watermark of several
sources is their `min`, and one that never goes back is a `max`. The ends of the range are no times of tuples: `START` says
that nothing is known yet, `END` that input has ended. Arithmetic needs no special case, as Python's integers do not
overflow: what lies some microseconds before `START` is still before every tuple.

>>> min(Watermark(5), START) == START, is_finite(START), is_finite(5), has_ended(END)
(True, False, True, True)
"""

from __future__ import annotations

from typing import TypeAlias

Watermark: TypeAlias = int

START: Watermark = -(2**63)
"""Nothing is known: any tuple may still come."""

END: Watermark = 2**63 - 1
"""Input has ended: no tuple comes any more, and every window has expired."""


def is_finite(watermark: Watermark) -> bool:
    """Whether a watermark is a time, not one of the two ends."""
    return START < watermark < END


def has_ended(watermark: Watermark) -> bool:
    """Whether no tuple comes any more."""
    return watermark >= END
