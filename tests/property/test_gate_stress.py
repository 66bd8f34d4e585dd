"""The gate under real threads: sources and readers come and go, and everyone sees one order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tidegate.gate import FlowLimits, Gate, GateAborted, Reader, Segment, SourceSpec
from tidegate.watermark import END

PATIENCE_SECONDS = 60.0


class Threads:
    """Threads of a test: the first error aborts the gate, and none may outlive the test."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)
                self._gate.abort(error)

        thread = threading.Thread(target=guarded, name="tidegate-stress", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        left = [thread for thread in self._threads if thread.is_alive()]
        if left:
            self._gate.abort(TimeoutError("the stress test hangs"))
        assert not left, f"{len(left)} threads hang"


class Tape:
    """What one reader saw: tuples in order, control points, watermarks; begun at some index of the log."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[list[tuple[int, int]], object, int]] = {}

    def record(self, segment: Segment) -> None:
        assert segment.index not in self.seen
        parts = [part for part in segment.batches if part is not None]
        tuples = [pair for part in parts for pair in zip(*(column.to_pylist() for column in part.columns), strict=True)]
        self.seen[segment.index] = (tuples, segment.control, segment.watermark)


def feed(gate: Gate, spec: SourceSpec, numbers: range, seed: int) -> None:
    """Deliver tuples with random steps in time and random batches; some heartbeats; then end."""
    chance = random.Random(seed)
    source = gate.source(spec.name)
    now = max(source.watermark, 0)
    left = list(numbers)
    while left:
        size = chance.choice([1, 3, 40, 200])
        taken, left = left[:size], left[size:]
        times = now + np.cumsum([chance.randrange(3) for _ in taken])
        now = int(times[-1])
        if spec.disorder_us:
            chance.shuffle(shuffled := times[-2:].tolist())
            times[-2:] = shuffled
        source.add(pa.record_batch({"time": times, "number": np.array(taken)}))
        if chance.random() < 0.2:
            now += chance.randrange(20)
            source.advance(now - (spec.disorder_us or 0))
    source.end()


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_readers_and_sources_come_and_go_and_all_see_one_order(seed: int, eager: bool) -> None:
    chance = random.Random(seed)
    limits = FlowLimits(log_rows=500, unready_rows=500)
    keeper = SourceSpec("keeper")
    first = [SourceSpec(f"first{place}", disorder_us=place % 2 * 5) for place in range(3)]
    gate = Gate(
        [keeper, *first],
        ["r0", "r1"],
        segment_rows=100,
        limits=limits,
        linger_seconds=0.0005 * (seed // 2),
        eager=eager,
    )
    threads = Threads(gate)
    tapes: dict[str, Tape] = {}
    per_source, fresh, controls = 3_000, 6, 12
    pace = threading.Event()

    def read(reader: Reader, adds: int) -> None:
        own = random.Random(f"{seed} {reader.name}")
        tape = tapes[reader.name]
        for segment in reader:
            tape.record(segment)
            segment.derive("rows", lambda it: it.rows)
            if adds and own.random() < 0.1:
                adds -= 1
                name = f"{reader.name}.{adds}"
                tapes[name] = Tape()
                assert gate.add_readers([name], by=reader)
                added = gate.reader(name)
                threads.start(lambda added=added: read(added, 0))
            if "." in reader.name and own.random() < 0.02:
                assert gate.remove_readers([reader.name])

    def reconfigure() -> None:
        for epoch in range(controls):
            gate.append_control(epoch)
            pace.wait(0.002)

    def come_later() -> None:
        for place in range(fresh):
            spec = SourceSpec(f"fresh{place}")
            assert gate.add_sources([spec])
            start = (len(first) + place) * per_source
            threads.start(lambda spec=spec, start=start: feed(gate, spec, range(start, start + per_source), start))
            pace.wait(chance.random() * 0.01)
        gate.source("keeper").end()

    # The keeper holds the input open until the last source has come; it promises far ahead, so it holds back nobody.
    gate.source("keeper").advance(END - 1)
    for name in ("r0", "r1"):
        tapes[name] = Tape()
        threads.start(lambda name=name: read(gate.reader(name), 4))
    for place, spec in enumerate(first):
        numbers = range(place * per_source, (place + 1) * per_source)
        threads.start(lambda spec=spec, numbers=numbers: feed(gate, spec, numbers, numbers.start))
    threads.start(reconfigure)
    threads.start(come_later)
    threads.join()
    assert not threads.errors
    _compare(tapes, per_source * (len(first) + fresh), controls)


def _compare(tapes: dict[str, Tape], tuples: int, controls: int) -> None:
    whole = tapes["r0"].seen
    assert tapes["r1"].seen == whole
    assert list(whole) == list(range(len(whole))), "in the order of the log, without a gap"
    for tape in tapes.values():
        indices = list(tape.seen)
        assert all(after == before + 1 for before, after in pairwise(indices))
        assert all(tape.seen[index] == whole[index] for index in indices)
    numbers = sorted(number for part, _, _ in whole.values() for _, number in part)
    assert numbers == list(range(tuples)), "each tuple once"
    times = [time for part, _, _ in whole.values() for time, _ in part]
    assert times == sorted(times)
    watermarks = [watermark for _, _, watermark in whole.values()]
    assert watermarks == sorted(watermarks) and watermarks[-1] == END
    assert [control for _, control, _ in whole.values() if control is not None] == list(range(controls))


def test_an_abort_in_the_middle_wakes_everyone() -> None:
    gate = Gate(["a", "b", "silent"], ["r0", "r1"], limits=FlowLimits(unready_rows=50))
    threads = Threads(gate)
    outcomes: list[str] = []
    pace = threading.Event()

    def told(work: Callable[[], None]) -> None:
        try:
            work()
        except GateAborted as error:
            outcomes.append(type(error.__cause__).__name__)

    for name in ("a", "b"):
        spec = SourceSpec(name)
        threads.start(lambda spec=spec: told(lambda: feed(gate, spec, range(1000), 1)))
    for name in ("r0", "r1"):
        threads.start(lambda name=name: told(lambda: [None for _ in gate.reader(name)] and None))
    while not all(gate.source(name).blocked.waiting for name in ("a", "b")):
        pace.wait(0.001)
    gate.abort(ZeroDivisionError("an instance failed"))
    threads.join()
    assert outcomes == ["ZeroDivisionError"] * 4 and not threads.errors


def test_an_error_in_a_reader_ends_the_run() -> None:
    gate = Gate(["a"], ["r0", "r1"], segment_rows=10, limits=FlowLimits(log_rows=20))
    threads = Threads(gate)

    def fails() -> None:
        for segment in gate.reader("r0"):
            if segment.index == 5:
                raise ValueError("five")

    def reads() -> None:
        for _ in gate.reader("r1"):
            pass

    threads.start(fails)
    threads.start(reads)
    threads.start(lambda: feed(gate, SourceSpec("a"), range(5000), 3))
    threads.join()
    causes = [error if isinstance(error, ValueError) else error.__cause__ for error in threads.errors]
    assert len(causes) == 3 and {str(cause) for cause in causes} == {"five"}
