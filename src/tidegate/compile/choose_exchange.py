"""Pass: where cells share no memory, the plan is given its number of cells, and with it its stages."""

from __future__ import annotations

from dataclasses import replace

from tidegate.compile.plan import OUTPUT, Exchange, Plan
from tidegate.errors import UnsupportedError, choices


def choose_exchange(plan: Plan, cells: int | tuple[int, int] = 1) -> Plan:
    """Run the whole plan as one stage where each stateful step has one cell; with more, exchange tuples before each step.

    ::

        before   calls ─▶ subquery 0: aggregate ─▶ output
        after    one cell: read, aggregate and emit in one task
                 two cells: read and combine ═ exchange ═ aggregate and emit in two tasks

    ``cells`` is how many each step has, or the least and the most. One task uses as many threads as its worker has cores. An
    exchange costs a second stage for each stateful step; its cells may lie on several machines. Behind it
    a step that several others read runs once for each of them.

    >>> import pyarrow as pa
    >>> from tidegate.compile.split_at_stateful import split_at_stateful
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts"))
    >>> plan = split_at_stateful(Plan(calls.key_by("k").window("1 minute").aggregate(n=count()).node, "spark"))
    >>> choose_exchange(plan, 2).exchange
    Exchange(least=2, most=2, why='2 cells a step, on any machines: tuples are exchanged before each stateful step')
    """
    if plan.runtime != "spark":
        return plan
    least, most = (cells, cells) if isinstance(cells, int) else cells
    stateful = [subquery for subquery in plan.subqueries if subquery.operator is not None]
    together = plan.idling_with if most > 1 else ()
    for subquery in stateful:
        apart = [source.name for source in together if source not in plan.sources_before(subquery.number)]
        if apart:
            raise UnsupportedError(
                f"step '{subquery.name}': with idle_after a stateful step has to know how far all sources have come, and "
                f"with {most} cells tuples of {choices(apart)} do not come near this one; run it with cells=1, or leave "
                "idle_after out"
            )
    if not stateful:
        why = "no state: tuples stay where they are read"
    elif most == 1:
        why = "one cell a step: everything runs in one task, on the threads of its worker, and nothing is exchanged"
    else:
        number = f"{most} cells" if least == most else f"{least} to {most} cells"
        why = f"{number} a step, on any machines: tuples are exchanged before each stateful step"
        if least < most:
            why += f"; {least} at first, and shards move to others, from one batch to the next, when that is asked for"
        for subquery in stateful:
            readers = {feed.target for feed in plan.feeds_from(subquery.number) if feed.target != OUTPUT}
            branches = len(readers) + any(feed.target == OUTPUT for feed in plan.feeds_from(subquery.number))
            if branches > 1:
                why += f"; '{subquery.name}' is read by {branches} steps, and runs once for each"
    return replace(plan, exchange=Exchange(least, most, why))
