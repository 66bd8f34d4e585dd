from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

from tidegate.compile.explain import explain
from tidegate.query.aggregates import collect, count
from tidegate.query.expressions import show_expression
from tidegate.query.keys import each

a, b, text = nw.col("a"), nw.col("b"), nw.col("text")

HEAVY_CUSTOMERS = """\
query
  1  calls         stream     ts: timestamp[us, tz=UTC], src: string, start_s: int64, end_s: int64;
                              time ts, up to 10 seconds out of order
  2  length        with       duration = end_s - start_s
  3  per_customer  aggregate  by src, window 1 hour every 1 minute: calls = count(),
                              avg_duration = mean(duration)
  4  heavy         filter     avg_duration > 300
  result  ts, src, window_start, window_end, calls, avg_duration

on spark: 1 subquery
  cells  one cell a step: everything runs in one task, on the threads of its worker, and nothing is
         exchanged

subquery 'per_customer'
  region   partitioned by keys; results leave when settled; tuples that share a key (src) meet in
           one instance
  slices   1 per advance, 60 per window; a tuple updates 1 slice instead of up to 60 windows
  combine  yes: count(), mean(duration): shrinks to one state per key and slice
    calls         input
    length        Arrow kernel  whole columns in the worker that takes tuples in, which has seen
                                the times of all of them
    per_customer  Arrow kernel  combined per key and slice where tuples come in, merged and emitted
                                in cells, on whole columns

output
    per_customer  input
    heavy         Arrow kernel  whole columns of results, in the cell that emits them

cost of 3 operators, 1 stateful, on 90 instances at 100,000 tuples/s
  strategy        hops  fan-out  channels        cost  paper's f  paper's cost
  query-cloud        1       89     8,010  100,080.10      8,010    100,080.10
  operator-cloud     2       30     1,800  200,018.00         60    200,000.60
  operator-set       1       45     2,025  100,020.25         45    100,000.45
  operator-set is how tidegate splits; cost = α·channels + β·rate·hops, α = 0.01, β = 1
"""


def test_heavy_customers(heavy_customers) -> None:
    assert explain(heavy_customers.node, instances=90) == HEAVY_CUSTOMERS


def test_the_cells_of_spark_are_shown(heavy_customers) -> None:
    twice = heavy_customers.union(heavy_customers, name="twice")
    shown = explain(twice.node, cells=2)
    assert "5  twice         union      reads 4, 4" in shown
    assert "on spark: 1 subquery\n  cells  2 cells a step, on any machines: tuples are exchanged" in shown
    assert "on local: 1 subquery\n\n" in explain(twice.node, "local", cells=2), "where memory is shared, there are none"


def test_a_refused_query_is_shown_with_the_refusal(ahead_of_stream) -> None:
    shown = explain(ahead_of_stream.node)
    query, _, rest = shown.partition("\n\n")
    assert query.startswith("query\n  1  calls")
    assert rest.startswith("on spark: refused\n  Spark cannot compare a tuple with the newest one before it")
    assert "cost" not in rest


def test_an_unknown_runtime_is_a_refusal_too(numbers) -> None:
    assert explain(numbers.node, "flink").endswith(
        "on flink: refused\n  there is no runtime 'flink'; choose one of 'spark', 'local', 'reference'\n"
    )


def test_the_query_is_shown_as_written_and_the_plan_as_compiled(numbers, more_numbers) -> None:
    both = numbers.union(more_numbers, name="both").filter(a > 1, name="f").filter(b < 9, name="g")
    shown = explain(both.key_by("a").window("1 minute").aggregate(all_b=collect("b"), name="c").node)
    query, _, plan = shown.partition("\n\n")
    assert "3  both     union      reads 1, 2" in query
    assert "4  f        filter     a > 1" in query
    assert plan.count("f+g      Arrow kernel") == 2
    assert "combine  yes: collect(b): only packs, every tuple is shipped" in plan


def test_the_reference_explains_itself(heavy_customers) -> None:
    shown = explain(heavy_customers.node, "reference")
    assert "per_customer  Python  one tuple at a time" in shown
    assert "combine  no: one process: nothing is exchanged" in shown
    assert "slices" not in shown


def test_lines_stay_under_100_columns(numbers) -> None:
    wide = numbers.with_columns(**{f"column_{n}": a * n + b for n in range(12)})
    words = wide.map_batches(lambda batch: batch).with_columns(words=text.str.split(" "), name="a_rather_long_name")
    query = words.key_by(each("words")).window("5 seconds", every="2 seconds", lateness="1 minute").aggregate(n=count())
    assert max(map(len, explain(query.node, instances=1_000).splitlines())) < 100


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (a, "a"),
        (nw.col("a", "b"), "a, b"),
        (a.alias("x"), "x = a"),
        ((a + 1).alias("a"), "a = a + 1"),
        (5 - a, "5 - a"),
        ((a + b) * 2, "(a + b) * 2"),
        ((a > 1) & ~(b == 2), "(a > 1) & ~(b == 2)"),
        (text == "x y", "text == 'x y'"),
        (text.str.contains("a b") | a.is_null(), "text.str.contains('a b') | a.is_null()"),
        ((a + b).abs(), "(a + b).abs()"),
        (nw.coalesce("a", b + 1, nw.lit(0)), "coalesce(a, b + 1, 0)"),
        (a.is_in(list(range(100))), "a.is_in(other=[0, 1, 2, 3, 4, 5, ...])"),
        (a.is_in(pa.array([1])), "a.is_in(other="),
        (text.str.slice(0, 2), "text.str.slice(offset=0, length=2)"),
    ],
)
def test_expressions_read_like_code(expr, shown) -> None:
    assert show_expression(expr).startswith(shown)
    assert len(show_expression(expr)) == len(shown) or shown.endswith("other=")
