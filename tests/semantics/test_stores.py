"""Stores of `apply`: queries whose answers were worked out by hand."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

pytestmark = pytest.mark.dedicated

FLOWS = pa.schema([("ts", TIME), ("src", pa.string()), ("dst", pa.string()), ("n", pa.int64())])
COUNTS = tg.store(key={"dst": pa.string()}, value=pa.int64())


def flows(**settings: Any) -> tg.Stream:
    return tg.stream(FLOWS, time="ts", name="flows", **settings)


def add(window: Any, flow: Any) -> None:
    """Count what goes to each destination; a flow of 0 forgets it."""
    store = window.store("sent")
    if flow["n"] == 0:
        store.remove(flow["dst"])
    else:
        store.put(flow["dst"], store.get(flow["dst"], 0) + flow["n"])


def show(window: Any) -> Any:
    sent = window.store("sent")
    return {"src": window.key, "sent": [f"{dst} {n}" for dst, n in sent.items()], "size": len(sent)}


SENT = {"src": pa.string(), "sent": pa.list_(pa.string()), "size": pa.int64()}


def test_windows_have_stores_of_their_own_in_the_order_of_their_keys(runtime: Runtime) -> None:
    """A flow lies in two windows; entries are in the order of bytes, null first, whatever came first."""
    query = (
        flows()
        .key_by("src")
        .window("2 minutes", every="1 minute")
        .apply(update=add, output=show, stores={"sent": COUNTS}, returns=SENT)
    )
    result = runtime.run(
        query,
        [
            {"flows": rows(FLOWS, ("09:00", "a", "z", 1), ("09:00:10", "a", "é", 2), ("09:00:20", "b", "z", 9))},
            {"flows": rows(FLOWS, ("09:01", "a", None, 4), ("09:01:05", "a", "z", 8), ("09:01:10", "a", "é", 0))},
            {"flows": rows(FLOWS, ("09:02:30", "a", "B", 3))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", ["z 1", "é 2"], 2),
        ("09:00:59.999999", "b", ["z 9"], 1),
        ("09:01:59.999999", "a", ["None 4", "z 9"], 2),
        ("09:01:59.999999", "b", ["z 9"], 1),
        ("09:02:59.999999", "a", ["None 4", "B 3", "z 8"], 3),
        ("09:03:59.999999", "a", ["B 3"], 1),
    )


def test_a_key_that_retires_loses_its_stores(runtime: Runtime) -> None:
    """The next tuple of the key finds them empty, in the same batch and in a later one."""

    def leave(window: Any, flow: Any) -> Any:
        seen = window.store("seen")
        if flow["dst"] == "end":
            return tg.updated(
                rows={"src": window.key, "seen": list(seen), "last": window.store("last").get(0)}, retire=True
            )
        seen.put(flow["dst"])
        window.store("last").put(0, {"n": flow["n"], "twice": [flow["n"], flow["n"]]})
        return None

    value = pa.struct([("n", pa.int64()), ("twice", pa.list_(pa.int64()))])
    query = (
        flows()
        .key_by("src")
        .unbounded()
        .apply(
            update=leave,
            stores={
                "seen": tg.store(key=pa.string()),
                "last": tg.store(key=pa.int32(), value=dict(value_columns(value))),
            },
            returns={"src": pa.string(), "seen": pa.list_(pa.string()), "last": value},
        )
    )
    result = runtime.run(
        query,
        [
            {"flows": rows(FLOWS, ("09:00", "a", "y", 1), ("09:01", "a", "x", 2), ("09:02", "b", "y", 3))},
            {"flows": rows(FLOWS, ("09:03", "a", "end", 0), ("09:04", "a", "w", 4))},
            {"flows": rows(FLOWS, ("09:05", "a", "end", 0), ("09:06", "c", "x", 5))},
            {"flows": rows(FLOWS, ("09:07", "a", "end", 0), ("09:08", "b", "y", 6), ("09:09", "b", "end", 0))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:03", "a", ["x", "y"], {"n": 2, "twice": [2, 2]}),
        ("09:05", "a", ["w"], {"n": 4, "twice": [4, 4]}),
        ("09:07", "a", [], None),
        ("09:09", "b", ["y"], {"n": 6, "twice": [6, 6]}),
    )


def value_columns(struct: pa.StructType) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in struct]


def test_the_first_entry_is_the_least_key_whatever_came_before(runtime: Runtime) -> None:
    """A queue by amount: a flow to "take" takes the least out, of equal amounts the one to the first destination."""

    def queue(window: Any, flow: Any) -> Any:
        waiting = window.store("waiting")
        if flow["dst"] != "take":
            return waiting.put((flow["n"], flow["dst"]))
        least = waiting.first()
        if least is None:
            return tg.updated(rows={"src": window.key, "dst": "none", "n": -1})
        (n, dst), nothing = least
        assert nothing is None
        waiting.remove((n, dst))
        return tg.updated(rows={"src": window.key, "dst": dst, "n": n})

    query = (
        flows()
        .key_by("src")
        .unbounded()
        .apply(
            update=queue,
            stores={"waiting": tg.store(key={"n": pa.int64(), "dst": pa.string()})},
            returns={"src": pa.string(), "dst": pa.string(), "n": pa.int64()},
        )
    )
    take = ("a", "take", 0)
    result = runtime.run(
        query,
        [
            {
                "flows": rows(
                    FLOWS, ("09:00", *take), ("09:01", "a", "y", 5), ("09:02", "a", "x", 5), ("09:03", "b", "z", 1)
                )
            },
            {"flows": rows(FLOWS, ("09:04", "a", "w", 7), ("09:05", *take), ("09:06", "a", "v", 2), ("09:07", *take))},
            {"flows": rows(FLOWS, ("09:08", "a", "u", None), ("09:09", *take), ("09:10", *take), ("09:11", *take))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:00", "a", "none", -1),
        ("09:05", "a", "x", 5),
        ("09:07", "a", "v", 2),
        ("09:09", "a", "u", None),
        ("09:10", "a", "y", 5),
        ("09:11", "a", "w", 7),
    )


def test_a_window_that_slides_takes_its_stores_along(runtime: Runtime) -> None:
    """Entries are halved at each slide and forgotten at 0; a window whose stores are empty ends.

    ::

        a   [08:58, 09:01) x 8   [08:59, 09:02) x 4 y 2   [09:00, 09:03) x 2 y 1, then the last tuple (09:01:30) …
            [09:01, 09:04) x 1   then it has left
        b   [08:58, 09:01) x 1, then nothing is left
    """

    def halve(window: Any) -> None:
        sent = window.store("sent")
        for dst, n in sent.items():
            sent.put(dst, n // 2) if n > 1 else sent.remove(dst)

    query = (
        flows()
        .key_by("src")
        .window("3 minutes", every="1 minute")
        .apply(update=add, output=show, slide=halve, windows="single", stores={"sent": COUNTS}, returns=SENT)
    )
    result = runtime.run(
        query,
        [
            {"flows": rows(FLOWS, ("09:00", "a", "x", 8), ("09:00", "b", "x", 1))},
            {"flows": rows(FLOWS, ("09:01:30", "a", "y", 2))},
            {"flows": rows(FLOWS, ("09:02:30", "b", "y", 0))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", ["x 8"], 1),
        ("09:00:59.999999", "b", ["x 1"], 1),
        ("09:01:59.999999", "a", ["x 4", "y 2"], 2),
        ("09:02:59.999999", "a", ["x 2", "y 1"], 2),
        ("09:02:59.999999", "b", [], 0),
        ("09:03:59.999999", "a", ["x 1"], 1),
    )


def test_keys_of_entries_are_equal_as_keys_of_streams_are(runtime: Runtime) -> None:
    """−0.0 is 0.0, NaN is one key and last, null one and first; keys of two columns are tuples."""
    schema = pa.schema([("ts", TIME), ("x", pa.float64()), ("y", pa.string())])

    def count(window: Any, arriving: Any) -> Any:
        store, key = window.store("counts"), (arriving["x"], arriving["y"])
        store.put(key, store.get(key, 0) + 1)
        return tg.updated({"n": window.state["n"] + 1})

    query = (
        tg.stream(schema, time="ts", name="points")
        .with_columns(k=1)
        .key_by("k")
        .window("1 hour")
        .apply(
            update=count,
            output=lambda window: {
                "n": window.state["n"],
                "all": [f"{k} {n}" for k, n in window.store("counts").items()],
            },
            state={"n": pa.int64()},
            initial={"n": 0},
            stores={"counts": tg.store(key={"x": pa.float64(), "y": pa.string()}, value=pa.int64())},
            returns={"n": pa.int64(), "all": pa.list_(pa.string())},
        )
    )
    nan = float("nan")
    result = runtime.run(
        query,
        [
            {"points": rows(schema, ("09:00", nan, "a"), ("09:01", -0.0, "b"), ("09:02", 1.5, None))},
            {"points": rows(schema, ("09:03", nan, "a"), ("09:04", 0.0, "b"), ("09:05", None, "c"))},
            {"points": rows(schema, ("09:06", 0.0, "a"))},
        ],
    )
    entries = ["(None, 'c') 1", "(0.0, 'a') 1", "(0.0, 'b') 2", "(1.5, None) 1", "(nan, 'a') 2"]
    expect(query, result.rows, ("09:59:59.999999", 7, entries))


def test_what_is_kept_looks_the_same_however_often_it_was_written(runtime: Runtime) -> None:
    """A time of another zone and text of a class of its own are kept as UTC and as plain text, in stores and in states."""
    there = timezone(timedelta(hours=2))

    def keep(window: Any, flow: Any) -> Any:
        at, text = flow["ts"].astimezone(there), np.str_(flow["dst"])
        told = [f"{window.state['at']} {window.state['text']!r}"]
        told += [f"{when} {what!r} {value!r}" for (when, what), value in window.store("s").items()]
        window.store("s").put((at, text), text)
        return tg.updated({"at": at, "text": text}, rows={"told": told})

    query = (
        flows()
        .key_by("src")
        .unbounded()
        .apply(
            update=keep,
            state={"at": TIME, "text": pa.string()},
            stores={"s": tg.store(key={"at": TIME, "text": pa.string()}, value=pa.string())},
            returns={"told": pa.list_(pa.string())},
        )
    )
    result = runtime.run(
        query,
        [
            {"flows": rows(FLOWS, ("09:00", "a", "x", 1), ("09:01", "a", "y", 1))},
            {"flows": rows(FLOWS, ("09:02", "a", "z", 1))},
        ],
    )
    nine, one = "2024-01-01 09:00:00+00:00 'x'", "2024-01-01 09:01:00+00:00 'y'"
    expect(
        query,
        result.rows,
        ("09:00", ["None None"]),
        ("09:01", [nine, f"{nine} 'x'"]),
        ("09:02", [one, f"{nine} 'x'", f"{one} 'y'"]),
    )
