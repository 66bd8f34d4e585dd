"""Kills of runs in process, one after the other, until there were so many; every row is compared when a query is through.

    python -m tests.chaos.local_kills --kills 500

A run with a checkpoint is forked, killed with SIGKILL at any moment, and forked again with another number of instances,
until it ends by itself. Queries take turns, and so do the formats of their results. This process only forks, so that no
thread of a library is lost in a fork.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
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


def _tuples(folder: Path, name: str, *, slow: bool = True) -> tg.Stream:
    found = tg.stream(f"{folder}/{name}/*.parquet", time="ts", disorder="50 milliseconds", name=name)
    return found.map_batches(slowly) if slow else found


def windows(folder: Path) -> tg.Stream:
    """Windows of windows, over two streams together."""
    both = _tuples(folder, "one").union(_tuples(folder, "two"))
    counts = (
        both.key_by("k").window("400 milliseconds", every="200 milliseconds").aggregate(n=tg.count(), s=tg.sum("n"))
    )
    return counts.key_by("n").window("2 seconds").aggregate(keys=tg.count(), least=tg.min("s"))


def pairs(folder: Path) -> tg.Stream:
    """A join of two streams."""
    two = _tuples(folder, "two", slow=False).with_columns(m=1)
    return _tuples(folder, "one").join(two, on="k", within="20 milliseconds", where=lambda l, r: l.n <= r.n)


def seen(window: Any, arriving: Any) -> Any:
    return tg.updated({"seen": window.state["seen"] * 3 % 1_000_003 + arriving["n"]})


def applied(folder: Path) -> tg.Stream:
    """A function of the user's over tuples in order, and sessions of what it gives."""
    given = (
        _tuples(folder, "one")
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


QUERIES: dict[str, Callable[[Path], tg.Stream]] = {"windows": windows, "pairs": pairs, "applied": applied}


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
        _forked(lambda: _prepare(folder, chosen.seed))
        while kills < chosen.kills:
            name = list(QUERIES)[rounds % len(QUERIES)]
            kind = ("parquet", "jsonl")[rounds % 2]
            place = folder / f"round-{rounds}"
            killed = _round(folder, place, name, kind, drawn, chosen.kills - kills)
            kills, rounds = kills + killed, rounds + 1
            print(f"{name} to {kind}: {killed} kills, every row once; {kills} kills in all", flush=True)
            shutil.rmtree(place)
    except AssertionError as error:
        print(f"{error}; what it left is in {folder}", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


def _round(folder: Path, place: Path, name: str, kind: str, drawn: random.Random, most: int) -> int:
    """Kill the runs of one query until one ends, or there were so many; how many were."""
    killed = 0
    began = time.monotonic()
    place.mkdir()
    while True:
        instances, patience = drawn.randint(1, 4), drawn.uniform(0.1, 1.5) * (1 + killed / 3)
        patience = patience if killed < most else LONGEST_SECONDS
        child = _fork(lambda n=instances: _run(folder, place, name, kind, n))  # type: ignore[misc]
        deadline = time.monotonic() + patience
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        if ended[0]:
            assert ended[1] == 0, f"{name}: a run failed, see above"
            break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
        assert time.monotonic() - began < LONGEST_SECONDS, f"{name}: no run comes to its end"
    _forked(lambda: _check(folder, place, name, kind))
    return killed


def _prepare(folder: Path, seed: int) -> None:
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
    for name, query in QUERIES.items():
        found = answer(query(folder))
        assert found.rows.num_rows and not found.late
        pq.write_table(found.rows, folder / f"{name}.parquet")


def _run(folder: Path, place: Path, name: str, kind: str, instances: int) -> None:
    tg.start(
        QUERIES[name](folder),
        to=place / "out",
        format=kind,
        checkpoint=place / "cp",
        every="15 milliseconds",
        instances=instances,
        segment_rows=40,
        waiting_rows=100,
    ).wait()


def _check(folder: Path, place: Path, name: str, kind: str) -> None:
    query = QUERIES[name](folder)
    told = difference(read_results(place / "out", kind, query.schema), pq.read_table(folder / f"{name}.parquet"))
    assert told is None, told


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
