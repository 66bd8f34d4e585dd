"""Pass: each windowed aggregate is told which slices its windows share."""

from __future__ import annotations

from dataclasses import replace

from tidegate.compile.plan import Plan, Slices, Subquery
from tidegate.query.nodes import WindowAggregate
from tidegate.query.windows import Window

# Runtimes whose windows share slices.
_SLICING = frozenset({"spark"})


def choose_slices(plan: Plan) -> Plan:
    """Cut the windows of each aggregate into slices, so that a tuple is touched once and not once per window.

    ::

        before   window 5 s every 2 s: a tuple lies in up to 3 windows
        after    2 slices per advance (from 0 s, from 1 s), 5 per window: a tuple updates 1 slice

    The reference keeps one state per window and shares nothing, so there is nothing to choose for it.

    >>> slices_of(Window(size=5, every=2))
    Slices(per_advance=2, per_window=5, windows_per_tuple=3)
    """
    if plan.runtime not in _SLICING:
        return plan
    return replace(plan, subqueries=tuple(map(_choose, plan.subqueries)))


def _choose(subquery: Subquery) -> Subquery:
    if not isinstance(subquery.stateful, WindowAggregate):
        return subquery
    return replace(subquery, slices=slices_of(subquery.stateful.window))


def slices_of(window: Window) -> Slices:
    """The slices of one shape of windows: a second one per advance when the advance does not divide the size."""
    return Slices(
        per_advance=1 if window.remainder == 0 else 2,
        per_window=window.slices_per_window,
        windows_per_tuple=window.windows_per_tuple,
    )
