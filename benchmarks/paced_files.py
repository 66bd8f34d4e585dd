"""An open-loop load in files: small parquet files that appear on schedule, whether or not they are read.

    python -m benchmarks.paced_files FOLDER SCHEDULE

writes the files of a schedule, given as JSON, into a folder, each whole or not at all, and ends after the last one. Prints
by how much the latest file came too late, in milliseconds.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("key", pa.int64())])
AHEAD = 20
"""So many files are made before they are due: what is made when it is due takes the time of those who are measured."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When tuples are due: those of a file together, `file_ms` after the file before; the first one as long after the begin.

    A tuple's event time is when it would be due if each was by itself: in order, evenly, before its file is due.
    """

    begin_us: int
    tuples_per_second: int
    file_ms: int
    seconds: int
    keys: int
    seed: int

    def __post_init__(self) -> None:
        if 1_000 % self.file_ms or self.tuples_per_second * self.file_ms % 1_000:
            raise ValueError(
                f"files every {self.file_ms} ms do not divide {self.tuples_per_second:,} tuples a second evenly; "
                f"give a --rate that is a multiple of {1_000 // self.file_ms}"
            )

    @property
    def files(self) -> int:
        return self.seconds * 1_000 // self.file_ms

    @property
    def rows(self) -> int:
        """Tuples in a file."""
        return self.tuples_per_second * self.file_ms // 1_000

    @property
    def due_us(self) -> Array:
        """When each file is due."""
        return self.begin_us + (np.arange(self.files) + 1) * (self.file_ms * 1_000)

    @property
    def newest_us(self) -> Array:
        """The latest event time of each file."""
        newest: Array = self.due_us - self.file_ms * 1_000 + self._within()[-1]
        return newest

    def keys_of(self, file: int) -> Array:
        return np.random.default_rng((self.seed, file)).integers(0, self.keys, self.rows)

    def table(self, file: int) -> pa.Table:
        """The tuples of a file."""
        times = self.begin_us + file * self.file_ms * 1_000 + self._within()
        return pa.table([pa.array(times).cast(COLUMNS.field("ts").type), self.keys_of(file)], schema=COLUMNS)

    def counts(self, from_us: int, until_us: int) -> Array:
        """Tuples by key with event times in a stretch that begins and ends with files."""
        first, end = ((moment - self.begin_us) // (self.file_ms * 1_000) for moment in (from_us, until_us))
        return np.bincount(np.concatenate([self.keys_of(file) for file in range(first, end)]), minlength=self.keys)

    def _within(self) -> Array:
        return np.arange(self.rows) * (self.file_ms * 1_000) // self.rows


def write(schedule: Schedule, folder: Path) -> float:
    """Write every file when it is due, and return by how many milliseconds the latest one was late."""
    drafts = folder.with_name(f"{folder.name}-drafts")
    drafts.mkdir()
    late_ms = 0.0
    made = 0
    for file, due_us in enumerate(schedule.due_us.tolist()):
        while made < min(file + AHEAD, schedule.files):
            # What is not due yet is made while there is time, one file at least.
            if made > file and time.time() * 1e6 > due_us - 10_000:
                break
            pq.write_table(schedule.table(made), drafts / f"{made:06}.parquet")
            made += 1
        wait_s = due_us / 1e6 - time.time()
        if wait_s > 0:
            time.sleep(wait_s)
        draft = drafts / f"{file:06}.parquet"
        draft.touch()  # Spark reads files in the order of their modification times
        draft.rename(folder / draft.name)
        late_ms = max(late_ms, time.time() * 1e3 - due_us / 1e3)
    return late_ms


def main(folder: str, schedule: str) -> int:
    print(json.dumps({"late_max_ms": round(write(Schedule(**json.loads(schedule)), Path(folder)), 1)}))
    return 0


def as_argument(schedule: Schedule) -> str:
    return json.dumps(asdict(schedule))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
