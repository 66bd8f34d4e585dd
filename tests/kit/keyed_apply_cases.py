"""Generated O+ queries: functions of both forms, one to three inputs of their own schemas, every kind of window.

Most functions depend on the order of tuples as much as they can: their state is a hash of all that came before.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA, TIME, WINDOWS
from tests.kit.drawn_streams import DISORDERS_US, cut_batches
from tidegate.query.schema import canonical

# The same tuples under other names, in another order of columns, for inputs after the first.
THREE = ("s0", "s1", "s2")
OTHER = pa.schema(
    [("tags2", pa.list_(pa.string())), ("x2", pa.float64()), ("at", TIME), ("k2", pa.string()), ("n2", pa.int64())]
)
_RENAMED = {"tags": "tags2", "x": "x2", "ts": "at", "k": "k2", "n": "n2"}


def _parity(column: str) -> Any:
    def parity(batch: pa.RecordBatch) -> pa.ListArray:
        values = batch.column(column).to_pylist()
        return pa.array([None if n is None else [n % 2, n % 3] for n in values], pa.list_(pa.int64()))

    return tg.keys(parity, columns={"odd": pa.int64()}, reads=[column])


KEYS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "one column": (("k",), ("k2",)),
    "float column": (("x",), ("x2",)),
    "composite": (("k", "n"), ("k2", "n2")),
    "each": ((tg.each("tags", name="tag"),), (tg.each("tags2", name="tag"),)),
    "each, repeated": (
        (tg.each("tags", name="tag", distinct=False),),
        (tg.each("tags2", name="tag", distinct=False),),
    ),
    "function": ((_parity("n"),), (_parity("n2"),)),
}
HASHED = {"hash": pa.int64(), "seen": pa.int64()}
RESULT = {"what": pa.string(), "key": pa.string(), "value": pa.int64()}


def digest(values: Any, before: int) -> int:
    """A number that depends on all values and on what came before."""
    return zlib.crc32(repr(canonical(values)).encode(), before)


def _row(what: str, window: Any, value: int) -> dict[str, Any]:
    return {"what": what, "key": repr(canonical(window.key)), "value": value}


def hashing(window: Any, arriving: Any) -> Any:
    """State that remembers the order of all tuples; a row for every third."""
    state = window.states[arriving.input]
    made = {"hash": digest([list(arriving.values()), arriving.input], state["hash"]), "seen": state["seen"] + 1}
    states = [made if at == arriving.input else held for at, held in enumerate(window.states)]
    rows = [_row("update", window, made["hash"])] if made["seen"] % 3 == 0 else None
    return tg.updated(*states, rows=rows)


def hash_output(window: Any) -> Any:
    for state in window.states:
        yield _row("output", window, digest([window.start, window.end, state["seen"]], state["hash"]))


def forgetting(window: Any) -> Any:
    """The next state depends on where the window is; now and then it is empty."""
    if digest([window.start], 0) % 4 == 0:
        return tg.updated(*(None for _ in window.states))
    return tg.updated(*({"hash": digest([window.end], s["hash"]), "seen": s["seen"] // 2} for s in window.states))


def stored_output(window: Any) -> Any:
    return [_row(f"stored {at}", window, digest(list(s["tuples"]), 0)) for at, s in enumerate(window.states)]


def matching(window: Any, arriving: Any) -> Any:
    """A join of all inputs by hand: rows for the tuples of other inputs, then the tuple is stored."""
    rows = [
        _row("pair", window, digest([list(other.values()), list(arriving.values())], 0))
        for at, state in enumerate(window.states)
        for other in state["tuples"]
        if at != arriving.input or len(window.states) == 1
    ]
    states = [
        {"tuples": [*held["tuples"], arriving]} if at == arriving.input else held
        for at, held in enumerate(window.states)
    ]
    return tg.updated(*states, rows=rows)


def forwarding(window: Any, arriving: Any) -> Any:
    """STRETCH's operator 6: no state, every tuple once per key."""
    return tg.updated(*(None for _ in window.states), rows=_row("forward", window, digest(list(arriving.values()), 0)))


def retiring(window: Any, arriving: Any) -> Any:
    """Forgets a key that has had three tuples."""
    done = hashing(window, arriving)
    seen = sum(state["seen"] for state in done.states)
    return tg.updated(*done.states, rows=_row("seen", window, seen), retire=seen >= 3)


TICKS = tg.store(key={"x": pa.float64(), "k": pa.string()}, value={"hash": pa.int64(), "tags": pa.list_(pa.string())})
STORES = {"ticks": TICKS, "few": tg.store(key=pa.int64(), value=pa.float64()), "seen": tg.store(key=pa.string())}


def _columns_of(arriving: Any) -> tuple[Any, ...]:
    """The float, text, number and list of a tuple, under the names of either schema."""
    return tuple(arriving[name] if name in arriving else arriving[f"{name}2"] for name in ("x", "k", "n", "tags"))


def storing(window: Any, arriving: Any) -> Any:
    """Puts, gets, removes and reads entries as the tuple says; keys collide, tie, are null, NaN and −0.0."""
    x, k, n, tags = _columns_of(arriving)
    ticks, few, seen = (window.store(name) for name in STORES)
    drawn = digest([x, k, n, tags, arriving.input], 0)
    found = ticks.get((x, k))
    match drawn % 7:
        case 0:
            ticks.remove((x, k))
        case 1 | 2:
            before = 0 if found is None else found["hash"]
            ticks.put((x, k), {"hash": digest([drawn], before), "tags": tags and list(tags)})
        case 3:
            few.put(drawn % 4, x)
        case 4:
            few.remove(drawn % 4)
        case 5:
            seen.put(k)
        case 6 if drawn % 5 == 0:
            few.clear()
        case 6:
            seen.remove(k)
    told = [found, few.get(drawn % 3), few.has(1), seen.has(k), k in seen, len(ticks), len(few)]
    if drawn % 4 == 0:
        told += [ticks.items(), few.items(), list(seen)]
    return tg.updated(rows=_row("stored", window, digest(told, 0)))


def stored_entries(window: Any) -> Any:
    """All entries of all stores, in their order."""
    return _row("entries", window, digest([window.start, *(window.store(name).items() for name in STORES)], 0))


def thinning(window: Any) -> Any:
    """Every other entry goes when the window slides; now and then all."""
    for name in STORES:
        store = window.store(name)
        for at, (key, _) in enumerate(store.items()):
            if at % 2 or digest([window.start], 0) % 3 == 0:
                store.remove(key)


def storing_retired(window: Any, arriving: Any) -> Any:
    """The same, and forgets a key at tuples that say so."""
    done = storing(window, arriving)
    return tg.updated(rows=done.rows, retire=digest(list(_columns_of(arriving)), 1) % 4 == 0)


def column_hashing(batch: Any) -> Any:
    """The same in columnar form, one contribution after the other, with a row for each that came third."""
    states = [list(row.values()) for row in batch.windows.states.to_pylist()]
    tuples = batch.tuples.to_pylist()
    made, of = [], []
    keys = batch.windows.keys.to_pylist()
    for at, (row, slot) in enumerate(zip(batch.rows.to_pylist(), batch.slots.to_pylist(), strict=True)):
        values = [*tuples[row].values(), batch.input, batch.windows.starts[slot].value]
        states[slot] = [digest(values, states[slot][0]), states[slot][1] + 1]
        if states[slot][1] % 3 == 0:
            made.append(("update", repr(canonical(list(keys[slot].values()))), states[slot][0]))
            of.append(at)
    return tg.updated(_columns(states, HASHED), rows=_columns(made, RESULT), of=pa.array(of, pa.int64()))


def column_counting(batch: Any) -> Any:
    """Without a loop; what does not depend on order."""
    slots = np.asarray(batch.slots)
    seen = np.asarray(batch.windows.states["seen"]) + np.bincount(slots, minlength=len(batch.windows))
    # The only number column of either schema.
    name = "n" if "n" in batch.tuples.schema.names else "n2"
    values = np.asarray(batch.column(name).fill_null(7)) % 1000
    total = np.asarray(batch.windows.states["hash"]) + np.bincount(slots, values, len(batch.windows)).astype(np.int64)
    return tg.updated({"seen": seen, "hash": total})


def column_output(slots: Any) -> Any:
    keys = [repr(canonical(list(key.values()))) for key in slots.keys.to_pylist()]
    ends = slots.ends.cast(pa.int64()).to_pylist()
    values = [digest([end, s["seen"]], s["hash"]) for end, s in zip(ends, slots.states.to_pylist(), strict=True)]
    return {"what": pa.array(["output"] * len(slots), pa.string()), "key": pa.array(keys, pa.string()), "value": values}


def column_many_outputs(slots: Any) -> Any:
    """As many rows as tuples seen, modulo three."""
    seen = slots.states["seen"].to_pylist()
    of = [at for at, count in enumerate(seen) for _ in range(count % 3)]
    whole = pa.table(column_output(slots), schema=pa.schema(list(RESULT.items())))
    return tg.updated(rows=whole.take(pa.array(of, pa.int64())), of=pa.array(of, pa.int64()))


def column_forgetting(slots: Any) -> Any:
    made = []
    for start, state in zip(slots.starts.cast(pa.int64()).to_pylist(), slots.states.to_pylist(), strict=True):
        gone = digest([start], 0) % 4 == 0
        made.append((0, 0) if gone else (digest([start], state["hash"]), state["seen"] // 2))
    return tg.updated(_columns(made, HASHED))


def column_retiring(batch: Any) -> Any:
    """Forgets a key at its third tuple; one that comes later in the same call finds the initial state."""
    states = [list(row.values()) for row in batch.windows.states.to_pylist()]
    retired = [False] * len(states)
    values = []
    for slot in batch.slots.to_pylist():
        seen = (0 if retired[slot] else states[slot][1]) + 1
        states[slot], retired[slot] = [seen, seen], seen >= 3
        values.append(("seen", str(slot >= 0), seen))
    of = np.arange(len(batch))
    return tg.updated(
        _columns(states, HASHED), rows=_columns(values, RESULT), of=of, retire=pa.array(retired, pa.bool_())
    )


def _columns(rows: list[Any], kinds: dict[str, pa.DataType]) -> dict[str, pa.Array]:
    return {name: pa.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(kinds.items())}


STORED = {"stores": STORES, "returns": RESULT}
HASH = {"state": HASHED, "initial": {"hash": 0, "seen": 0}, "returns": RESULT}
# What is applied, by the kind of window: functions with their declarations, and whether they are columnar.
APPLIED: dict[str, dict[str, tuple[dict[str, Any], bool]]] = {
    "multi": {
        "hash": ({"update": hashing, "output": hash_output, **HASH}, False),
        "stored": ({"output": stored_output, "returns": RESULT}, False),
        "match": ({"update": matching, "returns": RESULT}, False),
        "forward": ({"update": forwarding, "state": {}, "returns": RESULT}, False),
        "stores": ({"update": storing, "output": stored_entries, **STORED}, False),
        "columns, hash": ({"update": column_hashing, "output": column_output, **HASH}, True),
        "columns, count": ({"update": column_counting, "output": column_output, **HASH}, True),
        "columns, many": ({"update": column_counting, "output": column_many_outputs, **HASH}, True),
    },
    "single": {
        "hash": ({"update": hashing, "output": hash_output, "slide": forgetting, **HASH}, False),
        "stored": ({"output": stored_output, "returns": RESULT}, False),
        "match": ({"update": matching, "returns": RESULT}, False),
        "forward": ({"update": forwarding, "state": {}, "returns": RESULT}, False),
        "stores": ({"update": storing, "output": stored_entries, "slide": thinning, **STORED}, False),
        "columns, hash": (
            {"update": column_hashing, "output": column_output, "slide": column_forgetting, **HASH},
            True,
        ),
        "columns, count": ({"update": column_counting, "slide": column_forgetting, **HASH}, True),
    },
    "unbounded": {
        "hash": ({"update": hashing, **HASH}, False),
        "retire": ({"update": retiring, **HASH}, False),
        "match": ({"update": matching, "returns": RESULT}, False),
        "stores": ({"update": storing, **STORED}, False),
        "stores, retire": ({"update": storing_retired, **STORED}, False),
        "columns, hash": ({"update": column_hashing, **HASH}, True),
        "columns, retire": ({"update": column_retiring, **HASH}, True),
    },
}


@dataclass(frozen=True)
class KeyedApplyCase:
    """One generated case."""

    query: tg.Stream
    batches: list[dict[str, list[pa.Table]]]
    told: str


def apply_to(parts: list[Any], kind: str, shape: str, functions: str, name: str) -> tg.Stream:
    """One of the applied functions over streams with keys."""
    given, columnar = APPLIED[kind][functions]
    size, every = WINDOWS[shape]
    keyed = tg.gather(*parts) if len(parts) > 1 else parts[0]
    windowed = keyed.unbounded() if kind == "unbounded" else keyed.window(f"{size}us", every=f"{every}us")
    settings = {**given, "name": name} | ({"windows": "single"} if kind == "single" else {})
    made: tg.Stream = windowed.apply_columns(**settings) if columnar else windowed.apply(**settings)
    return made


def renamed_second(name: str, table: pa.Table) -> pa.Table:
    """Tuples as each of three streams has them: the second, s1, under other names."""
    return renamed(table) if name == "s1" else table


def renamed(table: pa.Table) -> pa.Table:
    """Tuples as inputs after the first have them."""
    made = pa.table({_RENAMED[column]: table.column(column) for column in table.column_names})
    return made.select(OTHER.names).cast(OTHER)


@st.composite
def keyed_apply_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query with one O+, or with two, or with an aggregate before or after it; its data, and how they are cut."""
    kind = draw(st.sampled_from(["multi", "single", "single", "unbounded"]))
    shape = draw(st.sampled_from(sorted(WINDOWS)))
    key = draw(st.sampled_from(sorted(KEYS)))
    functions = draw(st.sampled_from(sorted(APPLIED[kind])))
    sides = draw(st.sampled_from(["one", "two", "three", "self-union", "diamond", "twice"]))
    after = draw(st.sampled_from(["nothing", "nothing", "aggregate", "again", "beside"]))
    # Where streams take several ways each way has its own watermark, and the law has one: nothing may be late there.
    disorder = 100_000 if after == "beside" else draw(st.sampled_from(DISORDERS_US))
    first, second, third = (
        tg.stream(schema, time=time, disorder=f"{disorder}us", name=name)
        for name, schema, time in (("s0", SCHEMA, "ts"), ("s1", OTHER, "at"), ("s2", SCHEMA, "ts"))
    )
    keys, keys2 = KEYS[key]
    parts = {
        "one": lambda: [first.key_by(*keys)],
        "two": lambda: [first.key_by(*keys), second.key_by(*keys2)],
        "three": lambda: [first.key_by(*keys), second.key_by(*keys2), third.key_by(*keys)],
        "self-union": lambda: [first.union(first).key_by(*keys)],
        "diamond": lambda: [first.with_columns(n=1).union(first, third).key_by(*keys)],
        "twice": lambda: [first.key_by(*keys), first.key_by(*keys)],
    }[sides]()
    query = apply_to(parts, kind, shape, functions, "applied")
    # Thirty windows a tuple, and thirty for each of their results, would only take long.
    shape = "sliding" if shape == "long" else shape
    if after == "aggregate":
        query = query.key_by("what").window("7ms", every="2ms").aggregate(n=tg.count(), last=tg.last("value"))
    elif after == "again":
        query = apply_to([query.key_by("key")], draw(st.sampled_from(["multi", "single"])), shape, "stored", "again")
    elif after == "beside":
        # A source and a stateful step into one: rows of the one wait for those of the other.
        counts = first.key_by("k").window("3ms").aggregate(value=tg.count()).select("ts", "value", key="k")
        query = apply_to([query.key_by("value"), counts.key_by("value")], "multi", shape, "stored", "beside")
    batches = draw(cut_batches(THREE, most=4, rows=(0, 2, 4, 7), jumps=(0, 1_000, 6_000), shaped=renamed_second))
    return KeyedApplyCase(query, batches, f"{kind}, {shape}, {key}, {functions}, {sides}, {after}")
