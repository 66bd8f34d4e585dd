"""The state of an `apply`, and the order in which instances that share it change its shards."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from tidegate.operators.cells import SHARDS
from tidegate.operators.column_slots import ColumnSlots
from tidegate.operators.columns import Array
from tidegate.operators.keyed_slots import KeyedSlots, ShardSlots, TupleSlots
from tidegate.operators.settling import Settling
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import KeyedApply


def slots_of(node: KeyedApply, cells: int = 1, cell: int = 0) -> KeyedSlots:
    """The state of an `apply` before the first tuple; where there are several ``cells``, that of one of them."""
    waiting, shards = Settling(node, SHARDS, cells, cell), tuple(ShardSlots() for _ in range(SHARDS))
    if isinstance(node.form, TupleForm):
        return TupleSlots(node, waiting, shards, node.form)
    return ColumnSlots(node, waiting, shards, node.form)


@dataclass(slots=True, eq=False)
class ShardSequencer:
    """Applies what is settled to each shard in the order of the log, by one instance at a time.

    After a reconfiguration a shard has another owner, which may be further in the log than the old one. It waits until the
    old one has done all turns before; no instance waits for more than that, and no state moves.
    """

    shards: int
    _taken: Array = field(init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _aborted: bool = False

    def __post_init__(self) -> None:
        self._taken = np.full(self.shards, -1, np.int64)

    def wait(self, turn: int, owned: Array | None) -> bool:
        """Wait until the shards of an owner (None: all) have seen every turn before; False if the run has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._aborted or self._ready(turn, owned))
            return not self._aborted

    def done(self, turn: int, owned: Array | None) -> None:
        """Note that an owner has done its turn."""
        with self._changed:
            self._taken[slice(None) if owned is None else owned] = turn
            self._changed.notify_all()

    def abort(self) -> None:
        """Wake all instances that wait: the run has failed."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def _ready(self, turn: int, owned: Array | None) -> bool:
        return bool((self._taken if owned is None else self._taken[owned]).min(initial=turn - 1) >= turn - 1)
