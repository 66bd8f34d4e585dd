from __future__ import annotations

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


def test_spark_refuses_a_stateful_step_that_is_read_twice(numbers) -> None:
    one = numbers.key_by("a").window("1 minute").aggregate(n=count(), name="one")
    busy = one.filter(nw.col("n") > 1)
    with pytest.raises(UnsupportedError) as refusal:
        compile_query(one.union(busy).node, "spark")
    assert str(refusal.value) == (
        "Spark would run a stateful step once for each step that reads it, with a state of its own; it has 'one'; "
        'run it on="local", or write the results to a table and start a second query from it'
    )


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
