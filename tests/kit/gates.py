"""Small batches for a gate, and what a reader got, as plain lists."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from tidegate.gate import Reader, Segment

PATIENCE_SECONDS = 30.0


def batch(*times: int, tag: str = "") -> pa.RecordBatch:
    """Rows with these times and a tag that says where they come from."""
    return pa.record_batch(
        {"time": pa.array(np.array(times, np.int64)), "tag": pa.array([tag] * len(times), pa.string())}
    )


def times(segment: Segment | None, place: int = 0) -> list[int]:
    """The times of the rows a segment has of an input, late ones left out."""
    assert segment is not None
    found = segment.batches[place]
    return [] if found is None else [time for time in found.column("time").to_pylist() if time >= segment.since]


def rows(segment: Segment | None, place: int = 0) -> list[tuple[int, str]]:
    """Time and tag of the rows a segment has of an input."""
    assert segment is not None
    found = segment.batches[place]
    return [] if found is None else [(row["time"], row["tag"]) for row in found.to_pylist()]


def late_times(segment: Segment | None, place: int = 0) -> list[int]:
    """The times of the late rows a segment has of an input."""
    assert segment is not None
    found = segment.batches[place]
    return [] if found is None else [time for time in found.column("time").to_pylist() if time < segment.since]


def waiting(reader: Reader) -> list[Segment]:
    """All that a reader can get without waiting."""
    return list(iter(lambda: reader.get(0), None))


def all_times(reader: Reader, place: int = 0) -> list[int]:
    """The times of all rows a reader can get without waiting."""
    return [time for segment in waiting(reader) for time in times(segment, place)]


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[list[object]]:
    """Run something beside the test; joined at the end, its result or its exception in the list."""
    outcome: list[object] = []

    def target() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=target, name="tidegate-test", daemon=True)
    thread.start()
    yield outcome
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the thread still waits"


def until(holds: Callable[[], bool]) -> None:
    """Give other threads the floor until something holds."""
    ticks = threading.Event()
    for _ in range(int(PATIENCE_SECONDS * 1000)):
        if holds():
            return
        ticks.wait(0.001)
    raise AssertionError("it never came to hold")
