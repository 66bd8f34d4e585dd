"""What an engine of the matrix on Spark gave is compared as rows in any order; windows that are open at the end may lack."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.matrix.on_spark import comparable, compare, run
from benchmarks.options import Options

RIGHT = comparable(pl.DataFrame({"k": [1, 1, 2, 3], "value": [[1, 2], [1, 2], [3], None]}))


def test_rows_may_lack_at_the_end() -> None:
    compare("native", RIGHT.head(2), RIGHT)
    with pytest.raises(AssertionError, match="gave 1 of 4 rows"):
        compare("native", RIGHT.head(1), RIGHT)


@pytest.mark.parametrize(
    "wrong",
    [{"k": [1, 2], "value": [[1, 2], [4]]}, {"k": [2, 2], "value": [[3], [3]]}, {"k": [1, 3], "value": [[2, 1], None]}],
)
def test_a_row_that_is_not_there_or_not_so_often_is_wrong(wrong: dict[str, list[object]]) -> None:
    with pytest.raises(AssertionError, match="native gave 1 wrong rows"):
        compare("native", comparable(pl.DataFrame(wrong)), RIGHT)


@pytest.mark.long
@pytest.mark.parametrize(
    "cells", ["*two keys · *sliding", "*many keys · session", "* join*int keys", "lookup in a table", "top_n"]
)
def test_engines_agree(cells: str, tmp_path: Path) -> None:
    assert run(Options(tuples=4_000, runs=1, cells=cells, out=tmp_path)) == 0
