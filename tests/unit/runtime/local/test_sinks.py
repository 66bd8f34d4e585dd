"""Where results go in this process, and what is left when they cannot."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.cli.main import main
from tidegate.errors import CheckpointError, EnvironmentFault, QueryError, UserError
from tidegate.results import PartWriter, read_results, write_results

TIME = pa.timestamp("us", tz="UTC")


def calls(rows: int) -> pa.Table:
    return pa.table({"ts": pa.array(range(rows), pa.int64()).cast(TIME), "k": [f"key {row}" for row in range(rows)]})


def counts(rows: int = 30) -> tg.Stream:
    return tg.stream(calls(rows), time="ts").key_by("k").window("10us").aggregate(n=tg.count())


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_folder_takes_results(kind: str, tmp_path: Path) -> None:
    result = tg.run(counts(), on="local", to=tmp_path / "out", format=kind, progress=False)
    assert sum(result.read().column("n").to_pylist()) == result.results == 30
    job = tg.start(counts(), to=tmp_path / "other", format=kind)
    assert job.wait(30)
    assert [path.suffix for path in (tmp_path / "other").iterdir()] == [".parquet" if kind == "parquet" else ".json"]


def test_a_function_takes_results() -> None:
    tables: list[pa.Table] = []
    result = tg.run(counts(), on="local", to=tables.append, progress=False)
    assert sum(table.num_rows for table in tables) == result.results == 30
    with pytest.raises(UserError, match="went to the screen, a function or a topic"):
        result.read()
    with pytest.raises(QueryError, match="with on='local', a function"):
        tg.run(counts(), on="reference", to=tables.append)
    with pytest.raises(QueryError, match="is for results in a folder"):
        tg.run(counts(), on="local", to=tables.append, format="jsonl")


def test_a_loop_takes_results() -> None:
    assert sum(table.num_rows for table in tg.start(counts())) == 30


def parted(rows: int = 30) -> dict[str, tg.Stream]:
    stream = tg.stream(calls(rows), time="ts")
    return {"calls": stream, "counts": stream.key_by("k").window("10us").aggregate(n=tg.count())}


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("on", ["local", "reference"])
def test_each_of_several_results_has_a_folder(kind: str, on: str, tmp_path: Path) -> None:
    result = tg.run(parted(), on=on, to=tmp_path / "out", format=kind, progress=False)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["calls", "counts"]
    assert result.read("calls").num_rows == sum(result.read("counts").column("n").to_pylist()) == 30
    assert result.results == 60
    with pytest.raises(UserError, match=r"read\(\) names none; it has 'calls', 'counts'"):
        result.read()
    with pytest.raises(UserError, match="read\\('n'\\) names none"):
        result.read("n")
    with pytest.raises(CheckpointError, match="out is not empty"):
        tg.run(parted(), on=on, to=tmp_path / "out", format=kind, progress=False)


def test_a_function_and_a_loop_are_told_which_result_a_table_is_of() -> None:
    taken: list[tuple[str, int]] = []
    tg.run(parted(), on="local", to=lambda name, table: taken.append((name, table.num_rows)), progress=False)
    looped = [(name, table.num_rows) for name, table in tg.start(parted())]
    for found in (taken, looped):
        assert {name: sum(rows for other, rows in found if other == name) for name, _ in found} == {
            "calls": 30,
            "counts": 30,
        }


def test_the_command_line_writes_a_folder_for_each_of_a_dict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(calls(30), tmp_path / "in", "parquet")
    (tmp_path / "query.py").write_text(
        "import narwhals as nw, tidegate as tg\n"
        f"calls = tg.stream({str(tmp_path / 'in')!r}, time='ts')\n"
        "results = calls.route(first=nw.col('k') == 'key 0', rest=True)\n"
    )
    out = str(tmp_path / "out")
    assert main(["run", str(tmp_path / "query.py"), "--on", "local", "--to", out]) == 0
    assert "30 rows read, 0 late; 30 results written to" in capsys.readouterr().err
    found = {
        name: read_results(tmp_path / "out" / name, "parquet", calls(1).schema).num_rows for name in ("first", "rest")
    }
    assert found == {"first": 1, "rest": 29}
    assert main(["explain", str(tmp_path / "query.py"), "--on", "local"]) == 0
    assert "output 'rest'" in capsys.readouterr().out
    assert main(["plan", str(tmp_path / "query.py"), "--sample", "10"]) == 0


def test_the_screen_shows_each_of_several_results(capsys: pytest.CaptureFixture[str]) -> None:
    tg.run(parted(), on="local", progress=False, show=1)
    shown = capsys.readouterr().out
    tg.run(parted(), on="reference", progress=False, show=1)
    assert shown == capsys.readouterr().out
    assert [line for line in shown.splitlines() if line[0] in "c("] == [
        "calls",
        "(30 rows, 1 shown)",
        "counts",
        "(30 rows, 1 shown)",
    ]


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_the_command_line_writes_and_shows(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.csv").write_text("ts,k\n2024-01-01T00:00:00Z,a\nnoon,a\n")
    (tmp_path / "query.py").write_text(
        "import pyarrow as pa, tidegate as tg\n"
        f"calls = tg.stream({str(tmp_path / 'in.csv')!r}, time='ts', dead_letters={str(tmp_path / 'dead.jsonl')!r},\n"
        "    schema={'ts': pa.timestamp('us', tz='UTC'), 'k': pa.string()})\n"
        "query = calls.key_by('k').window('1 second').aggregate(n=tg.count())\n"
    )
    command = ["run", f"{tmp_path / 'query.py'}:query", "--on", "local"]
    assert main([*command, "--to", str(tmp_path / "out"), "--format", kind]) == 0
    told = capsys.readouterr().err
    assert "1 rows read, 0 late, 1 malformed; 1 results written to" in told
    assert main([*command, "--quiet"]) == 0
    assert "(1 row)" in capsys.readouterr().out
    assert [json.loads(line)["line"] for line in (tmp_path / "dead.jsonl").read_text().splitlines()] == [3, 3]


@pytest.mark.parametrize("on", ["local", "reference"])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(on: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"results cannot be written to .*file/out: .*; choose another folder"):
        tg.run(counts(), on=on, to=tmp_path / "file" / "out", progress=False)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow beyond 100 kB, so a writer fails in the middle as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_ends_the_run_and_leaves_no_half_file(kind: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"results cannot be written to .*out: .*File too large"):
        tg.run(tg.stream(calls(50_000), time="ts"), on="local", to=tmp_path / "out", format=kind, progress=False)
    with pytest.raises(EnvironmentFault, match=r"results cannot be written to .*whole: .*File too large"):
        write_results(calls(50_000), tmp_path / "whole", kind)
    assert list((tmp_path / "out").iterdir()) == list((tmp_path / "whole").iterdir()) == []


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.usefixtures("full_disk")
def test_parts_that_were_whole_before_the_disk_was_full_stay(kind: str, tmp_path: Path) -> None:
    writer = PartWriter(tmp_path, kind, calls(1).schema, rows_per_part=100)
    writer.write(calls(100))
    with pytest.raises(EnvironmentFault, match="the 1 parts before are whole"):
        writer.write(calls(50_000))
    assert read_results(tmp_path, kind, calls(1).schema).num_rows == 100
    assert len(list(tmp_path.iterdir())) == 1
