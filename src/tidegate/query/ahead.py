"""Tuples from the future: the bound that a stream sets, and what is said of a tuple beyond it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidegate.errors import DataError
from tidegate.query.durations import format_duration
from tidegate.query.nodes import Source

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bound(source: Source, clock: int | None, newest: int | None) -> int | None:
    """The latest event time that a stream may have: ``ahead`` after the clock, or after its newest time; None if any."""
    since = clock if source.ahead_of == "clock" else newest
    return None if since is None or source.ahead_us is None else since + source.ahead_us


def reason(source: Source, time: int, clock: int) -> str:
    """Why a tuple is set aside."""
    return f"'{source.time}' is {show_moment(time)}, {_beyond(source)} the clock ({show_moment(clock)})"


def notice(source: Source, what: str, clock: int) -> str:
    """What is said once about a stream of which something is set aside, such as «row 7 has 2200-01-01 in 'ts'»."""
    return (
        f"stream '{source.name}': {what}, {_beyond(source)} the clock ({show_moment(clock)}); it and its like are set aside "
        "and counted, and move no watermark. If they are meant, allow more, as in tg.stream(..., ahead='2 days'), or all "
        "with ahead=None"
    )


def leap(source: Source, what: str, newest: int) -> DataError:
    """Why the run stops, if the bound is the stream itself."""
    return DataError(
        f"stream '{source.name}': {what}, {_beyond(source)} {show_moment(newest)}, the newest time before it "
        "(ahead_of='stream'). If it is wrong, leave it out; if it is meant, allow more: tg.stream(..., ahead='2 days')"
    )


def micros(moment: datetime) -> int:
    """Microseconds since the epoch; a time without zone is UTC."""
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(microseconds=1)


def show_moment(time: int) -> str:
    """A time in microseconds as people read it, where there is a calendar for it.

    >>> show_moment(1_000_000), show_moment(1_500_000), show_moment(2**62)
    ('1970-01-01 00:00:01', '1970-01-01 00:00:01.500000', '4611686018427387904 µs')
    """
    try:
        return f"{(_EPOCH + timedelta(microseconds=time)).replace(tzinfo=None)}"
    except OverflowError:
        return f"{time} µs"


def _beyond(source: Source) -> str:
    return f"more than {format_duration(source.ahead_us or 0)} after"
