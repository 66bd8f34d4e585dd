"""Kills of runs in process, one after the other, until there were so many; every row is compared when a query is through.

    python -m tests.chaos.local_kills --kills 500

A run with a checkpoint is forked, killed with SIGKILL at any moment, and forked again with another number of instances,
until it ends by itself. Queries take turns, and so do files and topics of Kafka, as input and for results. This process
only forks, so that no thread of a library is lost in a fork.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from tests.kit.kafka import make, mock_cluster, rows_of, with_isolation, write_rows
from tidegate.results import read_results
from tidegate.testing import answer, difference

FILES, ROWS = 6, 300
LONGEST_SECONDS = 900.0
KEPT_SECONDS = 0.004


def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, after a while: a run lasts long enough to be killed."""
    if batch.num_rows:
        time.sleep(KEPT_SECONDS)
    return batch


SCHEMA = pa.schema({"ts": pa.timestamp("us"), "k": pa.int64(), "n": pa.int64()})


@dataclass(frozen=True, slots=True)
class Place:
    """Where the streams are: files in a folder, or topics of their names if there are servers."""

    folder: Path
    servers: str | None = None

    def tuples(self, name: str, *, slow: bool = True) -> tg.Stream:
        if self.servers is None:
            found = tg.stream(f"{self.folder}/{name}/*.parquet", time="ts", disorder="50 milliseconds", name=name)
        else:
            topic = tg.kafka(name, servers=self.servers, until="latest")
            found = tg.stream(topic, time="ts", disorder="50 milliseconds", schema=SCHEMA)
        return found.map_batches(slowly) if slow else found


def windows(place: Place) -> tg.Stream:
    """Windows of windows, over two streams together."""
    both = place.tuples("one").union(place.tuples("two"))
    counts = (
        both.key_by("k").window("400 milliseconds", every="200 milliseconds").aggregate(n=tg.count(), s=tg.sum("n"))
    )
    return counts.key_by("n").window("2 seconds").aggregate(keys=tg.count(), least=tg.min("s"))


def pairs(place: Place) -> tg.Stream:
    """A join of two streams."""
    two = place.tuples("two", slow=False).with_columns(m=1)
    return place.tuples("one").join(two, on="k", within="20 milliseconds", where=lambda l, r: l.n <= r.n)


def seen(window: Any, arriving: Any) -> Any:
    return tg.updated({"seen": window.state["seen"] * 3 % 1_000_003 + arriving["n"]})


def applied(place: Place) -> tg.Stream:
    """A function of the user's over tuples in order, and sessions of what it gives."""
    given = (
        place.tuples("one")
        .key_by("k")
        .window("300 milliseconds")
        .apply(
            update=seen,
            output=lambda window: {"k": window.key, "seen": window.state["seen"]},
            state={"seen": pa.int64()},
            initial={"seen": 0},
            returns={"k": pa.int64(), "seen": pa.int64()},
        )
    )
    return given.key_by("k").session("1 second").aggregate(most=tg.max("seen"), n=tg.count())


QUERIES: dict[str, Callable[[Place], tg.Stream]] = {"windows": windows, "pairs": pairs, "applied": applied}
ROUTES = (("kafka", "kafka"), ("files", "parquet"), ("kafka", "parquet"), ("files", "jsonl"), ("files", "kafka"))
"""What runs read, and what they write."""


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 0 if every row was right and nothing hung."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.local_kills", description="Kill runs in process.")
    parser.add_argument("--kills", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="default: any")
    chosen = parser.parse_args(words)
    print(f"seed {chosen.seed}", flush=True)
    drawn = random.Random(chosen.seed)
    folder = Path(tempfile.mkdtemp(prefix="tidegate-kills-"))
    kills = rounds = 0
    try:
        with mock_cluster() as servers:
            _forked(lambda: _prepare(folder, servers, chosen.seed))
            while kills < chosen.kills:
                name, (origin, kind) = list(QUERIES)[rounds % len(QUERIES)], ROUTES[rounds % len(ROUTES)]
                played = Round(name, Place(folder, servers if origin == "kafka" else None), kind, rounds, servers)
                killed = played.play(drawn, min(chosen.kills - kills, max(3, chosen.kills // 10)))
                kills, rounds = kills + killed, rounds + 1
                print(f"{name} from {origin} to {kind}: {killed} kills, every row once; {kills} in all", flush=True)
                shutil.rmtree(played.work)
    except AssertionError as error:
        print(f"{error}; what it left is in {folder}", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


@dataclass(frozen=True, slots=True)
class Round:
    """A query that is run and killed until it ends by itself, with results of some kind."""

    name: str
    place: Place
    kind: str
    number: int
    servers: str

    @property
    def work(self) -> Path:
        return self.place.folder / f"round-{self.number}"

    @property
    def topic(self) -> str:
        return f"round-{self.number}"

    def play(self, drawn: random.Random, most: int) -> int:
        """Kill runs until one ends, or there were so many; how many were."""
        killed = 0
        began = time.monotonic()
        self.work.mkdir()
        if self.kind == "kafka":
            _forked(lambda: make(self.servers, self.topic))
        while True:
            instances, patience = drawn.randint(1, 4), drawn.uniform(0.1, 1.5) * (1 + killed / 3)
            patience = patience if killed < most else LONGEST_SECONDS
            child = _fork(lambda n=instances: self.run(n))  # type: ignore[misc]
            if _ends(child, patience, self.name):
                break
            killed += 1
            assert time.monotonic() - began < LONGEST_SECONDS, f"{self.name}: no run comes to its end"
        _forked(self.check)
        return killed

    def run(self, instances: int) -> None:
        """Run the query, or what is left of it."""
        to_topic = tg.kafka(self.topic, servers=self.servers)
        with with_isolation():
            tg.start(
                QUERIES[self.name](self.place),
                to=to_topic if self.kind == "kafka" else self.work / "out",
                format=None if self.kind == "kafka" else self.kind,
                checkpoint=self.work / "cp",
                every="15 milliseconds",
                instances=instances,
                segment_rows=40,
                waiting_rows=100,
            ).wait()

    def check(self) -> None:
        """Compare every row."""
        schema = QUERIES[self.name](Place(self.place.folder)).schema
        if self.kind == "kafka":
            (self.work / "out").mkdir()
            lines = (json.dumps(row) + "\n" for row in rows_of(self.servers, self.topic))
            (self.work / "out" / "part.json").write_text("".join(lines))
        found = read_results(self.work / "out", "jsonl" if self.kind == "kafka" else self.kind, schema)
        told = difference(found, pq.read_table(self.place.folder / f"{self.name}.parquet"))
        assert told is None, told


def _ends(child: int, patience: float, name: str) -> bool:
    """Whether a run ends within some seconds; else it is killed."""
    deadline = time.monotonic() + patience
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    if ended[0]:
        assert ended[1] == 0, f"{name}: a run failed, see above"
        return True
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _prepare(folder: Path, servers: str, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    for stream in ("one", "two"):
        (folder / stream).mkdir()
        for number in range(FILES):
            times = np.sort(drawn.integers(0, 1_000_000, ROWS)) + number * 1_000_000
            shuffled = times + drawn.integers(-20_000, 20_000, ROWS)
            table = pa.table(
                {
                    "ts": pa.array(shuffled, pa.timestamp("us")),
                    "k": drawn.integers(0, 20, ROWS),
                    "n": drawn.integers(0, 9, ROWS),
                }
            )
            pq.write_table(table, folder / stream / f"{number}.parquet")
            write_rows(servers, stream, table)
    for name, query in QUERIES.items():
        found = answer(query(Place(folder)))
        assert found.rows.num_rows and not found.late
        pq.write_table(found.rows, folder / f"{name}.parquet")


def _fork(work: Callable[[], None]) -> int:
    """The process that does some work; it ends with 0 if nothing was raised."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _forked(work: Callable[[], None]) -> None:
    _, code = os.waitpid(_fork(work), 0)
    assert code == 0, "see above"


if __name__ == "__main__":
    sys.exit(main())
