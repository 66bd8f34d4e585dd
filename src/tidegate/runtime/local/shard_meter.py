"""Measures the load of each shard: how many tuples it gets, and which key of the busiest one comes most often.

Where shards are known anyway every tuple is counted. Elsewhere finding a tuple's shard would cost about as much as
aggregating it, so samples are taken, as many as one part in a hundred of the work allows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.control.observation import HotKey
from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array
from tidegate.operators.keys import key_codes, key_hashes, key_sets, shards_of
from tidegate.query.keys import KeyFunction, Keys

BUDGET = 0.01
"""The share of the time at work that samples may take."""
SAMPLE_ROWS = 1_024
SAMPLES_KEPT = 16
"""So many samples are taken together, as segments may be small, to name the key that comes most often too."""
LONGEST_KEY = 80


@dataclass(frozen=True, slots=True)
class KeySample:
    """The keys of so many tuples, and the shard of each key."""

    rows: int
    columns: tuple[pa.Array, ...]
    shards: Array


@dataclass(slots=True, eq=False)
class ShardMeter:
    """Counts the tuples of each shard, once for each of its keys there; called from any thread.

    It is off until something observes the query. ``counts`` only grows but for the part that no sample stands for yet,
    which is spread as the last samples were.
    """

    on: bool = False
    clock: Callable[[], float] = time.perf_counter
    _counts: Array = field(default_factory=lambda: np.zeros(SHARDS))
    _spread: Array = field(default_factory=lambda: np.zeros(SHARDS))
    _unsampled: int = 0
    _spent_seconds: float = 0.0
    _samples: deque[KeySample] = field(default_factory=lambda: deque(maxlen=SAMPLES_KEPT))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, columns: Sequence[pa.Array], shards: Array, busy_seconds: float) -> None:
        """Count tuples whose shards are known; ``busy_seconds`` is the work done so far by all instances."""
        if not self.on or not len(shards):
            return
        counted = np.bincount(shards, minlength=SHARDS)
        with self._lock:
            self._counts += counted
        if self._may_spend(busy_seconds):
            began = self.clock()
            kept = _spaced(len(shards))
            self._keep(
                KeySample(len(kept), tuple(column.take(pa.array(kept)) for column in columns), shards[kept]), began
            )

    def sample(self, keys: Keys, rows: pa.Table, busy_seconds: float) -> None:
        """Count tuples whose shards are not known, from some of them; most calls only add up how many there are.

        A user's own function of keys is not called a second time, so nothing is known of its shards.
        """
        if not self.on or not rows.num_rows or isinstance(keys, KeyFunction):
            return
        with self._lock:
            self._unsampled += rows.num_rows
        if not self._may_spend(busy_seconds):
            return
        began = self.clock()
        taken = rows.take(pa.array(_spaced(rows.num_rows)))
        columns = key_sets(keys, taken).columns
        shards = shards_of(key_hashes(columns), SHARDS) if len(columns[0]) else np.empty(0, np.int64)
        self._keep(KeySample(taken.num_rows, columns, shards), began)
        samples = tuple(self._samples)
        found = np.bincount(np.concatenate([sample.shards for sample in samples]), minlength=SHARDS)
        spread = found / sum(sample.rows for sample in samples)
        with self._lock:
            self._counts += spread * self._unsampled
            self._spread, self._unsampled = spread, 0

    @property
    def counts(self) -> Array | None:
        """Tuples of each shard until now; None while nothing is known."""
        with self._lock:
            found = self._counts + self._spread * self._unsampled
        return found if found.any() else None

    def hot_key(self, shard: int) -> HotKey | None:
        """The key of a shard that comes most often, as far as the last samples tell."""
        samples = tuple(self._samples)
        total = sum(len(sample.shards) for sample in samples)
        found = [(sample, np.flatnonzero(sample.shards == shard)) for sample in samples]
        parts = [[column.take(pa.array(at)) for column in sample.columns] for sample, at in found if len(at)]
        if not parts:
            return None
        columns = [pa.concat_arrays([_plain(part[place]) for part in parts]) for place in range(len(parts[0]))]
        _, first, times = np.unique(key_codes(columns)[0], return_index=True, return_counts=True)
        most = int(np.argmax(times))
        values = tuple(column[int(first[most])].as_py() for column in columns)
        text = repr(values if len(values) > 1 else values[0])
        text = text if len(text) <= LONGEST_KEY else f"{text[: LONGEST_KEY - 1]}…"
        return HotKey(shard, text, int(times[most]) / total)

    def _may_spend(self, busy_seconds: float) -> bool:
        return self._spent_seconds <= BUDGET * busy_seconds

    def _keep(self, sample: KeySample, began: float) -> None:
        # The first one may have compiled loops, which says nothing about the next.
        first = not self._samples
        self._samples.append(sample)
        with self._lock:
            self._spent_seconds += 0.0 if first else self.clock() - began


def _spaced(rows: int) -> Array:
    """Places among some rows, `SAMPLE_ROWS` at most, at even distances."""
    return np.arange(0, rows, max(1, -(-rows // SAMPLE_ROWS)))


def _plain(column: pa.Array) -> pa.Array:
    """A column without a dictionary: those of two samples differ."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
