"""Pass: each windowed aggregate is given the slices that its windows share."""

from __future__ import annotations

from dataclasses import replace

from tidegate.compile.plan import Plan, Slices, Subquery
from tidegate.query.nodes import WindowAggregate

# From so many slices a window on, merging the panes of a slice once saves more than it costs.
WORTH_MERGING = 3


def choose_slices(plan: Plan) -> Plan:
    """Cut the windows of each aggregate into slices, so that a tuple is touched once and not once per window.

    ::

        before   window 5 s every 2 s: a tuple lies in up to 3 windows
        after    2 slices per advance (from 0 s, from 1 s), 5 per window: a tuple updates 1 slice

    Where a window combines many slices, the panes of a slice are merged as soon as no more tuples are due for it. The
    reference keeps one state per window and shares nothing, so there is nothing to choose for it.
    """
    if plan.runtime == "reference":
        return plan
    return replace(plan, subqueries=tuple(map(_choose, plan.subqueries)))


def _choose(subquery: Subquery) -> Subquery:
    if not isinstance(subquery.operator, WindowAggregate):
        return subquery
    window = subquery.operator.window
    windows = window.windows_per_tuple
    saved = f" instead of up to {windows:,} windows" if windows > 1 else ""
    why = (
        f"{1 if window.remainder == 0 else 2} per advance, {window.slices_per_window:,} per window; "
        f"a tuple updates 1 slice{saved}"
    )
    merged = window.slices_per_window >= WORTH_MERGING and not window.lateness
    return replace(subquery, slices=Slices(merged, why))
