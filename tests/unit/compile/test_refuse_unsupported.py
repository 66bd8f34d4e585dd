from __future__ import annotations

from dataclasses import replace

import narwhals as nw
import pytest

from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Plan
from tidegate.compile.refuse_unsupported import LIMITS, refuse_unsupported
from tidegate.errors import UnsupportedError
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder


def daily(stream: Builder) -> Builder:
    return stream.key_by("src").window("1 day").aggregate(n=count(), name="daily")


def test_spark_refuses_to_compare_tuples_with_the_stream(ahead_of_stream) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        compile_query(ahead_of_stream.node, "spark")
    assert str(refusal.value) == (
        "Spark cannot compare a tuple with the newest one before it, as ahead_of='stream' asks; it has 'calls'; "
        "run it on=\"local\", or compare with the clock: ahead_of='clock'"
    )
    compile_query(ahead_of_stream.node, "local")


def test_spark_takes_a_stateful_step_that_is_read_twice_and_malformed_records(numbers) -> None:
    one = numbers.key_by("a").window("1 minute").aggregate(n=count(), name="one")
    busy = one.filter(nw.col("n") > 1)
    for cells in (1, 2):
        plan = compile_query(one.union(busy).node, "spark", cells=cells)
        assert [subquery.name for subquery in plan.subqueries if subquery.operator is not None] == ["one"]
    compile_query(replace(numbers.node, dead_letters="/tmp/letters"), "spark")


def test_spark_takes_stateful_steps_one_after_the_other_and_side_by_side(heavy_customers, numbers) -> None:
    compile_query(daily(heavy_customers).node, "spark")
    keyed = numbers.key_by("a")
    one = keyed.window("1 minute").aggregate(n=count(), name="one")
    other = keyed.window("1 hour").aggregate(n=count(), name="other")
    compile_query(one.union(other).node, "spark")


def test_the_reference_refuses_nothing(heavy_customers) -> None:
    plan = compile_query(daily(heavy_customers).node, "reference")
    assert [subquery.name for subquery in plan.subqueries] == ["per_customer", "daily"]


@pytest.mark.parametrize("runtime", LIMITS)
def test_what_is_supported_passes_unchanged(runtime, heavy_customers) -> None:
    plan = Plan(heavy_customers.node, runtime)
    assert refuse_unsupported(plan) is plan


def test_an_unknown_runtime_is_told_the_choices(heavy_customers) -> None:
    with pytest.raises(
        UnsupportedError, match="there is no runtime 'flink'; choose one of 'spark', 'local', 'reference'"
    ):
        compile_query(heavy_customers.node, "flink")
