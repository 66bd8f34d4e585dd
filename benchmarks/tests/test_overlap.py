"""The 24 queries: what their functions do, that inputs have the paper's selectivities, and readers on tiny files."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tidegate as tg
from benchmarks.engines.overlap import columns_of
from benchmarks.options import Options
from benchmarks.overlap import functions
from benchmarks.overlap.inter import SERVER_QUERIES, write_input
from benchmarks.overlap.on_micro import graph
from benchmarks.overlap.on_tidegate import query_over
from benchmarks.overlap.queries import QUERIES, JoinQuery, MapQuery
from benchmarks.overlap.scans import generate_scans, read_scans
from benchmarks.overlap.texts import generate_texts, read_texts
from tidegate import micro
from tidegate.testing import answer


def test_there_are_twelve_queries_over_each_kind_of_data() -> None:
    assert len(QUERIES) == 24 and len(SERVER_QUERIES) == 12
    for name, query in QUERIES.items():
        assert (query.data == "texts") is name.isupper()
        assert isinstance(query, JoinQuery) is name.upper().endswith("J")


def test_functions_by_hand() -> None:
    text = "the cat and the dog and the bird"
    assert functions.alm(text) == [("the",)]
    assert functions.hlm(text) == [("the",), ("and",), ("cat",)]
    assert functions.llm(text) == []
    assert functions.llm("extraordinary extraordinary tales") == [("extraordinary",)]
    assert functions.hhm(text, "a b", "z y x") == [("the", "a", "z"), ("and", "b", "y")]
    assert functions.lhm("extraordinary", "considerable", "no") == []
    assert functions.lhm("extraordinary", "considerable", "straightforward") == [
        ("extraordinary", "considerable", "straightforward")
    ]
    assert functions.words_in("one two three") == 3
    assert functions.texts_match("abc", "abd", 2)
    assert not functions.texts_match("abc", "ABC", 2), "distinct but for their case"
    assert not functions.texts_match("abc", "abd", 3)
    xs, ys = functions.cartesian([1.0, 2.0])
    assert (xs[0], ys[0], round(xs[1], 9), ys[1]) == (1.0, 0.0, 0.0, 2.0)
    parts = functions.hlm_scan(7, [1.0] * 7)
    assert [len(part[1]) for part in parts] == [3, 3, 1] and all(part[0] == 7 for part in parts)
    assert functions.llm_scan(7, [3.0] * 4) == [] and len(functions.llm_scan(7, [3.1] * 4)) == 1
    assert functions.scans_match([1.0, 2.0], [1.25, 2.125], 0.4) and not functions.scans_match([1.0], [1.5], 0.5)


def test_generated_texts_have_about_the_selectivities_of_the_paper() -> None:
    table = generate_texts(10_000, seed=3, per_second=1_000)
    rows = list(zip(*(table[name].to_pylist() for name in ("orig", "change", "updated")), strict=True))
    for name in ("LLM", "ALM", "HLM", "LHM", "AHM", "HHM"):
        query = QUERIES[name]
        assert isinstance(query, MapQuery)
        given = sum(len(query.function(*row[: len(query.columns)])) for row in rows) / len(rows)
        # The paper's are rounded to a digit or two; the low ones rest on a few tuples.
        assert query.selectivity / 3 <= given <= query.selectivity * 3, name
        if query.selectivity >= 1:
            assert given == pytest.approx(query.selectivity, rel=0.05), name
    alike = defaultdict(list)
    for orig, change, _ in rows[:3_000]:
        alike[functions.words_in(change)].append(len(orig))
    comparisons = sum(len(lengths) ** 2 for lengths in alike.values())
    for name in ("LLJ", "ALJ", "HLJ"):
        query = QUERIES[name]
        assert isinstance(query, JoinQuery)
        long = [[length for length in lengths if length > query.bound] for lengths in alike.values()]
        found = sum(lengths.count(length) - 1 for lengths in long for length in lengths)
        assert query.selectivity / 3 <= found / comparisons <= query.selectivity * 3, name


def test_generated_scans_have_about_the_selectivities_of_the_paper() -> None:
    table = generate_scans(600, seed=3, per_second=50)
    rows = list(zip(table["scan"].to_pylist(), table["dist"].to_pylist(), strict=True))
    for name in ("llm", "alm", "hlm", "lhm", "ahm", "hhm"):
        query = QUERIES[name]
        assert isinstance(query, MapQuery)
        given = sum(len(query.function(*row)) for row in rows) / len(rows)
        assert given == pytest.approx(query.selectivity, rel=0.4), name


def test_a_text_depends_on_its_position_alone() -> None:
    assert generate_texts(30, 1, 10).equals(generate_texts(50, 1, 10).slice(0, 30))
    assert not generate_texts(30, 2, 10)["orig"].equals(generate_texts(30, 1, 10)["orig"])


def test_real_texts_are_read_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "wiki_versions_text"
    folder.mkdir()
    versions = [
        {"title": "a", "seq": 0, "orig": "a  small\ncat", "updated": "a very small cat"},
        {"title": "a", "seq": 1, "orig": "gone", "updated": ""},
        {"title": "b", "seq": 0, "orig": "one two", "updated": "one"},
    ]
    with gzip.open(folder / "versions.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(version) + "\n" for version in versions)
    table = read_texts(tmp_path, 3, per_second=1)
    assert table["orig"].to_pylist() == ["a small cat", "one two", "a small cat"]
    assert table["change"].to_pylist() == ["very", "one", "very"]
    assert table["updated"].to_pylist() == ["a very small cat", "one", "a very small cat"]
    with pytest.raises(FileNotFoundError, match="there is no wiki_versions_text/versions"):
        read_texts(tmp_path / "nowhere", 1, 1)


def test_real_scans_are_read_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "laser_carmen"
    folder.mkdir()
    lines = [
        "# message formats defined: FLASER",
        "PARAM robot_use_laser on 1071078718.4 merci 1071078718.4",
        "FLASER 3 1.65 1.5 81.91 0.1 0.2 0.3 0.1 0.2 0.3 0.227 pippo 0.227",
        "FLASER 3 2 2 2 0.1 0.2 0.3 0.1 0.2 0.3 0.468 pippo 0.468",
    ]
    with gzip.open(folder / "some.log.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    table = read_scans(tmp_path, 3, per_second=1)
    assert table["scan"].to_pylist() == [0, 1, 2]
    assert table["dist"].to_pylist() == [[1.65, 1.5, 81.91], [2.0, 2.0, 2.0], [1.65, 1.5, 81.91]]
    with pytest.raises(FileNotFoundError, match="no file matches laser_carmen"):
        read_scans(tmp_path / "nowhere", 1, 1)


@pytest.mark.parametrize("name", SERVER_QUERIES)
def test_micro_and_the_reference_give_what_plain_loops_give(name: str, tmp_path: Path) -> None:
    given = write_input(Options(tuples=160, seed=4, out=tmp_path), 160, tmp_path / "in")
    query = QUERIES[name]
    right = sorted(given.answer(query).rows())
    found = micro.collect(graph(query, given.files, splits=3))
    assert sorted(row[1:] if isinstance(query, JoinQuery) else row for row in found) == right
    stream = tg.stream(given.table, time="ts", name="tuples")
    law = answer(query_over(stream, query)).rows.select(columns_of(query))
    plain = [
        [int(v.timestamp() * 1_000_000) if hasattr(v, "timestamp") else v for v in row.values()]
        for row in law.to_pylist()
    ]
    assert sorted(map(tuple, plain)) == right
    assert pq.read_table(given.files[0]).num_rows == 40
