"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tidegate.cli.main import main
from tidegate.cli.queries import load_query
from tidegate.results import read_results
from tidegate.testing import answer, difference

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = [
    *sorted(file for file in FOLDER.glob("*.py") if file.name not in ("__init__.py", "application.py")),
    *sorted(file.parent for file in FOLDER.glob("*/application.py")),
]
LOOPS = {"pagerank"}
"""Examples that Spark cannot run."""
COMMAND = [sys.executable, "-m", "tidegate.cli.main"]

QUERY = """
import tidegate as tg
query = tg.stream({files!r}, time="time").key_by("appId").window("90 seconds", every="60 seconds").aggregate(
    flows=tg.count(), amount=tg.sum("flowAmount"))
"""

JOINED = """
import tidegate as tg
flows = tg.stream({files!r}, time="time")
pairs = flows.join(flows, within="20 seconds", where=lambda l, r: abs(l.flowAmount - r.flowAmount) <= 40)
query = pairs.key_by("appId").window("90 seconds", every="60 seconds").aggregate(
    pairs=tg.count(), amount=tg.sum("flowAmount_right"))
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with a query over five small files."""
    made = tmp_path / "flows.py"
    made.write_text(QUERY.format(files=usage(tmp_path / "usage", rows=600, minutes=10, files=5)))
    return str(made)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_explained(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = "local" if example.stem in LOOPS else "spark"
    assert main(["explain", str(example), "--on", runtime, "--instances", "90", "--rate", "200000"]) == 0
    assert "on 90 instances at 200,000 tuples/s" in capsys.readouterr().out


def test_the_reference_needs_no_spark(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", file, "--on", "reference", "--to", str(tmp_path / "out")]) == 0
    assert difference(pq.read_table(tmp_path / "out"), answer(load_query(file)).rows) is None
    assert main(["run", file, "--on", "reference"]) == 0
    told = capsys.readouterr()
    assert "rows, 20 shown)" in told.out
    assert "600 rows read, 0 late" in told.err


def test_operators_made_of_aggregates_give_the_same(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = tmp_path / "some.py"
    some.write_text(f"{Path(file).read_text()}\nimport narwhals as nw\nsome = query.filter(nw.col('flows') > 1)\n")
    target = f"{some}:some"
    for operators in ("multi", "single"):
        out = tmp_path / operators
        assert main(["run", target, "--on", "local", "--operators", operators, "--to", str(out), "--quiet"]) == 0
        assert difference(pq.read_table(out), answer(load_query(target)).rows) is None
    assert main(["explain", target, "--on", "local", "--operators", "multi"]) == 0
    assert "made of Aggregates, multi" in capsys.readouterr().out
    assert main(["run", target, "--operators", "single", "--quiet"]) == 2
    assert "a plan of Spark's has no edge back" in " ".join(capsys.readouterr().err.split())


@pytest.mark.spark
def test_a_query_runs_on_spark_and_is_not_run_twice(
    spark: Any, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", file, "--to", str(tmp_path / "out.jsonl"), "--files-per-batch", "3"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert "input ended" in told.err
    assert "600 rows read, 0 late" in told.err
    assert main([*command, "--quiet"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "is finished" in told.err
    assert "Traceback" not in told.err


@pytest.mark.spark
def test_the_demo_leaves_earlier_results_alone(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "heavy-customers-1").mkdir()
    assert main(["demo", "--rows", "1500", "--to", str(tmp_path), "--spark-only"]) == 0
    told = capsys.readouterr().out
    assert "heavy-customers-2, as parquet" in told
    assert "Heavy customers of the last whole hour" in told
    assert not list((tmp_path / "heavy-customers-1").iterdir())


@pytest.mark.spark
def test_an_interrupted_run_says_how_to_go_on(
    spark: Any, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = tmp_path / "out" / "_checkpoint" / "spark" / "commits" / "0"

    def interrupt() -> None:
        wait_for(commit.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    helper = threading.Thread(target=interrupt)
    helper.start()
    code = main(["run", file, "--to", str(tmp_path / "out"), "--files-per-batch", "1"])
    helper.join()
    assert code == 130
    assert capsys.readouterr().err.splitlines()[-1] == "tidegate: interrupted: the same command goes on from here"


def test_an_interrupt_has_its_own_exit_code_and_says_what_it_was_told(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt("the same command goes on from here")

    monkeypatch.setattr(tg, "run", interrupted)
    assert main(["run", file]) == 130
    assert capsys.readouterr().err == "tidegate: interrupted: the same command goes on from here\n"


def test_a_closed_pipe_ends_the_command_quietly(file: str) -> None:
    with subprocess.Popen([*COMMAND, "explain", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """A join and, after it, windows: both have state when the process is killed."""
    file, out = str(tmp_path / "joined.py"), tmp_path / "out"
    Path(file).write_text(JOINED.format(files=usage(tmp_path / "usage", rows=600, minutes=10, files=5)))
    command = [*COMMAND, "run", file, "--to", str(out), "--master", "local[2]", "--files-per-batch", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        wait_for((out / "_checkpoint" / "spark" / "commits" / "0").exists, first)
        busy = subprocess.run(command, capture_output=True, text=True, check=False)
        wait_for((out / "_checkpoint" / "spark" / "commits" / "1").exists, first)
        first.send_signal(signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL
    assert busy.returncode == 2
    assert f"in use by another run (process {first.pid})" in " ".join(busy.stderr.split())

    law = answer(load_query(file)).rows
    assert pq.read_table(out).num_rows < law.num_rows
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert difference(read_results(out, "parquet", law.schema), law) is None
    assert pq.read_table(out).num_rows == law.num_rows


def test_without_java_it_says_how_to_get_it(file: str, tmp_path: Path) -> None:
    bare = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "TIDEGATE_DEBUG")}
    told = subprocess.run(
        [*COMMAND, "run", file], capture_output=True, text=True, check=False, env=bare | {"PATH": str(tmp_path)}
    )
    assert told.returncode == 3
    assert told.stderr.startswith("tidegate: Spark needs Java, and none was found. Install a full Java 17")
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import tidegate as tg\n", "has no query"),
        ("import tidegate as tg\nx = 1 / 0\n", "line 2: ZeroDivisionError: division by zero"),
        ("import tidegate as tg\nx = = 1\n", "line 2: invalid syntax"),
        ('import tidegate as tg\ns = tg.stream("nowhere/*.parquet", time="t")\n', "no file matches"),
    ],
)
def test_a_mistake_in_the_file_is_told_in_a_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "query.py").write_text(text)
    assert main(["run", str(tmp_path / "query.py")]) == 2
    told = capsys.readouterr().err
    assert said in " ".join(told.split())
    assert "Traceback" not in told


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in (
        (["--version"], 0),
        (["--help"], 0),
        ([], 2),
        (["run", "x.py", "--files-per-batch", "0"], 2),
    ):
        assert main(arguments) == code
    told = capsys.readouterr()
    assert f"tidegate {tg.__version__}" in told.out
    assert "exit codes:" in told.out
    assert "'--files-per-batch'" in told.err
    assert "Traceback" not in told.err


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so; a process that ends before is a failure, told in its own words."""
    deadline = time.monotonic() + 100
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(process.stderr.read() if process.stderr is not None else "the process has ended")
        assert time.monotonic() < deadline
        time.sleep(0.02)


PIPED = """
import pyarrow as pa
import tidegate as tg
query = tg.stream("-", time="ts", schema={"ts": pa.timestamp("us"), "k": pa.string()}).key_by("k").window("1 second")
query = query.aggregate(n=tg.count())
"""


def test_lines_go_in_and_out_through_pipes_and_a_closed_one_ends_the_run_quietly(tmp_path: Path) -> None:
    (tmp_path / "piped.py").write_text(PIPED)
    lines = "".join(
        f'{{"ts": "2024-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}", "k": "a"}}\n' for n in range(9_000)
    )
    run = [*COMMAND, "run", str(tmp_path / "piped.py"), "--on", "local", "--to", "-"]
    with subprocess.Popen(
        run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        child.stdin.write(lines)
        child.stdin.flush()
        first = child.stdout.readline()
        child.stdout.close()
        # The run may have ended before it has read all of this.
        with suppress(BrokenPipeError):
            child.stdin.write(lines.replace("2024", "2025"))
        with suppress(BrokenPipeError):
            child.stdin.close()
        said = child.stderr.read()
        assert child.wait() == 141
    assert first.startswith('{"ts": "2024-01-01T00:00:00.999999", "k": "a"') and first.endswith('"n": 1}\n')
    assert "rror" not in said
    assert "Traceback" not in said
