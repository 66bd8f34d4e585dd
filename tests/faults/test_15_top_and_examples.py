"""What people copy and what they look at: the examples say what the papers say, and ``tidegate top`` ends."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.ledger_loops import Swinging
from tidegate.cli.main import main
from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule
from tidegate.telemetry.ledger import Ledger

EXAMPLES = Path(__file__).parents[2] / "examples"


class Obeying:
    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        return ChangeOutcome(True)


def step(record: Ledger) -> None:
    loop = ControlLoop(Rule(Swinging(), Limits(1, 4)), Obeying(), record)
    loop.step(Observation("speed", 5.0, 1.0, 2, offered=100.0, processed=90.5, busy=(0.5, 1.0), backlog=0.0))


TOP = "import sys; from tidegate.cli.main import main; sys.exit(main(['top', sys.argv[1], '--every', '0.1']))"


class OnTerminal:
    """``tidegate top`` on a terminal of its own."""

    def __init__(self, ledger: Path) -> None:
        self.side, theirs = pty.openpty()
        self.process = subprocess.Popen([sys.executable, "-c", TOP, str(ledger)], stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.shown = ""

    def read_until(self, text: str, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while text not in self.shown and time.monotonic() < until:
            self._read()
        assert text in self.shown

    def ends(self, seconds: float = 20) -> bool:
        """Whether it ends; what it shows is read meanwhile, as a terminal does."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            self._read()
        ended = self.process.poll() == 0
        self.process.kill()
        self.process.wait()
        self._read()
        os.close(self.side)
        return ended

    def _read(self) -> None:
        if select.select([self.side], [], [], 0.1)[0]:
            with suppress(OSError):  # nobody is left at the other side
                self.shown += os.read(self.side, 65_536).decode()


def test_top_shows_a_run_that_has_ended_and_ends(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "run.ledger", "a job") as record:
        step(record)
    top = OnTerminal(tmp_path / "run.ledger")
    assert top.ends()
    assert "run 1 of a job: ended" in top.shown
    assert "speed" in top.shown


def test_top_follows_a_run_to_its_end(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "run.ledger", "a job") as record:
        step(record)
        top = OnTerminal(tmp_path / "run.ledger")
        top.read_until("run 1 of a job: running")
        time.sleep(0.5)
        assert top.process.poll() is None
    assert top.ends()
    assert "run 1 of a job: ended" in top.shown


KILLED = """
import sys, time
from tidegate.telemetry.ledger import Ledger
Ledger.open(sys.argv[1], "a job")
print("open", flush=True)
time.sleep(60)
"""


def test_top_notices_that_the_process_of_a_run_was_killed(tmp_path: Path) -> None:
    ledger = tmp_path / "run.ledger"
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(ledger)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    top = OnTerminal(ledger)
    top.read_until("run 1 of a job: running")
    writer.send_signal(signal.SIGKILL)  # it stays a zombie until it is waited for
    assert top.ends()
    assert "run 1 of a job: its process is gone" in top.shown
    writer.wait()
    writer.stdout.close()


def test_top_into_a_pipe_shows_a_run_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open(tmp_path / "run.ledger", "a job") as record:
        step(record)
        assert main(["top", str(tmp_path / "run.ledger")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("run 1 of a job: running") == 1
    assert "\x1b" not in shown


README = Path(__file__).parents[2] / "README.md"


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_no_line_of_the_comparison_is_there_twice() -> None:
    what = [
        line.split("|")[1].strip() for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    assert not [one for one in what for other in what if one != other and one and other.startswith(one + " ")]


def write(columns: dict[str, Any], *folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / "part-0.parquet")


@pytest.mark.spark
def test_the_python_of_the_readme_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions

    moment = pa.array([1_704_096_000_000_000 + 1_000_000 * number for number in range(200)]).cast(
        pa.timestamp("us", "UTC")
    )
    number = pa.array([float(each) for each in range(200)])
    write({"ts": moment, "user": ["u"] * 200, "text": ["so it goes"] * 200}, tmp_path / "job" / "tweets")
    write({"ts": moment, "x": number, "y": number}, tmp_path / "joins" / "left")
    write({"ts2": moment, "a": number, "b": number}, tmp_path / "joins" / "right")
    names: dict[str, Any] = {"spark": spark, "F": functions}
    job, native, ours, in_process = snippets()

    monkeypatch.chdir(tmp_path / "job")
    # Spark's own folder is that of its process, which began elsewhere.
    exec(re.sub(r'"(tweets|out|checkpoint)/"', lambda found: f'"{tmp_path}/job/{found[1]}"', job), names)
    (started,) = spark.streams.active
    started.processAllAvailable()
    started.stop()
    words = spark.read.parquet(str(tmp_path / "job" / "out")).collect()
    assert {row.word for row in words} == {"so", "it", "goes"}

    monkeypatch.chdir(tmp_path / "joins")
    for side, time_column in (("left", "ts"), ("right", "ts2")):
        folder = str(tmp_path / "joins" / side)
        names[f"{side}_df"] = spark.readStream.schema(spark.read.parquet(folder).schema).parquet(folder)
        names[side] = names[f"{side}_df"].withWatermark(time_column, "1 minute")
    reason = native.rpartition("… ")[2].strip()
    assert reason.startswith("Stream-stream join")
    exec(native.replace("left.join(", "joined = left.join("), names)
    refused = names["joined"].writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(StreamingQueryException, match=reason.rstrip(".")):
        refused.awaitTermination()

    exec(ours, names)
    assert names["near"].to_spark(state=tmp_path / "state").isStreaming
    exec(in_process, names)
    near = sum(max(0, 200 - abs(apart)) for apart in range(-10, 11))
    assert pq.read_table(tmp_path / "joins" / "out").num_rows == near
