from __future__ import annotations

import narwhals as nw
import pytest

from tidegate.compile.choose_exchange import choose_exchange
from tidegate.compile.compiler import compile_query
from tidegate.compile.explain import show_plan
from tidegate.compile.plan import Exchange
from tidegate.query import aggregates as tg
from tidegate.query.builder import Builder

ONE_CELL = "one cell a step: everything runs in one task, on the threads of its worker, and nothing is exchanged"
TWO_CELLS = "2 cells a step, on any machines: tuples are exchanged before each stateful step"


def counted(stream: Builder, name: str = "one") -> Builder:
    return stream.key_by("a").window("1 minute").aggregate(n=tg.count(), name=name)


def chosen(stream: Builder, cells: int = 1, runtime: str = "spark") -> Exchange | None:
    return compile_query(stream.node, runtime, cells=cells).exchange


def test_one_cell_exchanges_nothing_and_several_do(numbers) -> None:
    assert chosen(counted(numbers)) == Exchange(1, 1, ONE_CELL)
    assert chosen(counted(numbers), 2) == Exchange(2, 2, TWO_CELLS)


def test_of_a_range_of_cells_the_least_begin(numbers) -> None:
    plan = compile_query(counted(numbers).node, "spark", cells=(1, 8))
    assert plan.cells == (1, 8)
    assert (
        plan.exchange is not None and "1 to 8 cells a step" in plan.exchange.why and "1 at first" in plan.exchange.why
    )


def test_without_state_nothing_is_exchanged_whatever_the_cells(numbers) -> None:
    stateless = numbers.filter(nw.col("a") > 1)
    for cells in (1, 2):
        assert chosen(stateless, cells) == Exchange(cells, cells, "no state: tuples stay where they are read")


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_where_memory_is_shared_there_is_no_exchange(runtime, numbers) -> None:
    plan = compile_query(counted(numbers).node, runtime, cells=4)
    assert (plan.exchange, plan.cells) == (None, (1, 1))


def test_a_step_that_several_read_is_named_with_its_cost(numbers) -> None:
    one = counted(numbers)
    daily = one.key_by("a").window("1 day").aggregate(n=tg.sum("n"), name="daily")
    weekly = one.key_by("a").window("7 days").aggregate(n=tg.sum("n"), name="weekly")
    shown = chosen(daily.union(weekly).union(one.select(*daily.schema.names)), 2)
    assert shown == Exchange(2, 2, f"{TWO_CELLS}; 'one' is read by 3 steps, and runs once for each")
    assert chosen(daily.union(weekly)) == Exchange(1, 1, ONE_CELL), "in one task it runs once"
    assert chosen(daily, 2) == Exchange(2, 2, TWO_CELLS)


def test_results_that_leave_by_two_paths_are_one_reader(numbers) -> None:
    one = counted(numbers)
    assert chosen(one.union(one.filter(nw.col("n") > 1)), 2) == Exchange(2, 2, TWO_CELLS)


def test_a_plan_may_be_given_other_cells_later(numbers) -> None:
    """A run that goes on has the cells of its checkpoint."""
    plan, wanted = (compile_query(counted(numbers).node, "spark", cells=cells) for cells in (1, 2))
    assert show_plan(choose_exchange(plan, 2)) == show_plan(wanted) != show_plan(plan)
    assert choose_exchange(plan, 2).cells == (2, 2)
