from __future__ import annotations

import pytest

from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Plan
from tidegate.compile.refuse_unsupported import LIMITS, refuse_unsupported
from tidegate.errors import UnsupportedError
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder


def daily(stream: Builder) -> Builder:
    return stream.key_by("src").window("1 day").aggregate(n=count(), name="daily")


def test_spark_refuses_a_second_stateful_step(heavy_customers) -> None:
    with pytest.raises(UnsupportedError) as refusal:
        compile_query(daily(heavy_customers).node, "spark")
    assert str(refusal.value) == (
        "a second stateful step on Spark is not supported yet; it has 'per_customer', 'daily'; "
        'run it on="reference" or write the first\'s result to a table and start a second query from it'
    )


def test_stateful_steps_side_by_side_are_two_as_well(numbers) -> None:
    keyed = numbers.key_by("a")
    one = keyed.window("1 minute").aggregate(n=count(), name="one")
    other = keyed.window("1 hour").aggregate(n=count(), name="other")
    with pytest.raises(UnsupportedError, match="it has 'one', 'other'"):
        compile_query(one.union(other).node)


def test_the_reference_refuses_nothing(heavy_customers) -> None:
    plan = compile_query(daily(heavy_customers).node, "reference")
    assert [subquery.stateful and subquery.stateful.name for subquery in plan.subqueries] == [
        None,
        "per_customer",
        "daily",
    ]


@pytest.mark.parametrize("runtime", LIMITS)
def test_what_is_supported_passes_unchanged(runtime, heavy_customers) -> None:
    plan = Plan(heavy_customers.node, runtime)
    assert refuse_unsupported(plan) is plan


def test_an_unknown_runtime_is_told_the_choices(heavy_customers) -> None:
    with pytest.raises(
        UnsupportedError, match="there is no runtime 'flink'; choose one of 'spark', 'local', 'reference'"
    ):
        compile_query(heavy_customers.node, "flink")
