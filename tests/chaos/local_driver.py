"""Runs of one query in process, each ended in another way while its instances change; may be killed at any moment.

python -m tests.chaos.local_driver join DATA EXPECTED OUT SEED SECONDS [DISK]
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidegate as tg
from tests.chaos.queries import QUERIES
from tests.chaos.small_disk import SmallDisk
from tidegate.query.nodes import sources
from tidegate.results import read_results
from tidegate.sources.files import Files
from tidegate.testing import difference

MOST = 8
ENDINGS = ("end", "end", "end to a folder", "cancel", "cancel in the output", "raise in the output", "break", "stop")
FULL = "full disk"
ENDING_SECONDS = 60.0
"""By then the threads of a run that was left have ended."""


class Planned(Exception):
    """What an output function raises on purpose."""


class Runs:
    """Runs of a query with one expected answer."""

    def __init__(self, name: str, data: Path, expected: Path, seed: int) -> None:
        self.build = QUERIES[name]
        self.data = data
        self.expected = pq.read_table(expected)
        self.random = random.Random(seed)

    def run(self, ending: str, out: Path, disk: SmallDisk | None) -> str:
        """One run, checked; says how it went."""
        query = self.build(self.data)
        settings: dict[str, Any] = {
            "instances": (self.random.randint(1, 4), MOST),
            "segment_rows": self.random.choice([5, 100, 65_536]),
            "waiting_rows": self.random.choice([None, 1, 50, 5_000]),
            "linger_seconds": self.random.choice([0.0, 0.001]),
        }
        after = self.random.randrange(20)
        match ending:
            case "end to a folder" | "full disk":
                changes = self._to_folder(query, out, settings, disk if ending == FULL else None)
            case "break":
                changes = self._break(query, settings, after)
            case _:
                changes = self._to_function(query, ending, settings, after)
        # A cancelled run is left after a second, though a thread may still be compiling a predicate, which takes longer.
        until = time.monotonic() + ENDING_SECONDS
        while (left := _threads_left()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left, f"threads left running: {left}"
        return f"{ending}, {changes} changes of instances, {settings}"

    def _to_folder(self, query: tg.Stream, out: Path, settings: dict[str, Any], disk: SmallDisk | None) -> int:
        job = tg.start(query, to=out, **settings)
        with self._changing(job) as changes:
            if disk is not None:
                time.sleep(self.random.uniform(0.0, 0.5))
                disk.fill()
            try:
                job.wait()
            except tg.EnvironmentFault:
                assert disk is not None
                disk.empty()
                self._check_part(read_results(out, "parquet", query.schema))
                return changes()
        self._check_whole(read_results(out, "parquet", query.schema))
        return changes()

    def _to_function(self, query: tg.Stream, ending: str, settings: dict[str, Any], after: int) -> int:
        tables: list[pa.Table] = []

        def take(table: pa.Table) -> None:
            tables.append(table)
            if len(tables) > after and ending == "cancel in the output":
                job.cancel()
            if len(tables) > after and ending == "raise in the output":
                raise Planned

        job = tg.start(query, to=take, **settings)
        with self._changing(job) as changes:
            if ending in ("cancel", "stop"):
                time.sleep(self.random.uniform(0.0, 0.5))
                job.cancel() if ending == "cancel" else job.stop()
            try:
                job.wait()
            except Planned:
                assert ending == "raise in the output"
        rows = pa.concat_tables([query.schema.empty_table(), *tables])
        moments = rows[query.time].cast(pa.int64()).to_numpy()
        assert (moments[1:] >= moments[:-1]).all(), "results left out of the order of event time"
        if ending == "end":
            self._check_whole(rows)
        elif ending == "stop":
            self._check_stopped(rows, job.rows)
        else:
            self._check_part(rows)
        return changes()

    def _break(self, query: tg.Stream, settings: dict[str, Any], after: int) -> int:
        """Leave off reading the results in the middle."""
        tables: list[pa.Table] = []
        with tg.start(query, **settings) as job, self._changing(job) as changes:
            for table in job:
                tables.append(table)
                if len(tables) > after:
                    break
        self._check_part(pa.concat_tables([query.schema.empty_table(), *tables]))
        return changes()

    @contextmanager
    def _changing(self, job: Any) -> Iterator[Callable[[], int]]:
        """Change the instances of a job all the time; gives how often that was done."""
        ended, done = threading.Event(), [0]
        overdue: list[tg.UserError] = []
        pauses = random.Random(self.random.random())

        def change() -> None:
            while not ended.wait(pauses.uniform(0.0, 0.02)):
                try:
                    job.reconfigure(instances=pauses.randint(1, MOST), timeout_seconds=60.0)
                    done[0] += 1
                except (tg.UserError, Planned, tg.EnvironmentFault) as error:
                    if isinstance(error, tg.UserError) and "did not complete" in str(error):
                        overdue.append(error)
                    return  # the input has ended, or the run has

        thread = threading.Thread(target=change, name="changes", daemon=True)
        thread.start()
        try:
            yield lambda: done[0]
        finally:
            ended.set()
            thread.join()
        if overdue:
            raise overdue[0]

    def _check_whole(self, rows: pa.Table) -> None:
        wrong = difference(rows, self.expected)
        assert wrong is None, wrong

    def _check_part(self, rows: pa.Table) -> None:
        """Nothing that the whole answer does not have, and nothing twice."""
        names = rows.schema.names
        ours, whole = (table.group_by(names).aggregate([([], "count_all")]) for table in (rows, self.expected))
        both = ours.join(whole, keys=names, right_suffix=" expected")
        wrong = both.filter(pc.greater(both["count_all"], pc.coalesce(both["count_all expected"], 0)))
        assert not wrong.num_rows, f"{wrong.num_rows} rows that are not in the answer: {wrong.slice(0, 3).to_pylist()}"

    def _check_stopped(self, rows: pa.Table, read: int) -> None:
        """What the first tuples alone would give, in a run that nothing is done to."""
        query = self.build(self.data)
        (source,) = sources(query.node)
        assert isinstance(source.origin, Files)
        part = pa.concat_tables(pq.read_table(path) for path in source.origin.paths).slice(0, read)
        alone = self.data / f"first-{read}"
        tables: list[pa.Table] = []
        if read:
            (alone / "trades").mkdir(parents=True, exist_ok=True)
            pq.write_table(part, alone / "trades" / "part-00000.parquet")
            tg.run(self.build(alone), on="local", instances=1, to=tables.append, progress=False)
        wrong = difference(rows, pa.concat_tables([query.schema.empty_table(), *tables]))
        assert wrong is None, f"stopped after {read} tuples: {wrong}"


def _threads_left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tidegate")]


def main(name: str, data: str, expected: str, out: str, seed: str, seconds: str, disk: str = "") -> None:
    """Runs until the time is over; says how each went."""
    runs = Runs(name, Path(data), Path(expected), int(seed))
    endings = (*ENDINGS, FULL) if disk else ENDINGS
    small = SmallDisk(Path(disk), mounted=True) if disk else None
    until = time.monotonic() + float(seconds)
    number = 0
    while not number or time.monotonic() < until:
        ending = runs.random.choice(endings)
        place = Path(disk) / f"run-{number}" if ending == FULL else Path(out) / f"run-{number}"
        print(f"began {place}", flush=True)
        print(f"ran {runs.run(ending, place, small)}", flush=True)
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
