"""The stores of an `apply` cell: one log of entries for each, beside the log of windows.

A batch reads the entries of the windows it touches and appends those that were put or removed, so what it writes does not
grow with a store. Entries are decoded when a function first asks a store for something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.keyed_slots import FOREVER, KeyedSlots, StoredWindow
from tidegate.operators.keys import key_codes
from tidegate.operators.log_rows import ALIVE, NUMBER, VALUE, LogRows, entry_rows, table_of_rows
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import InOrder, KeyedApply
from tidegate.query.schema import contiguous
from tidegate.query.stores import Store, StoreType
from tidegate.watermark import Watermark

if TYPE_CHECKING:
    from tidegate.operators.keyed_apply_cell import WindowLog

Identity = Callable[[tuple[Any, ...]], Any]
Place = tuple[int, Any]
"""Whose entries they are: the number they go under, and what identifies the key."""


def declared_stores(node: InOrder) -> Mapping[str, StoreType]:
    """The stores of a window, by name."""
    form = node.form if isinstance(node, KeyedApply) else None
    return form.stores if isinstance(form, TupleForm) else {}


def entry_number(node: InOrder, window: StoredWindow) -> int:
    """The number under which the entries of a window go."""
    return window.number if isinstance(node, KeyedApply) and not node.single else FOREVER


@dataclass(frozen=True)
class StoreLogs:
    """Reads and writes the stores of windows; ``log`` opens the log of some rows."""

    node: InOrder
    log: Callable[[LogRows], WindowLog]

    def load(self, windows: list[StoredWindow], hashes: Array, identity: Identity) -> list[StoredWindow]:
        """Windows with their stores, given the hash of each one's key."""
        declared = declared_stores(self.node)
        if not declared or not windows:
            return windows
        places = [(entry_number(self.node, window), identity(window.key)) for window in windows]
        stores: list[dict[str, Store]] = [{} for _ in windows]
        wanted = np.unique(hashes)
        for position, (name, of) in enumerate(declared.items()):
            rows = entry_rows(self.node, position, of)
            found, none = self._entries(rows, wanted, identity), rows.schema.empty_table().select([*rows.apart, VALUE])
            for window, place, into in zip(windows, places, stores, strict=True):
                owner = window.key if len(window.key) > 1 else window.key[0]
                into[name] = Store(name, of, owner, found.get(place, none))
        return [replace(window, stores=into) for window, into in zip(windows, stores, strict=True)]

    def keep(self, windows: KeyedSlots, loaded: Sequence[StoredWindow], watermark: Watermark) -> None:
        """Append the entries that have changed, and what is no more of windows that are gone."""
        for position, (name, of) in enumerate(declared_stores(self.node).items()):
            log = self.log(entry_rows(self.node, position, of))
            before = {(entry_number(self.node, one), windows.identity(one.key)): one for one in loaded}
            changed: list[tuple[Any, ...]] = []
            gone: list[pa.Table] = []
            for stored in windows.stored():
                number = entry_number(self.node, stored)
                was, now = before.pop((number, windows.identity(stored.key)), None), stored.stores[name]
                if was is not None and was.stores[name] is not now:
                    gone.append(_removed(log.rows, number, was, name))
                changed += [(number, alive, *stored.key, *key, value) for key, alive, value in now.changes()]
            for was in before.values():
                if log.end(entry_number(self.node, was)) > watermark:
                    gone.append(_removed(log.rows, entry_number(self.node, was), was, name))
            log.append_and_expire(pa.concat_tables([*gone, table_of_rows(changed, log.rows.schema)]), watermark)

    def _entries(self, rows: LogRows, wanted: Array, identity: Identity) -> dict[Place, pa.Table]:
        """The entries of keys with some hashes, by place: their keys and values."""
        table = self.log(rows).alive(wanted)
        if not table.num_rows:
            return {}
        codes, _ = key_codes([contiguous(table.column(name)) for name in rows.keys])
        numbers = as_numpy(table.column(NUMBER))
        order = np.lexsort((numbers, codes))
        codes, numbers = codes[order], numbers[order]
        first = np.flatnonzero(np.append(True, (codes[1:] != codes[:-1]) | (numbers[1:] != numbers[:-1])))
        heads = table.take(pa.array(order[first]))
        keys = zip(*(heads.column(name).to_pylist() for name in rows.keys), strict=True)
        entries = table.select([*rows.apart, VALUE]).take(pa.array(order))
        bounds = zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True)
        return {
            (number, identity(key)): entries.slice(low, high - low)
            for number, key, (low, high) in zip(numbers[first].tolist(), keys, bounds, strict=True)
        }


def _removed(rows: LogRows, number: int, window: StoredWindow, name: str) -> pa.Table:
    """Rows that say of every entry a window had when it was read that it is no more."""
    kept = window.stores[name].kept
    assert kept is not None
    key = dict(zip(rows.keys, window.key, strict=True))
    columns = []
    for field in rows.schema:
        if field.name in rows.apart:
            columns.append(contiguous(kept.column(field.name)))
        else:
            value = {NUMBER: number, ALIVE: False, **key}.get(field.name)
            columns.append(pa.repeat(pa.scalar(value, field.type), kept.num_rows))
    return pa.table(columns, schema=rows.schema)
