"""The slots that settled contributions touch, as columns, and the loops that go over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.operators.columns import Array
from tidegate.operators.keyed_slots import FOREVER, ShardSlots, Slot, spread
from tidegate.operators.keys import group, key_codes
from tidegate.operators.settling import Settled
from tidegate.operators.state_columns import StateColumns, TextNumbers, as_arrays, as_column, dtype_of
from tidegate.query.forms import KeyedWindow, arrived
from tidegate.query.translated.program import LoopProgram
from tidegate.query.user_functions import Record

if TYPE_CHECKING:
    from tidegate.operators.compiled_slots import CompiledSlots

_LONGEST_RUN = 4_096
"""Contributions that are handed to Python at once, where a loop leaves one after the other."""
_NO_WINDOW_AFTER = 2**62


@dataclass(slots=True, eq=False)
class TouchedSlots:
    """The slots that contributions touch, and those that expire, while loops go over them.

    Slots up to ``touched`` have contributions, those behind them only expire. ``held`` are those that were there before,
    ``keys`` the keys of those that were or will be. ``left`` counts the contributions that were left to Python,
    ``broken`` says why the loop could not be compiled, if so.
    """

    slots: CompiledSlots
    settled: Settled
    state: StateColumns
    columns: tuple[pa.Array, ...]
    rows: Array
    times: Array
    slot_of: Array
    first: Array
    numbers: Array
    last: Array
    shards: Array
    expiring: Array
    held: dict[int, Slot]
    keys: dict[int, tuple[Any, ...]]
    alive: Array = field(init=False)
    left: int = 0
    broken: str = ""

    def __post_init__(self) -> None:
        self.alive = np.ones(len(self.numbers), np.bool_)

    @property
    def contributions(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, slots: CompiledSlots, settled: Settled, owned: Array | None, codes: TextNumbers) -> TouchedSlots:
        """The slots of owned shards."""
        entries, node = settled.entries[0], slots.node
        columns, rows, shards = entries.columns, entries.rows, entries.shards
        if owned is not None:
            chosen = np.flatnonzero(owned[shards])
            rows, shards = rows[chosen], shards[chosen]
            columns = tuple(column.take(pa.array(chosen)) for column in columns)
        times = settled.times[0][rows]
        which, windows = spread(node, times)
        times = times[which]
        first = slot_of = np.empty(0, np.int64)
        if len(which):
            key, bound = key_codes(columns)
            low = int(windows.min())
            span = int(windows.max()) - low + 1
            grouped = group(key[which].astype(np.int64) * span + (windows - low), int(bound) * span)
            slot_of, first = grouped.groups.astype(np.int64, copy=False), grouped.first
        numbers, of_key = windows[first], which[first]
        last = np.empty(len(first), np.int64)
        last[slot_of] = times  # contributions are in order: the last one stays
        shard_of = shards[of_key]
        window = node.window
        open_ = -_NO_WINDOW_AFTER if window is None else min(window.first_open(settled.watermark), _NO_WINDOW_AFTER)
        mine = slots._owned(owned)
        opened = sorted({number for shard in mine for number in shard.slots})
        kept = np.flatnonzero((numbers >= open_) | np.isin(numbers, opened))
        taken = pa.array(of_key[kept])
        found = list(zip(*(column.take(taken).to_pylist() for column in columns), strict=True))
        keys = dict(zip(kept.tolist(), found, strict=True))
        held: dict[int, Slot] = {}
        for at, number, shard in zip(kept.tolist(), numbers[kept].tolist(), shard_of[kept].tolist(), strict=True):
            slot = slots.shards[shard].slots.get(number, {}).get(slots.identity(keys[at]))
            if slot is not None:
                held[at] = slot
        # Slots that only expire come behind those with contributions.
        touched = set(map(id, held.values()))
        extra = [
            (number, slot)
            for shard in mine
            for number, there in shard.slots.items()
            if number < open_
            for slot in there.values()
            if id(slot) not in touched
        ]
        for at, (_, slot) in enumerate(extra, start=len(first)):
            held[at], keys[at] = slot, slot.key
        numbers = np.concatenate([numbers, np.array([number for number, _ in extra], np.int64)])
        state = StateColumns(slots.form.states[0], slots.form.initial[0], codes, len(numbers))
        state.load(list(held), [slot.states[0] for slot in held.values()])
        expiring = np.flatnonzero(numbers < open_)
        expiring = expiring[np.argsort(numbers[expiring], kind="stable")]
        return cls(
            slots,
            settled,
            state,
            tuple(column.take(pa.array(of_key)) for column in columns),
            rows[which],
            times,
            slot_of,
            first,
            numbers,
            last,
            shard_of,
            expiring,
            held,
            keys,
        )

    def update(self, columns: dict[str, Any]) -> tuple[Array, pa.Table]:
        """Apply ``update`` to all contributions in order; the times and columns of what it emits."""
        loop = LoopRun(self, self.slots.program, self.slot_of, columns)
        try:
            loop.run(self._interpret)
        except DataError:
            # What fails first is told: windows that end before this contribution come first.
            self.expiring = self.expiring[self.ends()[self.expiring] <= self.times[loop.reached]]
            self.output()
            raise
        self.left, self.broken = loop.left, loop.broken
        of, rows = loop.emitted()
        return self.times[of], rows

    def output(self) -> tuple[Array, pa.Table]:
        """Apply ``output``, if there is one, to the windows that expire; the times and columns of what it emits."""
        if self.slots.form.output is None:
            return np.empty(0, np.int64), self.slots.form.returns.empty_table()
        loop = LoopRun(self, self.slots.programs.output, self.expiring, {})
        loop.run(self._interpret_output)
        of, rows = loop.emitted()
        return self.ends()[self.expiring[of]] - 1, rows

    def write(self, mine: Sequence[ShardSlots]) -> None:
        """Keep the new states of slots that do not expire, and remove those that do, or are retired."""
        gone = set(self.expiring.tolist())
        stay = [at for at in self.keys if at not in gone]
        shards, identity, initial = self.slots.shards, self.slots.identity, self.slots.form.initial
        records = self.state.records(np.array(stay, np.int64))
        for at, record in zip(stay, records, strict=True):
            shard, slot, number = shards[self.shards[at]], self.held.get(at), int(self.numbers[at])
            if self.alive[at]:
                kept = slot or shard.slot(number, identity(self.keys[at]), self.keys[at], initial)
                shard.keep(kept, (record,), record.size, int(self.last[at]))
            elif slot is not None:
                shard.drop(FOREVER, slot)
        expired = set(self.numbers[self.expiring].tolist())
        for shard in mine:
            for number in [number for number in shard.slots if number in expired]:
                shard.pop(number)

    def starts(self) -> Array:
        window = self.slots.node.window
        return self.numbers * (0 if window is None else window.every)

    def ends(self) -> Array:
        window = self.slots.node.window
        return self.starts() + (0 if window is None else window.size)

    def key_arrays(self, part: int) -> tuple[Array, Array]:
        """A part of the key of each slot."""
        extra = [self.keys[at][part] for at in range(len(self.first), len(self.numbers))]
        column = self.columns[part]
        return as_arrays(pa.chunked_array([column, pa.array(extra, column.type)]), self.state.codes)

    def _window(self, at: int, record: Record) -> KeyedWindow:
        key = self.keys.get(at)
        if key is None:
            key = self.keys_of(at)
        window, number = self.slots.node.window, int(self.numbers[at])
        value = key if len(key) > 1 else key[0]
        if window is None:
            return KeyedWindow(value, None, None, (record,), {})
        return KeyedWindow(value, window.start(number), window.end(number), (record,), {})

    def keys_of(self, at: int) -> tuple[Any, ...]:
        return tuple(column[at].as_py() for column in self.columns)

    def _interpret(self, start: int, stop: int) -> Iterator[list[Record]]:
        """Call ``update`` for some contributions; the rows that it emits for each."""
        form, step, tuples = self.slots.form, self.slots.node.name, self.settled.tuples[0]
        places = self.slot_of[start:stop].tolist()
        size, schema = tuples.nbytes // tuples.num_rows, self.slots.node.inputs[0].schema
        values = tuples.take(pa.array(self.rows[start:stop])).to_pylist()
        arriving = arrived(values, schema, size, self.times[start:stop].tolist(), 0)
        for at, one in zip(places, arriving, strict=True):
            (record,) = self.state.records(np.array([at]))
            made = form.updates(step, self._window(at, record), one)
            self.alive[at] = not made.retired
            if made.retired:
                self.state.reset(at)
            elif made.states[0] is not record:
                self.state.load([at], made.states)
            yield made.rows

    def _interpret_output(self, start: int, stop: int) -> Iterator[list[Record]]:
        form, step = self.slots.form, self.slots.node.name
        places = self.expiring[start:stop]
        records = self.state.records(places)
        for at, record in zip(places.tolist(), records, strict=True):
            yield form.outputs(step, self._window(at, record))


class LoopRun:
    """One run of a loop over contributions or windows, with Python for those that it leaves."""

    def __init__(
        self, touched: TouchedSlots, program: LoopProgram | None, places: Array, columns: dict[str, Any]
    ) -> None:
        self._touched, self._program, self._total = touched, program, len(places)
        self._returns, self._codes = touched.slots.form.returns, touched.state.codes
        self._at = np.zeros(2, np.int64)
        self._rows: list[tuple[int, Record]] = []
        self.left = self.reached = 0
        self.broken = ""
        most = 0 if program is None else program.most_rows * self._total
        self._of = np.empty(most, np.int64)
        self._out = [(np.empty(most, dtype_of(f.type)), np.empty(most, np.bool_)) for f in self._returns]
        if program is not None:
            self._arguments = self._given(program, places, columns)

    def _given(self, program: LoopProgram, places: Array, columns: dict[str, Any]) -> list[Any]:
        """The arguments of the loop, in the order of its parameters."""
        touched = self._touched
        given: dict[str, Any] = {"at": self._at, "stop": self._total, "slots": _frozen(places), "of": self._of}
        given |= {"rows": _frozen(touched.rows), "times": _frozen(touched.times), "alive": touched.alive}
        given |= {"starts": _frozen(touched.starts()), "ends": _frozen(touched.ends())}
        given["X"] = _frozen(np.array([self._codes.code(text) for text in program.texts] or [0], np.int64))
        arrays = {"S": touched.state.arrays, "I": touched.state.first, "O": self._out}
        for kind, pairs in arrays.items():
            for at, (values, there) in enumerate(pairs):
                given |= {f"{kind}{at}": values, f"{kind}{at}_there": there}
        for part in program.keys:
            values, there = touched.key_arrays(part)
            given |= {f"K{part}": _frozen(values), f"K{part}_there": _frozen(there)}
        given |= {name: _frozen(each) if isinstance(each, np.ndarray) else each for name, each in columns.items()}
        return [given[name] for name in program.parameters]

    def run(self, interpret: Callable[[int, int], Iterator[list[Record]]]) -> None:
        """Go over all; ``interpret`` takes what the loop leaves, and what is behind it if it often leaves something."""
        if self._program is None:
            self._rows = [(at, row) for at, rows in enumerate(interpret(0, self._total)) for row in rows]
            return
        # Imported here: numba takes a while, and a query can be built without it.
        from numba.core.errors import NumbaError

        from tidegate.operators.kernels import compiled

        loop, longest = compiled(self._program.source), 1
        while self._at[0] < self._total:
            began = int(self._at[0])
            try:
                loop(*self._arguments)
            except NumbaError as error:
                # Compiling comes before anything else, so all is as it was.
                self.broken = str(error)
            start = int(self._at[0])
            if start < self._total:
                longest = min(2 * longest, _LONGEST_RUN) if start - began < longest else 1
                stop = self._total if self.broken else min(start + longest, self._total)
                self.reached = start
                for rows in interpret(start, stop):
                    self._rows.extend((self.reached, row) for row in rows)
                    self.reached += 1
                self.left += stop - start
                self._at[0] = stop

    def emitted(self) -> tuple[Array, pa.Table]:
        """The contribution or window of each row, in their order, and the rows."""
        count, schema = int(self._at[1]), self._returns
        columns = [
            as_column(values[:count], there[:count], f.type, self._codes)
            for (values, there), f in zip(self._out, schema, strict=True)
        ]
        of, table = self._of[:count], pa.table(columns, schema=schema)
        if self._rows:
            others = [pa.array([row[f.name] for _, row in self._rows], f.type) for f in schema]
            of = np.concatenate([of, np.array([at for at, _ in self._rows], np.int64)])
            order = np.argsort(of, kind="stable")
            table = pa.concat_tables([table, pa.table(others, schema=schema)]).take(pa.array(order))
            of = of[order]
        return of, table


def _frozen(array: Array) -> Array:
    """An array that is only read: loops are compiled for such, wherever it comes from."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
