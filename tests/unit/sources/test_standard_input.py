"""Lines that come through a pipe: when they are read, which are malformed, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import DataError, QueryError, UnsupportedError
from tidegate.sources import PlacedBatch, Rejects
from tidegate.sources.standard_input import StandardInput

TYPES = {"ts": pa.timestamp("us"), "k": pa.string()}
SCHEMA = pa.schema({"x": pa.int64()})


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Where to read and where to write; both ends are closed after the test, unless they have been."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def arriving(read: int, pauses: Iterator[bool] | None = None, path: str | None = None) -> Iterator[PlacedBatch]:
    origin = StandardInput(SCHEMA, read)
    pause = (lambda seconds: next(pauses)) if pauses is not None else (lambda seconds: False)
    return origin.arriving(SCHEMA, 100, Rejects("s", path), None, pause)


def test_a_line_is_read_when_it_is_complete(pipe: tuple[int, int]) -> None:
    read, write = pipe
    batches = arriving(read)
    os.write(write, b'\xef\xbb\xbf{"x": 1}\r\n{"x"')
    first = next(batches)
    assert (first.batch.to_pylist(), first.place.of(0)) == ([{"x": 1}], "<stdin>, line 1")
    os.write(write, b': 2}\n\n{"x": 3}')
    second = next(batches)
    assert (second.batch.to_pylist(), second.place.of(0)) == ([{"x": 2}], "<stdin>, line 2")
    os.close(write)
    last = next(batches)
    assert (last.batch.to_pylist(), last.place.of(0)) == ([{"x": 3}], "<stdin>, line 4")
    assert list(batches) == []


def test_a_malformed_line_is_named_or_set_aside(pipe: tuple[int, int], tmp_path: Path) -> None:
    read, write = pipe
    os.write(write, b'{"x": 1}\nnonsense\n{"x": 2}\n')
    with pytest.raises(DataError, match=r"^<stdin>, line 2: not JSON: .*; the line is 'nonsense'"):
        list(arriving(read))
    os.write(write, b'{"x": 1}\nnonsense\n{"x": 2}\n')
    os.close(write)
    letters = tmp_path / "dead.jsonl"
    assert [each.batch.column(0).to_pylist() for each in arriving(read, path=str(letters))] == [[1, 2]]
    (letter,) = map(json.loads, letters.read_text().splitlines())
    assert (letter["file"], letter["line"], letter["raw"]) == ("<stdin>", 2, "nonsense")
    assert tg.stream("-", time="ts", schema=TYPES, dead_letters=letters).node.dead_letters == str(letters)


def test_a_line_that_is_cut_short_by_a_stop_is_no_record(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b'{"x": 1}\n{"x"')
    # Asked before each read and each block: the second read finds that no more is wanted.
    found = [each.batch.to_pylist() for each in arriving(read, iter([False, False, True, True]))]
    assert found == [[{"x": 1}]]


def test_a_run_reads_to_the_end_and_only_once(pipe: tuple[int, int]) -> None:
    read, write = pipe
    lines = "".join(f'{{"ts": "2024-01-01T00:00:{second:02}", "k": "a"}}\n' for second in range(30))
    os.write(write, lines.encode())
    os.close(write)
    stream = tg.stream("-", time="ts", schema=TYPES)
    stream.node.origin.descriptor = read
    query = stream.key_by("k").window("10 seconds").aggregate(n=tg.count())
    assert [row["n"] for table in tg.start(query) for row in table.to_pylist()] == [10, 10, 10]
    with pytest.raises(QueryError, match="stream 'stdin' reads a standard input, which gives its items once"):
        tg.start(query)


def test_a_run_that_is_stopped_does_not_wait_for_a_line(pipe: tuple[int, int]) -> None:
    stream = tg.stream("-", time="ts", schema=TYPES)
    stream.node.origin.descriptor = pipe[0]
    with tg.start(stream, to=lambda table: None) as job:
        job.stop()
    assert job.rows == 0


def test_what_standard_input_and_output_cannot_do(tmp_path: Path) -> None:
    stream = tg.stream("-", time="ts", schema=TYPES)
    with pytest.raises(QueryError, match=r"'-' is standard input, .* declare its columns with schema="):
        tg.stream("-", time="ts")
    with pytest.raises(QueryError, match="leave follow out"):
        tg.stream("-", time="ts", schema=TYPES, follow=True)
    with pytest.raises(QueryError, match="streams 'a' and 'b' read the same standard input"):
        tg.start(
            tg.stream("-", time="ts", schema=TYPES, name="a").union(tg.stream("-", time="ts", schema=TYPES, name="b"))
        )
    with pytest.raises(UnsupportedError, match="checkpoint: stream 'stdin' reads a StandardInput"):
        tg.start(stream, to=tmp_path / "out", checkpoint=tmp_path / "cp")
    table = tg.stream(pa.table({"ts": pa.array([1], TYPES["ts"])}), time="ts")
    for query, options in ((table, {"on": "reference"}), (table, {"format": "parquet"}), ({"a": table}, {})):
        with pytest.raises(QueryError, match="to='-' writes the rows of one result to standard output"):
            tg.run(query, to="-", **{"on": "local", **options})


def test_results_go_to_standard_output_as_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"ts": pa.array([1, 2], TYPES["ts"]), "k": ["a", None]})
    result = tg.run(tg.stream(table, time="ts"), on="local", to="-", progress=False)
    assert result.results == 2
    assert capsys.readouterr().out.splitlines() == [
        '{"ts": "1970-01-01T00:00:00.000001", "k": "a"}',
        '{"ts": "1970-01-01T00:00:00.000002", "k": null}',
    ]
