"""Kills on Spark, one after the other, until there were so many; every row is compared when a query is through.

    python -m tests.chaos.kills --kills 300

Windows, a join without an equality and an `apply` take turns, with one cell and with two, on threads and on executors of
this machine. Python workers, executors, the Java process and the driver with all of its processes are killed at any moment,
and between the state of a batch and its commit. A driver that survives makes the same call again; one that does not is
started again.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq

from examples.inputs.usage import usage
from tests.chaos.children import Child
from tests.chaos.faults import (
    Moment,
    Target,
    between_sink_and_commit,
    between_state_and_commit,
    kill_all_workers,
    kill_driver,
    kill_everything,
    kill_executor,
    kill_java,
    kill_worker,
)
from tests.chaos.small_disk import SmallDisk
from tests.kit.killed_run import QUERIES
from tidegate.results import read_results
from tidegate.testing import answer, difference

KILLS_PER_ROUND = 12
THREADS, EXECUTORS = "local[2]", "local-cluster[2,1,1024]"
# Those that cost the start of a Java process are rarer.
FAULTS = (*(kill_worker,) * 12, *(kill_all_workers,) * 9, kill_driver, kill_java, kill_everything)
FILES = 12


def soon(target: Target) -> Moment:
    """Within five seconds from now, whatever happens then."""
    due = time.monotonic() + target.random.uniform(0.0, 5.0)
    return Moment("at any moment", lambda: time.monotonic() >= due)


def in_the_next_batch(target: Target) -> Moment:
    """Within half a second after the next sign of life."""
    lines, beyond = len(target.child.lines), target.random.uniform(0.0, 0.5)
    seen: list[float] = []

    def has_come() -> bool:
        if not seen and len(target.child.lines) > lines:
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() >= seen[0] + beyond

    return Moment("in the middle of a batch", has_come)


MOMENTS = (
    soon,
    *(in_the_next_batch,) * 3,
    *(partial(between_state_and_commit, batches=1),) * 2,
    partial(between_sink_and_commit, batches=1),
)


@dataclass(frozen=True, slots=True)
class Round:
    """A query, its cells, and the Spark it runs on."""

    query: str
    cells: int
    master: str

    @classmethod
    def of(cls, number: int) -> Round:
        """Every query with one cell and two; on executors in every sixth."""
        names = list(QUERIES)
        return cls(names[number % 3], 1 + number // 3 % 2, EXECUTORS if number % 6 == 5 else THREADS)


@dataclass(slots=True)
class Kills:
    """Rounds until there were ``wanted`` kills; each begins with an empty folder, and ends with all results."""

    folder: Path
    random: random.Random
    wanted: int
    say: Callable[[str], None]
    struck: Counter[str] = field(default_factory=Counter)

    def play(self) -> None:
        """Plays the rounds. Raises if a row is wrong, a query fails that nothing was done to, or one hangs."""
        files = usage(self.folder / "in", rows=2_000, minutes=8, files=FILES)
        for number in count():
            if self.struck.total() >= self.wanted:
                return
            folder = self.folder / f"round-{number}"
            (folder / "tmp").mkdir(parents=True)
            self._play(Round.of(number), files, folder)
            shutil.rmtree(folder)

    def _play(self, chosen: Round, files: str, folder: Path) -> None:
        least, drivers, failed = self.struck.total(), 0, 0
        most = min(self.wanted, least + KILLS_PER_ROUND)
        while True:
            drivers, before = drivers + 1, self.struck.total()
            words = [chosen.query, files, str(folder), str(chosen.cells), chosen.master]
            temporary = {"TMPDIR": str(folder / "tmp")}
            child = Child("tests.chaos.kill_driver", words, folder / f"{drivers}.log", temporary)
            try:
                self._strike(child, chosen, folder, most)
                code = child.wait()
            finally:
                child.kill()
            failed += sum(line.startswith("failed") for line in child.lines)
            assert failed <= self.struck.total() - least, f"a query failed that nothing was done to:\n{child.lines}"
            if code == 0:
                break
            assert self.struck.total() > before, f"a driver that nothing was done to ended:\n{child.errors()}"
        law = answer(QUERIES[chosen.query](files)).rows
        wrong = difference(read_results(folder / "out", "parquet", law.schema), law)
        assert wrong is None, f"{chosen}: {wrong}"
        assert pq.read_table(folder / "out").num_rows == law.num_rows, f"{chosen}: rows that no commit lists"
        self.say(f"{chosen}: {law.num_rows} rows, all right; {drivers} drivers, {self.struck.total()} kills so far")

    def _strike(self, child: Child, chosen: Round, folder: Path, most: int) -> None:
        """Kills parts of a driver, until it has ended or has had its share."""
        disk = SmallDisk(folder, mounted=False)
        target = Target(child, folder / "checkpoint" / "spark", folder / "tmp", disk, self.random)
        while not child.ended and self.struck.total() < most:
            moment = self.random.choice(MOMENTS)(target)
            while not moment.has_come():
                if child.next_line(until=moment.has_come) is None and child.ended:
                    return
            faults = (*FAULTS, *(kill_executor,) * 4) if chosen.master == EXECUTORS else FAULTS
            done = self.random.choice(faults)(target)
            if done:
                self.struck[done] += 1
                self.say(f"{self.struck.total()}: {moment.name}, {done}")


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 0 if every row was right and nothing hung."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kills", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="default: any")
    chosen = parser.parse_args(words)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    say(f"seed {chosen.seed}")
    root = Path(tempfile.mkdtemp(prefix="tidegate-kills-"))
    kills = Kills(root, random.Random(chosen.seed), chosen.kills, say)
    try:
        kills.play()
    except AssertionError as error:
        say(f"FAILED after {dict(kills.struck)}: {error}\nWhat was there is in {root}")
        return 1
    shutil.rmtree(root)
    told = ", ".join(f"{done} {times} times" for done, times in kills.struck.items())
    say(f"nothing lost, nothing doubled, no hang: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
