"""The windows of an `apply` in tuple form whose functions are compiled: loops over settled contributions.

Slots are what they are without: Python's values. A loop works on columns of the slots that contributions touch, which are
loaded before and written after it. A contribution that a loop leaves to Python is handed to the function with the state
before it, and so are those after it while loops get no further than that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from tidegate.operators.arriving_tuples import Contribution
from tidegate.operators.columns import Array
from tidegate.operators.keyed_slots import ShardSlots, TupleSlots, in_order
from tidegate.operators.settling import Settled, Settling
from tidegate.operators.state_columns import TextNumbers, as_arrays
from tidegate.operators.touched_slots import TouchedSlots
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import KeyedApply
from tidegate.query.translated.program import LoopProgram, Translated, translated
from tidegate.watermark import has_ended

LOG = logging.getLogger("tidegate.apply")
COMPILE_AFTER = 20_000
"""Contributions that Python takes about as long for as compiling does."""
LEAST_BATCH = 64
"""Contributions for which loading and writing columns costs less than calling the functions."""
TRY_FOR = 10_000
"""Contributions after which a loop that leaves half of them to Python is given up."""


@dataclass(slots=True)
class LoopTally:
    """How many contributions came to the functions of a loop, went into it, and were left to Python."""

    seen: int = 0
    tried: int = 0
    left: int = 0
    given_up: bool = False


_translated: WeakKeyDictionary[TupleForm, Translated] = WeakKeyDictionary()
_tallies: dict[str, LoopTally] = {}


def tuple_slots(node: KeyedApply, waiting: Settling, shards: tuple[ShardSlots, ...], form: TupleForm) -> TupleSlots:
    """The slots of an `apply` in tuple form, before its first tuple."""
    programs = _translated.get(form)
    if programs is None:
        programs = _translated[form] = translated(node)
    if programs.update is None:
        return InterpretedSlots(node, waiting, shards, form, programs.obstacles)
    return CompiledSlots(node, waiting, shards, form, programs, programs.update)


def _tally(of: str) -> LoopTally:
    return _tallies.setdefault(of, LoopTally())


@dataclass(frozen=True)
class InterpretedSlots(TupleSlots):
    """Those of functions that are not compiled; says so, once it matters."""

    obstacles: tuple[str, ...]

    def prepare(self, settled: Settled) -> dict[int, Iterator[Contribution]]:
        tally = _tally("; ".join((self.node.name, *self.obstacles)))
        tally.seen += settled.size
        if tally.seen >= COMPILE_AFTER and not tally.given_up:
            tally.given_up = True
            LOG.info("step '%s': its functions are interpreted, since %s", self.node.name, "; ".join(self.obstacles))
        return super().prepare(settled)


@dataclass(frozen=True, slots=True)
class TupleColumns:
    """The columns of settled tuples that a loop reads, by its parameters, and the codes of their texts."""

    arrays: dict[str, Any]
    codes: TextNumbers


@dataclass(frozen=True)
class CompiledSlots(TupleSlots):
    """The windows of an `apply` whose ``update`` is compiled, and ``output`` if it can be."""

    programs: Translated
    program: LoopProgram

    def prepare(self, settled: Settled) -> Any:
        """Contributions for Python, until there were enough of them; from then on columns."""
        tally = _tally(self.program.source)
        tally.seen += settled.size
        few = settled.size < LEAST_BATCH or tally.seen < COMPILE_AFTER
        if few or tally.given_up or not self._holds():
            return super().prepare(settled)
        codes = TextNumbers()
        for program in filter(None, (self.program, self.programs.output)):
            for text in program.texts:
                codes.code(text)
        arrays: dict[str, Any] = {}
        for at in self.program.columns:
            column = settled.tuples[0].column(at)
            values, there = as_arrays(column, codes)
            whole = column.null_count == 0
            arrays |= {f"C{at}": values, f"C{at}_there": np.ones(1, np.bool_) if whole else there}
            arrays[f"C{at}_mask"] = 0 if whole else -1
        return TupleColumns(arrays, codes)

    def _holds(self) -> bool:
        """Whether constants are those for which the functions were compiled."""
        update, output = self.programs.update, self.programs.output
        holds = update is None or (self.form.update is not None and update.still_holds(self.form.update))
        return holds and (output is None or (self.form.output is not None and output.still_holds(self.form.output)))

    def process(self, settled: Settled, prepared: Any, owned: Array | None) -> Iterator[pa.Table]:
        if not isinstance(prepared, TupleColumns):
            yield from super().process(settled, prepared, owned)
            return
        mine = self._owned(owned)
        touched = TouchedSlots.of(self, settled, owned, prepared.codes.copy())
        results = [touched.update(prepared.arrays)] if touched.contributions else []
        self._count(touched)
        results.append(touched.output())
        touched.write(mine)
        if has_ended(settled.watermark):
            for shard in mine:
                shard.clear()
        yield from in_order(results, self.node.schema)

    def _count(self, touched: TouchedSlots) -> None:
        """Give the loop up if it leaves most contributions to Python."""
        tally = _tally(self.program.source)
        tally.tried += touched.contributions
        tally.left += touched.left
        often = tally.tried >= TRY_FOR and 2 * tally.left > tally.tried
        if (often or touched.broken) and not tally.given_up:
            tally.given_up = True
            why = touched.broken or f"{tally.left} of {tally.tried} contributions were beyond what is compiled"
            LOG.warning("step '%s': update is interpreted from now on: %s", self.node.name, why)
