"""The gate against a plain model: any interleaving of calls, one thread, every guarantee after every step.

The model keeps, for each source, its tuples and how far it has got, and for each reader what it must get: tuples that are
ready, in order of time, each once, from the place where the reader came in, with control points where they were put.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.kit.effort import examples
from tidegate.errors import DataError, UserError
from tidegate.gate import FlowLimits, Gate, Reader, Segment, SourceSpec
from tidegate.watermark import END, START

BOUND_US = 4
ROOMY = FlowLimits(log_rows=10**9, log_bytes=10**12, unready_rows=10**9, unready_bytes=10**12)


@dataclass
class ModelSource:
    """What a source has promised and what of it has not been handed out."""

    input: int
    disorder: int
    reached: int
    held: list[tuple[int, int]] = field(default_factory=list)  # (time, number of the tuple)
    open: bool = True


@dataclass
class ModelReader:
    """What a reader has got: the place in the model's stream, its last watermark, and the late tuples."""

    position: int
    watermark: int = START
    late: list[int] = field(default_factory=list)


class GateMachine(RuleBasedStateMachine):
    """Drives gate and model side by side; the model's stream is what every reader must see."""

    @initialize(
        segment_rows=st.integers(1, 6),
        disorders=st.lists(st.sampled_from([0, 0, BOUND_US]), min_size=1, max_size=3),
    )
    def begin(self, segment_rows: int, disorders: list[int]) -> None:
        self.late: list[int] = []
        self.numbers = 0
        self.made = 0
        self.sources: dict[str, ModelSource] = {}
        self.drained: list[ModelSource] = []
        self.readers = {"r0": ModelReader(0), "r1": ModelReader(0)}
        self.handles: dict[str, Reader] = {}
        # The stream so far, tuples and control points. Readers walk along it.
        self.stream: list[tuple[str, int, int, int]] = []  # (kind, time, input, number)
        self.watermark = START
        self.ended = False
        self.written = 0
        specs = [self._new_spec(disorder) for disorder in disorders]
        self.gate = Gate(
            specs,
            list(self.readers),
            inputs=2,
            segment_rows=segment_rows,
            limits=ROOMY,
        )
        for spec in specs:
            self._open(spec, START)
        self.handles = {name: self.gate.reader(name) for name in self.readers}

    def _new_spec(self, disorder: int) -> SourceSpec:
        self.made += 1
        return SourceSpec(f"s{self.made}", input=self.made % 2, disorder_us=disorder)

    def _open(self, spec: SourceSpec, reached: int) -> None:
        assert spec.disorder_us is not None
        self.sources[spec.name] = ModelSource(spec.input, spec.disorder_us, reached)

    # What the model says is ready.

    def _model_watermark(self) -> int:
        return max(min((source.reached for source in self.sources.values()), default=END), self.watermark)

    def _follow(self) -> None:
        """The gate may write whenever it likes, but then all that is ready; the model does the same."""
        if self.gate.log.written > self.written:
            self._settle()
            self.written = self.gate.log.written

    def _settle(self) -> None:
        """Hand out, in the model, all that is ready."""
        reached = self._model_watermark()
        ready: list[tuple[str, int, int, int]] = []
        for source in [*self.drained, *self.sources.values()]:
            out = [one for one in source.held if one[0] <= reached]
            source.held = [one for one in source.held if one not in out]
            ready += [("tuple", time, source.input, number) for time, number in out]
        self.stream += sorted(ready, key=lambda one: (one[1], one[2]))
        self.watermark = reached
        self.ended = not self.sources

    def _has_ready(self) -> bool:
        reached = self._model_watermark()
        return reached > self.watermark or any(
            time <= reached for source in [*self.drained, *self.sources.values()] for time, _ in source.held
        )

    # Calls.

    @precondition(lambda self: self.sources)
    @rule(data=st.data(), steps=st.lists(st.integers(0, 5), max_size=6), back=st.integers(0, 2 * BOUND_US))
    def add(self, data: st.DataObject, steps: list[int], back: int) -> None:
        name, source = data.draw(st.sampled_from(sorted(self.sources.items(), key=lambda item: item[0])))
        base = 0 if source.reached == START else source.reached
        if source.disorder == 0:
            times = [int(time) for time in base + np.cumsum(steps, dtype=np.int64)]
        else:
            times = [base - back + source.disorder + step * (1 if place % 2 else 2) for place, step in enumerate(steps)]
        numbers = list(range(self.numbers, self.numbers + len(times)))
        self.numbers += len(times)
        written = self.gate.watermark
        self.gate.source(name).add(_batch(times, numbers))
        self.late += [number for time, number in zip(times, numbers, strict=True) if time < written]
        source.held += [(time, number) for time, number in zip(times, numbers, strict=True) if time >= written]
        if times:
            source.reached = max(source.reached, max(times) - source.disorder)
        self._follow()

    @precondition(lambda self: any(s.disorder == 0 and s.reached > START for s in self.sources.values()))
    @rule(data=st.data(), back=st.integers(1, 5))
    def add_below_the_watermark(self, data: st.DataObject, back: int) -> None:
        able = [name for name, s in sorted(self.sources.items()) if s.disorder == 0 and s.reached > START]
        name = data.draw(st.sampled_from(able))
        with pytest.raises(DataError, match=name):
            self.gate.source(name).add(_batch([self.sources[name].reached - back], [-1]))

    @precondition(lambda self: self.sources)
    @rule(data=st.data(), step=st.integers(-3, 8))
    def heartbeat(self, data: st.DataObject, step: int) -> None:
        name, source = data.draw(st.sampled_from(sorted(self.sources.items(), key=lambda item: item[0])))
        promised = (0 if source.reached == START else source.reached) + step
        self.gate.source(name).advance(promised)
        source.reached = max(source.reached, promised)
        self._follow()

    @precondition(lambda self: not self.ended and len(self.sources) < 5)
    @rule(disorder=st.sampled_from([0, 0, BOUND_US]), ahead=st.none() | st.integers(-3, 5), count=st.integers(1, 2))
    def add_sources(self, disorder: int, ahead: int | None, count: int) -> None:
        specs = [self._new_spec(disorder) for _ in range(count)]
        if not self.sources:
            with pytest.raises(UserError, match="the input has ended"):
                self.gate.add_sources(specs)
            self._follow()
            return
        reached = self._model_watermark()
        asked = START if ahead is None else (0 if reached == START else reached) + ahead
        assert self.gate.add_sources(specs, watermark=asked)
        self._follow()
        assert self.watermark == reached, "what was ready is written before the new sources take part"
        assert not self.gate.add_sources(specs, watermark=asked), "they are there already"
        for spec in specs:
            self._open(spec, max(asked, reached))
            assert self.gate.source(spec.name).watermark == self.sources[spec.name].reached

    @precondition(lambda self: self.sources)
    @rule(data=st.data(), by_end=st.booleans())
    def remove_source(self, data: st.DataObject, by_end: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.sources)))
        handle = self.gate.source(name)
        if by_end:
            handle.end()
        else:
            assert self.gate.remove_sources([name])
        assert not self.gate.remove_sources([name]), "it is gone already"
        self.drained.append(self.sources.pop(name))
        self._follow()
        with pytest.raises(UserError, match="ended or was removed"):
            handle.add(_batch([10**6], [-1]))

    @precondition(lambda self: len(self.readers) < 6)
    @rule(data=st.data())
    def add_readers(self, data: st.DataObject) -> None:
        by = data.draw(st.sampled_from(sorted(self.readers)))
        self.made += 1
        name = f"r{self.made + 10}"
        assert self.gate.add_readers([name], by=self.handles[by])
        assert not self.gate.add_readers([name], by=self.handles[by])
        self.readers[name] = ModelReader(
            self.readers[by].position, self.readers[by].watermark, list(self.readers[by].late)
        )
        self.handles[name] = self.gate.reader(name)

    @precondition(lambda self: len(self.readers) > 1)
    @rule(data=st.data())
    def remove_reader(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.readers)))
        assert self.gate.remove_readers([name])
        assert not self.gate.remove_readers([name])
        del self.readers[name]
        handle = self.handles.pop(name)
        assert handle.get() is None and handle.finished

    @precondition(lambda self: self.sources)
    @rule(payload=st.integers(0, 100))
    def control(self, payload: int) -> None:
        self.gate.append_control(payload)
        self._follow()
        self.stream.append(("control", self.watermark, -1, payload))

    @rule(data=st.data(), segments=st.integers(1, 4))
    def get(self, data: st.DataObject, segments: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.readers)))
        for _ in range(segments):
            if not self._get(name):
                break

    def _get(self, name: str) -> bool:
        """Get one segment and compare it with the next stretch of the model's stream."""
        segment = self.handles[name].get(0)
        self._follow()
        reader = self.readers[name]
        if segment is None:
            assert reader.position == len(self.stream) and not self._has_ready(), "nothing came although it was ready"
            assert self.handles[name].finished == self.ended
            return False
        assert segment.since == reader.watermark <= segment.watermark
        reader.watermark = segment.watermark
        if segment.control is not None:
            assert self.stream[reader.position] == ("control", segment.watermark, -1, segment.control)
            reader.position += 1
            return True
        tuples = _tuples(segment)
        got = [one for one in tuples if one[0] >= segment.since]
        assert all(segment.since <= time <= segment.watermark for time, _, _ in got)
        reader.late += [number for time, _, number in tuples if time < segment.since]
        expected = self.stream[reader.position : reader.position + len(got)]
        assert [("tuple", time, place) for time, place, _ in got] == [one[:3] for one in expected]
        reader.position += len(got)
        return True

    @invariant()
    def nothing_is_handed_out_before_it_is_ready(self) -> None:
        if hasattr(self, "gate"):
            assert self.gate.watermark == self.watermark <= self._model_watermark()

    def teardown(self) -> None:
        """End the input: every reader gets all that is left, and each tuple was handed out or late, once."""
        if not hasattr(self, "gate"):
            return
        for name in list(self.sources):
            self.gate.source(name).end()
            self.drained.append(self.sources.pop(name))
            self._follow()
        for name in self.readers:
            while self._get(name):
                pass
            assert self.readers[name].position == len(self.stream)
            assert self.handles[name].finished
            assert sorted(self.readers[name].late) == sorted(self.late)
        out = [one[3] for one in self.stream if one[0] == "tuple"]
        assert sorted(out + self.late) == list(range(self.numbers))


def _batch(times: list[int], numbers: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"time": np.array(times, np.int64), "number": np.array(numbers, np.int64)})


def _tuples(segment: Segment) -> list[tuple[int, int, int]]:
    """Time, input and number of a segment's tuples, in canonical order."""
    columns = [(place, part.to_pydict()) for place, part in enumerate(segment.batches) if part is not None]
    found = [
        (time, place, number)
        for place, values in columns
        for time, number in zip(values["time"], values["number"], strict=True)
    ]
    return sorted(found, key=lambda one: one[:2])


TestGateModel = GateMachine.TestCase
TestGateModel.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
