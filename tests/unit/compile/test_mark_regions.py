from __future__ import annotations

import pytest

from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Region
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder


def regions(stream: Builder, runtime: str = "local") -> list[Region]:
    return [subquery.safety() for subquery in compile_query(stream.node, runtime).subqueries]


def counted(stream: Builder, **options) -> Builder:
    return stream.key_by("a").window("1 minute", **options).aggregate(n=count())


def test_tuples_of_one_key_meet_and_the_reason_names_it(heavy_customers) -> None:
    (region,) = regions(heavy_customers)
    assert (region.partitioning, region.settled) == ("keys", True)
    assert region.why == "tuples that share a key (src) meet in one instance"


def test_stateless_parts_are_not_partitioned_and_pass_results_on_at_once(numbers) -> None:
    (region,) = regions(numbers)
    assert (region.partitioning, region.settled, region.eager) == ("none", False, True)


@pytest.mark.parametrize(
    ("options", "runtime", "expected"),
    [
        ({"within": "1 second"}, "local", ("pairs", False)),
        ({"within": "1 second", "on": "a"}, "local", ("pairs", False)),
        ({"window": "1 second"}, "local", ("pairs", True)),
        ({"within": "1 second"}, "spark", ("pairs", False)),
        ({"within": "1 second", "on": "a"}, "spark", ("keys", False)),
    ],
)
def test_pairs_meet_by_key_or_on_a_grid_where_cells_share_no_memory(options, runtime, expected, numbers) -> None:
    (region,) = regions(numbers.join(numbers, **options), runtime)
    assert (region.partitioning, region.settled) == expected


def test_only_the_sole_way_to_the_output_has_watermarks_that_no_reader_awaits(numbers, more_numbers) -> None:
    alone = regions(counted(numbers))
    assert [(region.awaited, region.eager) for region in alone] == [(False, False)]
    two = regions(counted(numbers).union(counted(more_numbers)))
    assert [(region.awaited, region.eager) for region in two] == [(True, True), (True, True)]
    chained = regions(counted(counted(numbers)))
    assert [(region.awaited, region.eager) for region in chained] == [(True, True), (False, False)]


def test_refined_windows_may_emit_at_any_segment(numbers) -> None:
    (region,) = regions(counted(numbers, lateness="1 minute"))
    assert (region.awaited, region.eager) == (False, True)
