"""The demo's query on Spark, killed and started again until it is through."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tests.chaos.children import Child
from tests.chaos.faults import (
    FAULTS,
    MOMENTS,
    Moment,
    Target,
    between_state_and_commit,
    fill_disk,
    kill_everything,
    kill_executor,
)
from tests.chaos.queries import demo
from tests.chaos.small_disk import SmallDisk, small_disk
from tidegate.results import read_results
from tidegate.testing import answer, difference

MASTERS = ("local[2]", "local-cluster[2,1,1024]")
FAULTS_PER_ROUND = 4
DISK_MEGABYTES = 64
FULL_SECONDS = 10.0


@dataclass(slots=True)
class SparkStory:
    """Rounds of one query; each ends when all results are out, and begins with an empty checkpoint."""

    folder: Path
    random: Random
    deadline: float
    say: Callable[[str], None]
    name: str = "spark"
    _faults: Iterator[Any] = field(init=False)
    _moments: Iterator[Any] = field(init=False)

    def __post_init__(self) -> None:
        self._faults = self._in_random_order(FAULTS)
        self._moments = self._in_random_order(MOMENTS)

    def play(self) -> int:
        """Rounds until the time is over; gives how many faults there were. Raises if a row is wrong, or a run hangs."""
        query = demo(self.folder)
        expected = answer(query).rows
        struck = 0
        for number, master in enumerate(cycle(MASTERS)):
            if number and time.monotonic() > self.deadline:
                return struck
            root = self.folder / f"round-{number}"
            with small_disk(root / "disk", DISK_MEGABYTES) as disk:
                struck += self._round(number, master, root, disk, expected)
            shutil.rmtree(root)
        raise AssertionError("a cycle does not end")

    def _round(self, number: int, master: str, root: Path, disk: SmallDisk, expected: pa.Table) -> int:
        (root / "tmp").mkdir()
        struck = attempts = 0
        while True:
            child = self._start(master, root, disk, attempts)
            target = Target(child, disk.folder / "checkpoint" / "spark", root / "tmp", disk, self.random)
            disturbed = False
            attempts += 1
            try:
                while not child.ended and struck < FAULTS_PER_ROUND and time.monotonic() < self.deadline:
                    fault, moment = self._choice(number, struck, target)
                    if not self._await(child, moment):
                        break
                    done = fault(target)
                    if not done:
                        continue
                    disturbed = True
                    struck += 1
                    self.say(f"{self.name} on {master}, attempt {attempts}: {moment.name}, {done}")
                    if fault is fill_disk:
                        self._recover(child, disk)
                code = child.wait()
            finally:
                child.kill()
                disk.empty()
            if code == 0:
                break
            assert disturbed, f"a run that nothing was done to failed:\n{child.errors()}"
        rows = read_results(disk.folder / "out", "parquet", expected.schema)
        wrong = difference(rows, expected)
        assert wrong is None, f"after {attempts} attempts: {wrong}"
        left = [path for path in (root / "tmp").rglob("tidegate*/**/*") if path.is_file()]
        assert not left, f"the ended run left {left[:5]} behind"
        self.say(
            f"{self.name} on {master}: {rows.num_rows} rows, all right, after {attempts} attempts and {struck} faults"
        )
        return struck

    def _choice(self, number: int, struck: int, target: Target) -> tuple[Any, Moment]:
        """At first two deaths between state and commit, which once destroyed checkpoints; an executor's; then any."""
        if number == 0 and struck < 2:
            return kill_everything, between_state_and_commit(target)
        moment = next(self._moments)(target)
        return (kill_executor if number % 2 and struck == 0 else next(self._faults)), moment

    def _start(self, master: str, root: Path, disk: SmallDisk, attempt: int) -> Child:
        words = [str(self.folder), str(disk.folder / "out"), str(disk.folder / "checkpoint"), master]
        log = root / f"attempt-{attempt}.log"
        return Child("tests.chaos.spark_driver", words, log, {"TMPDIR": str(root / "tmp")})

    def _await(self, child: Child, moment: Moment) -> bool:
        """Whether the moment came while the run was under way."""
        while not moment.has_come():
            if child.next_line(until=moment.has_come) is None and child.ended:
                return False
        return not child.ended

    def _recover(self, child: Child, disk: SmallDisk) -> None:
        """Give the disk back when the run has failed, in a sentence, or has lived without it for a while."""
        until = time.monotonic() + FULL_SECONDS
        while not child.ended and time.monotonic() < until:
            child.next_line(until=lambda: time.monotonic() >= until)
        disk.empty()
        if child.ended and child.code:
            said = child.errors()
            assert "EnvironmentFault" in said, f"a full disk was not named as what it is:\n{said}"

    def _in_random_order(self, choices: tuple[Any, ...]) -> Iterator[Any]:
        """All choices, in another order each time around."""
        while True:
            yield from self.random.sample(choices, len(choices))
