"""Generated queries with stores: few keys, few entries, and tuples that say what is done to them.

Entries tie and collide: their keys are null, NaN, −0.0 and 0.0. Windows expire, slide and retire in between.
"""

from __future__ import annotations

from random import Random
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


STEPS = [0, 0, 1, 300, 1_000, 3_000]
VALUES: dict[str, list[Any]] = {
    "key": [1, 1, 1, 2, None],
    "does": DOES,
    "x": [None, float("nan"), -0.0, 0.0, 1.5],
    "k": [None, "a", "b"],
    "n": [0, 1, 2],
}


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
    # Hypothesis draws few and small rows; what is sought takes many that have to do with each other.
    random = Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(3, 7))):
        times = []
        for _ in range(random.choice([0, 6, 12])):
            now += random.choice(STEPS)
            times.append(now)
        columns = [pa.array([random.choice(of) for _ in times], SCHEMA.field(name).type) for name, of in VALUES.items()]
        batches.append({"s0": [pa.table([pa.array(times, pa.int64()).cast(TIME), *columns], schema=SCHEMA)]})
    return KeyedApplyCase(query, batches, f"stores, {kind}")
