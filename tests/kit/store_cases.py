"""Generated queries with stores: few keys, few entries, and tuples that say what is done to them.

Entries tie and collide: their keys are null, NaN, −0.0 and 0.0. Windows expire, slide and retire in between.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import TIME
from tests.kit.keyed_apply_cases import RESULT, KeyedApplyCase, digest

SCHEMA = pa.schema(
    [
        ("ts", TIME),
        ("key", pa.int64()),
        ("does", pa.string()),
        ("x", pa.float64()),
        ("k", pa.string()),
        ("n", pa.int64()),
    ]
)
PAIRS = tg.store(key={"x": pa.float64(), "k": pa.string()}, value={"n": pa.int64(), "tags": pa.list_(pa.string())})
STORES = {"pairs": PAIRS, "few": tg.store(key=pa.string(), value=pa.float64()), "seen": tg.store(key=pa.int64())}
DOES = [
    "pair",
    "pair",
    "few",
    "few",
    "see",
    "unpair",
    "unpair",
    "unfew",
    "unsee",
    "read",
    "read",
    "clear",
    "nothing",
    "retire",
]


def change(window: Any, one: Any) -> Any:
    """Do what a tuple says; the row tells what is there then."""
    pairs, few, seen = (window.store(name) for name in STORES)
    x, k, n = one["x"], one["k"], one["n"]
    told: list[Any] = [pairs.get((x, k)), few.get(k), seen.has(n), len(pairs), len(few), len(seen)]
    match one["does"]:
        case "pair":
            before = pairs.get((x, k))
            pairs.put((x, k), {"n": n if before is None else before["n"] + n, "tags": None if k is None else [k, None]})
        case "unpair":
            told.append(pairs.remove((x, k)))
        case "few":
            few.put(k, x)
        case "unfew":
            told.append(few.remove(k))
        case "see":
            seen.put(n)
        case "unsee":
            told.append(seen.remove(n))
        case "read":
            told += [pairs.items(), few.items(), list(seen)]
        case "clear":
            [pairs, few, seen][n].clear()
    retire = one["does"] == "retire" and window.end is None
    return tg.updated(rows={"what": one["does"], "key": repr(window.key), "value": digest(told, 0)}, retire=retire)


def tell(window: Any) -> Any:
    """All entries, in their order."""
    held = [window.store(name).items() for name in STORES]
    return {"what": "output", "key": repr(window.key), "value": digest([window.start, *held], 0)}


def thin(window: Any) -> None:
    """Every other entry goes when the window slides, and one is added now and then."""
    for name in STORES:
        store = window.store(name)
        for at, (key, _) in enumerate(store.items()):
            if at % 2:
                store.remove(key)
    if digest([window.start], 0) % 5 == 0:
        window.store("few").put("slid", 1.0)


_TUPLE = st.fixed_dictionaries(
    {
        "step": st.sampled_from([0, 0, 1, 300, 1_000, 3_000]),
        "key": st.sampled_from([1, 1, 1, 2, None]),
        "does": st.sampled_from(DOES),
        "x": st.sampled_from([None, float("nan"), -0.0, 0.0, 1.5]),
        "k": st.sampled_from([None, "a", "b"]),
        "n": st.integers(0, 2),
    }
)


@st.composite
def store_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query whose windows have three stores, its tuples, and how they are cut into batches."""
    kind = draw(st.sampled_from(["unbounded", "unbounded", "single", "multi"]))
    keyed = tg.stream(SCHEMA, time="ts", name="s0", disorder=draw(st.sampled_from(["0 ms", "2 ms"]))).key_by("key")
    given: dict[str, Any] = {"update": change, "stores": STORES, "returns": RESULT, "name": "stored"}
    if kind == "unbounded":
        query = keyed.unbounded().apply(**given)
    else:
        windowed = keyed.window("5 ms", every=draw(st.sampled_from(["5 ms", "2 ms"])))
        query = windowed.apply(
            **given, output=tell, **({"slide": thin, "windows": "single"} if kind == "single" else {})
        )
    now, batches = draw(st.sampled_from([1_700_000_000_000_000, -9_000])), []
    for _ in range(draw(st.integers(2, 6))):
        rows = draw(st.lists(_TUPLE, max_size=12))
        for row in rows:
            now += row.pop("step")
            row["ts"] = now
        columns = [
            pa.array([row[field.name] for row in rows], pa.int64() if field.name == "ts" else field.type)
            for field in SCHEMA
        ]
        batches.append({"s0": [pa.table([columns[0].cast(TIME), *columns[1:]], schema=SCHEMA)]})
    return KeyedApplyCase(query, batches, f"stores, {kind}")
