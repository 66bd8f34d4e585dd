"""A query in process: ended in every way there is, and killed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from tests.chaos.children import Child
from tests.chaos.queries import QUERIES
from tests.chaos.small_disk import small_disk
from tidegate.testing import answer

KILL_SHARE = 0.3
DISK_MEGABYTES = 8


@dataclass(frozen=True, slots=True)
class LocalStory:
    """Processes that run a query again and again; some are killed, and leave no part that cannot be read."""

    folder: Path
    random: Random
    deadline: float
    say: Callable[[str], None]
    name: str

    def play(self) -> int:
        """Runs until the time is over; gives how many there were. Raises if a row is wrong, or a run hangs."""
        expected = self.folder / "expected.parquet"
        pq.write_table(answer(QUERIES[self.name](self.folder)).rows, expected)
        runs = processes = 0
        with small_disk(self.folder / "disk", DISK_MEGABYTES) as disk:
            while not processes or time.monotonic() < self.deadline:
                left = max(self.deadline - time.monotonic(), 1.0)
                place = self.folder / f"process-{processes}"
                place.mkdir()
                words = [self.name, str(self.folder), str(expected), str(place), str(self.random.randrange(2**31))]
                words += [str(min(left, 30.0)), *([str(disk.folder)] if disk.mounted else [])]
                child = Child("tests.chaos.local_driver", words, place / "errors.log", {})
                try:
                    runs += self._follow(child, expected)
                finally:
                    child.kill()
                    disk.empty()
                shutil.rmtree(place)
                for path in disk.folder.iterdir():
                    shutil.rmtree(path)
                processes += 1
        self.say(f"{self.name}: {runs} runs in {processes} processes, all right")
        return runs

    def _follow(self, child: Child, expected: Path) -> int:
        kill_at = time.monotonic() + self.random.uniform(2.0, 20.0) if self.random.random() < KILL_SHARE else None
        runs = 0
        place: Path | None = None
        while not child.ended:
            line = child.next_line(until=lambda: kill_at is not None and time.monotonic() >= kill_at)
            if kill_at is not None and time.monotonic() >= kill_at:
                child.kill()
                self._check_parts(place, pq.read_table(expected))
                self.say(f"{self.name}: killed after {runs} runs")
                return runs + 1
            if line is not None and line.startswith("began "):
                place = Path(line.removeprefix("began "))
            elif line is not None:
                runs += 1
                self.say(f"{self.name}: {line}")
        assert child.code == 0, f"a run failed:\n{child.errors()}"
        return runs

    def _check_parts(self, place: Path | None, expected: pa.Table) -> None:
        """A part that has its name is whole."""
        if place is not None and place.exists():
            rows = sum(pq.read_table(part).num_rows for part in place.glob("part-*"))
            assert rows <= expected.num_rows, f"{rows} rows in {place}, and the whole answer has {expected.num_rows}"
