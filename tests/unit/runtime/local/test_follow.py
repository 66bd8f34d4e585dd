"""Queries over folders that grow, in this process: what is read, how the run ends, and how it goes on."""

from __future__ import annotations

import _thread
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import DataError, UnsupportedError
from tidegate.results import read_results
from tidegate.runtime.local.sinks import ToScreen
from tidegate.testing import answer, difference

SCHEMA = {"ts": pa.timestamp("us", tz="UTC"), "k": pa.string()}
SECONDS = 20.0


def write(folder: Path, name: str, seconds: list[float]) -> None:
    """A file that appears whole, under its name."""
    folder.mkdir(exist_ok=True)
    times = pa.array([int(each * 1e6) for each in seconds], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"ts": times, "k": ["a"] * len(seconds)}), folder / ".draft")
    (folder / ".draft").rename(folder / name)


def counts(folder: Path, **options: bool) -> tg.Stream:
    stream = tg.stream(str(folder / "*.parquet"), time="ts", schema=SCHEMA, **options)
    return stream.key_by("k").window("2 seconds", every="1 second").aggregate(n=tg.count())


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_new_files_are_read_until_the_job_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    job = tg.start(counts(folder, follow=True), to=tmp_path / "out")
    for number, name in enumerate(("m", "z", "a")):
        write(folder, f"{name}.parquet", [number + 0.25, number + 0.5])
        until(lambda number=number: job.rows == 2 * number + 2)
    assert not job.ended
    job.stop()
    assert job.wait(SECONDS)
    got = read_results(tmp_path / "out", "parquet", counts(folder).schema)
    # The reference takes the names in their order, and says so of the same tuples with enough disorder.
    stream = tg.stream(str(folder), time="ts", disorder="10 seconds")
    law = answer(stream.key_by("k").window("2 seconds", every="1 second").aggregate(n=tg.count()))
    assert difference(got, law.rows) is None


@pytest.mark.parametrize("archived", [False, True])
def test_a_cancelled_run_goes_on_with_all_files_that_it_has_not_read(tmp_path: Path, archived: bool) -> None:
    """Twice; between runs files appear whose names come before those that were read, and files that were read go."""
    folder, names = tmp_path / "in", iter("mzab")
    whole = tmp_path / "whole"
    for run in range(3):
        write(folder, f"{(name := next(names))}.parquet", [3 * run + 0.25, 3 * run + 0.5])
        write(whole, f"{run}-{name}.parquet", [3 * run + 0.25, 3 * run + 0.5])
        job = tg.start(counts(folder, follow=True), to=tmp_path / "out", checkpoint=tmp_path / "cp", every="10 ms")
        until(lambda job=job: job.rows >= 2)
        snapshots = job.running.snapshots
        assert snapshots is not None
        before = snapshots.checkpoint.last.number if snapshots.checkpoint.last is not None else 0
        until(lambda: snapshots.checkpoint.last is not None and snapshots.checkpoint.last.number > before + 2)  # noqa: B023
        assert job.rows == 2
        if run == 2:
            job.stop()
            assert job.wait(SECONDS)
        else:
            job.cancel()
        if archived:
            (folder / f"{name}.parquet").unlink()
    got = read_results(tmp_path / "out", "parquet", counts(whole).schema)
    assert difference(got, answer(counts(whole)).rows) is None
    # A run that was stopped has ended its input: it is finished.
    write(folder, "0.parquet", [100.0])
    again = tg.start(counts(folder, follow=True), to=tmp_path / "out", checkpoint=tmp_path / "cp")
    assert again.wait(SECONDS)
    assert again.rows == 0


def test_a_changed_file_ends_the_run(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", [0.5])
    job = tg.start(counts(tmp_path / "in", follow=True), to=lambda table: None)
    until(lambda: job.rows == 1)
    write(tmp_path / "in", "a.parquet", [0.5, 1.5, 2.5])
    with pytest.raises(DataError, match=r"a\.parquet was changed after it was found, and a file is read once"):
        job.wait(SECONDS)


@pytest.mark.parametrize("runtime", ["reference", "micro"])
def test_what_reads_all_input_first_refuses_input_without_end(tmp_path: Path, runtime: str) -> None:
    write(tmp_path / "in", "a.parquet", [0.5])
    with pytest.raises(UnsupportedError, match=r"follow=True and has no end, and .* reads all input before it begins"):
        tg.run(counts(tmp_path / "in", follow=True), on=runtime)


def test_a_run_that_only_an_interrupt_ends_wants_a_checkpoint_for_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", [0.5])
    with pytest.raises(tg.QueryError, match=r"stream 'in' is made with follow=True.*name a checkpoint=.*job\.stop\(\)"):
        tg.run(counts(tmp_path / "in", follow=True), on="local", to=tmp_path / "out")


def test_the_screen_has_what_came_before_an_interrupt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", "a.parquet", [0.5, 8.5])

    write_rows = ToScreen.write

    def interrupted(screen: ToScreen, table: pa.Table, output: int = 0) -> None:
        write_rows(screen, table, output)
        _thread.interrupt_main()

    monkeypatch.setattr(ToScreen, "write", interrupted)
    # A process that a shell started in the background ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        tg.run(counts(tmp_path / "in", follow=True), on="local", progress=False)
    signal.signal(signal.SIGINT, before)
    assert "(2 rows)" in capsys.readouterr().out
