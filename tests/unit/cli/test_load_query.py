"""Which query a file stands for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidegate.cli.queries import load_query
from tidegate.errors import QueryError

STREAM = """\
from __future__ import annotations
from dataclasses import dataclass
import pyarrow as pa, tidegate as tg
s = {"ts": pa.timestamp("us"), "k": pa.string()}
"""


def write(folder: Path, *lines: str) -> str:
    path = folder / "my_query.py"
    path.write_text(STREAM + "\n".join(lines))
    return str(path)


def test_the_only_query_or_the_one_called_query(tmp_path: Path) -> None:
    only = write(tmp_path, "a = tg.stream(s, time='ts', name='a')", "_b = tg.stream(s, time='ts', name='b')")
    assert load_query(only).node.name == "a"
    preferred = write(tmp_path, "a = tg.stream(s, time='ts')", "query = tg.stream(s, time='ts', name='q')")
    assert load_query(preferred).node.name == "q"
    assert load_query(f"{preferred}:a").node.name == "stream"


def test_a_dict_of_queries_is_one_query_of_several_results(tmp_path: Path) -> None:
    lines = ["a = tg.stream(s, time='ts', name='a')", "b = a.select('ts')"]
    several = write(tmp_path, *lines, "results = {'all': a, 'times': b}", "settings = {'all': 1}", "empty = {}")
    assert load_query(several).schema.names == ["all", "times"]
    assert load_query(f"{several}:a").node.name == "a"
    preferred = write(tmp_path, *lines, "results = {'all': a}", "query = b")
    assert load_query(preferred).schema.names == ["ts"]
    two = write(tmp_path, *lines, "one = {'all': a}", "two = {'times': b}")
    with pytest.raises(QueryError, match=r"several queries; .* There are 'a', 'b', 'one', 'two'"):
        load_query(two)


def test_the_choices_are_listed(tmp_path: Path) -> None:
    several = write(tmp_path, "a = tg.stream(s, time='ts')", "b = tg.stream(s, time='ts')")
    with pytest.raises(QueryError, match=r"several queries; name one, as in .*my_query.py:a. There are 'a', 'b'"):
        load_query(several)
    with pytest.raises(QueryError, match="no query called 'c'; it has 'a', 'b'"):
        load_query(f"{several}:c")
    with pytest.raises(QueryError, match=r"there is no file 'nowhere\.py'"):
        load_query("nowhere.py:query")


def test_functions_of_the_file_can_be_shipped(tmp_path: Path) -> None:
    """A class that needs its module while it is made, and a function that must not be pickled by name."""
    path = write(
        tmp_path,
        "@dataclass",
        "class Limit:",
        "    value: int",
        "def keep(batch): return batch.slice(0, Limit(3).value)",
        "query = tg.stream(s, time='ts').map_batches(keep)",
    )
    from pyspark import cloudpickle

    before = set(sys.modules)
    function = load_query(path).node.function  # type: ignore[union-attr]
    assert function.__module__ not in sys.modules
    assert not {name for name in set(sys.modules) - before if "my_query" in name}
    assert b"slice" in cloudpickle.dumps(function)
