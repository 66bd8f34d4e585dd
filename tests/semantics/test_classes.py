"""Plain classes as operators: answers worked out by hand, and what the same class gives when it is run plainly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

pytestmark = pytest.mark.dedicated

TRADES = pa.schema([("ts", TIME), ("symbol", pa.string()), ("price", pa.float64()), ("volume", pa.int64())])
FLOWS = pa.schema([("ts", TIME), ("src", pa.string()), ("dst", pa.string()), ("port", pa.int64())])


class Threshold:
    """Gedik et al., listing 3: a value is passed on if it is far enough from the last one that was."""

    def __init__(self) -> None:
        self.threshold = 10.0
        self.last: dict[str, float] = {}

    def process(self, t: Any) -> Any:
        symbol, price = t["symbol"], t["price"]
        if symbol not in self.last or abs(price - self.last[symbol]) > self.threshold:
            self.last[symbol] = price
            return {"symbol": symbol, "price": price}
        return None


def test_the_papers_threshold(runtime: Runtime) -> None:
    query = tg.stream(TRADES, time="ts", name="trades").apply(
        tg.operator(Threshold, returns={"symbol": pa.string(), "price": pa.float64()})
    )
    result = runtime.run(
        query,
        [
            {"trades": rows(TRADES, ("09:00", "a", 5.0, 1), ("09:01", "b", 50.0, 1), ("09:02", "a", 14.0, 1))},
            {"trades": rows(TRADES, ("09:03", "a", 15.5, 1), ("09:04", "b", 45.0, 1), ("09:05", "a", 6.0, 1))},
            {"trades": rows(TRADES, ("09:06", "b", 61.0, 1), ("09:07", "a", 5.0, 1))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:00", "a", 5.0),
        ("09:01", "b", 50.0),
        ("09:03", "a", 15.5),
        ("09:06", "b", 61.0),
        ("09:07", "a", 5.0),
    )


class Scans:
    """Per source: destinations and ports seen, and the last three; a port of 0 forgets the source."""

    def __init__(self) -> None:
        self.flows = defaultdict(int)
        self.ports: dict[str, dict[str, int]] = {}
        self.seen: defaultdict[str, set[str]] = defaultdict(set)
        self.recent: dict[str, list[int]] = {}

    flows: defaultdict[str, int]

    def process(self, t: Any) -> Iterator[dict[str, Any]]:
        src = t["src"]
        if t["port"] == 0:
            yield self.row(src, -1, [], sorted(self.seen.pop(src, ())))
            self.ports.pop(src, None)
            self.recent.pop(src, None)
            del self.flows[src]
            return
        self.flows[src] += 1
        self.seen[src].add(t["dst"])
        self.ports.setdefault(src, {})[t["dst"]] = t["port"]
        recent = self.recent.setdefault(src, [])
        recent.append(t["port"])
        del recent[:-3]
        if self.flows[src] % 2 == 0:
            yield self.row(src, self.flows[src], recent, [f"{k} {v}" for k, v in self.ports[src].items()])

    def row(self, src: str, flows: int, recent: list[int], told: list[str]) -> dict[str, Any]:
        return {"src": src, "flows": flows, "recent": recent, "told": told}


SCANNED = {"src": pa.string(), "flows": pa.int64(), "recent": pa.list_(pa.int64()), "told": pa.list_(pa.string())}
BATCHES = [
    (("09:00", "a", "z", 1), ("09:01", "a", "x", 2), ("09:02", "b", "z", 3), ("09:03", "a", "y", 4)),
    (("09:04", "a", "x", 5), ("09:05", "b", "q", 6)),
    (("09:06", "a", "z", 0), ("09:07", "a", "w", 7), ("09:08", "a", "v", 8)),
]


def test_dicts_lists_and_sets_inside_a_key(runtime: Runtime) -> None:
    """What is inside comes in the order of its keys: a's first row tells x before z, though z came first."""
    query = tg.stream(FLOWS, time="ts", name="flows").apply(tg.operator(Scans, returns=SCANNED))
    result = runtime.run(query, [{"flows": rows(FLOWS, *batch)} for batch in BATCHES])
    expect(
        query,
        result.rows,
        ("09:01", "a", 2, [1, 2], ["x 2", "z 1"]),
        ("09:04", "a", 4, [2, 4, 5], ["x 5", "y 4", "z 1"]),
        ("09:05", "b", 2, [3, 6], ["q 6", "z 3"]),
        ("09:06", "a", -1, [], ["x", "y", "z"]),
        ("09:08", "a", 2, [7, 8], ["v 8", "w 7"]),
    )


def test_the_class_gives_the_same_when_it_is_run_plainly(runtime: Runtime) -> None:
    """One plain object over all tuples; its dicts come in the order of insertion, so they are sorted here."""
    query = tg.stream(FLOWS, time="ts", name="flows").apply(tg.operator(Scans, returns=SCANNED))
    result = runtime.run(query, [{"flows": rows(FLOWS, *batch)} for batch in BATCHES])
    plain = Scans()
    expected = []
    for time, *values in (one for batch in BATCHES for one in batch):
        for row in list(plain.process(dict(zip(FLOWS.names[1:], values, strict=True)))):
            expected.append((time, row["src"], row["flows"], list(row["recent"]), sorted(row["told"])))
    expect(query, result.rows, *expected)
