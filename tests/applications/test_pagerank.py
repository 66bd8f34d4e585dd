"""The ranks of pages that the example finds are those that a batch computation finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from examples.inputs.links import links as generated
from examples.pagerank.application import pagerank
from examples.pagerank.ranks import DAMPING, ROUNDS, ranks_of
from tidegate.testing import answer


def batch_ranks(links: pa.Table, window_us: int, rounds: int, damping: float) -> dict[tuple[int, str], float]:
    """Ranks by repeated multiplication with a matrix, for each window."""
    found: dict[tuple[int, str], float] = {}
    times = links.column("ts").cast(pa.int64()).to_numpy()
    for number in np.unique(times // window_us).tolist():
        inside = links.filter(pa.array(times // window_us == number)).to_pylist()
        pages = sorted({row[side] for row in inside for side in ("page", "to")})
        place = {page: at for at, page in enumerate(pages)}
        matrix = np.zeros((len(pages), len(pages)))
        for row in inside:
            matrix[place[row["to"]], place[row["page"]]] += 1
        matrix /= np.maximum(matrix.sum(axis=0), 1)
        ranks = np.ones(len(pages))
        for _ in range(rounds):
            ranks = (1 - damping) + damping * matrix @ ranks
        found |= {((number + 1) * window_us - 1, page): float(ranks[place[page]]) for page in pages}
    return found


def shown(table: pa.Table) -> dict[tuple[int, str], float]:
    times = table.column("ts").cast(pa.int64()).to_pylist()
    pages, ranks = table.column("page").to_pylist(), table.column("rank").to_pylist()
    return dict(zip(zip(times, pages, strict=True), ranks, strict=True))


@pytest.mark.parametrize(("instances", "operators"), [(1, "dedicated"), (3, "dedicated"), (2, "multi")])
def test_ranks_are_those_of_a_batch_computation(instances: int, operators: Any) -> None:
    links = generated()
    query = ranks_of(tg.stream(links, time="ts", name="links"))
    taken: list[pa.Table] = []
    tg.run(query, on="local", to=taken.append, instances=instances, operators=operators, progress=False)
    expected = batch_ranks(links, 10_000_000, ROUNDS, DAMPING)
    made = shown(pa.concat_tables(taken))
    assert made.keys() == expected.keys()
    assert made == pytest.approx(expected, rel=1e-9)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_ranks_on_spark_are_those_of_a_batch_computation(spark: Any) -> None:
    links = generated(rows=600, pages=40, seconds=80 * 86_400)
    made = shown(pagerank.run({"links": links}, "spark")["ranks"])
    assert made == pytest.approx(batch_ranks(links, 28 * 86_400_000_000, ROUNDS, DAMPING), rel=1e-9)


def test_the_reference_finds_the_same_ranks() -> None:
    links = generated(rows=60, pages=8, seconds=15)
    query = ranks_of(tg.stream(links, time="ts", name="links"))
    expected = batch_ranks(links, 10_000_000, ROUNDS, DAMPING)
    assert shown(answer(query).rows) == pytest.approx(expected, rel=1e-9)


def test_messages_of_a_folder_are_links(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "CollegeMsg.txt").write_text(
        "source target weight\n1 2 1082040961\n3 2 1082040960\n2 1 1082040962\n"
    )
    links = pagerank.read(tmp_path, 10)["links"]
    assert links["page"].to_pylist() == ["3", "1", "2"]
    ranks = shown(pagerank.run({"links": links}, "local")["ranks"])
    assert ranks == pytest.approx(batch_ranks(links, 28 * 86_400_000_000, ROUNDS, DAMPING), rel=1e-9)
