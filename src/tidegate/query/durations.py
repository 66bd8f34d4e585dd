"""Lengths of event time: text or timedelta to whole microseconds and back."""

from __future__ import annotations

import re
from datetime import timedelta
from numbers import Number
from typing import Literal

from tidegate.errors import QueryError
from tidegate.query.event_time import LONGEST_US

UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
SHORT = {"us": "microsecond", "ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day"}

_TERM = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")

Duration = str | timedelta | Literal[0]


def parse_duration(value: Duration, subject: str) -> int:
    """Microseconds of ``value``: '90 seconds', '1 hour 30 minutes', '500ms', or a timedelta.

    A number without unit is refused, except for 0, which is the same in all of them.

    >>> parse_duration("1 hour 30 minutes", "window")
    5400000000
    """
    microseconds = _microseconds(value, subject)
    if abs(microseconds) > LONGEST_US:
        shown = str(value) if len(str(value)) < 40 else f"{str(value)[:40]}…"
        raise QueryError(f"{subject}: {shown} is longer than the 999 years that a duration may have")
    return microseconds


def _microseconds(value: Duration, subject: str) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        return 0
    if isinstance(value, Number) and not isinstance(value, bool):
        raise QueryError(
            f"{subject}: {value} has no unit; write '{value} seconds', '{value} microseconds' or timedelta(seconds={value})"
        )
    if not isinstance(value, str):
        raise QueryError(
            f"{subject}: a duration is text such as '10 seconds', or a timedelta; got {value!r} ({type(value).__name__})"
        )
    total, position = 0, 0
    text = value.strip().lower()
    while position < len(text):
        term = _TERM.match(text, position)
        unit = term and (SHORT.get(term[2]) or term[2].removesuffix("s"))
        if term is None or unit not in UNITS_US:
            raise QueryError(
                f"{subject}: cannot read the duration {value!r}; write a whole number and a unit "
                f"({', '.join(UNITS_US)}), as in '90 seconds' or '1 hour 30 minutes'"
            )
        # Python refuses to read numbers of thousands of digits.
        total += (int(term[1]) if len(term[1]) < 20 else LONGEST_US + 1) * UNITS_US[unit]
        position = term.end()
    if not text:
        raise QueryError(f"{subject}: the duration is empty; write for example '10 seconds'")
    return total


def format_duration(microseconds: int) -> str:
    """The shortest exact text of a duration in its largest whole unit.

    >>> format_duration(5_400_000_000)
    '90 minutes'
    """
    for unit, length in reversed(UNITS_US.items()):
        if unit != "week" and microseconds and microseconds % length == 0:
            count = microseconds // length
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "0 seconds"
