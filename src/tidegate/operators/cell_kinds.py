"""Which kind of cell works for which stateful step."""

from __future__ import annotations

from tidegate.errors import InternalError
from tidegate.operators.bags.bag_cell import BagCell
from tidegate.operators.cells import CellLogic
from tidegate.operators.joins.join_cell import JoinCell
from tidegate.operators.keyed_apply_cell import KeyedApplyCell
from tidegate.operators.keyed_rows_cell import KeyedRowsCell
from tidegate.operators.session_cell import SessionCell
from tidegate.operators.window_cell import WindowCell
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Join,
    KeyedApply,
    Running,
    SessionAggregate,
    Stateful,
    WindowAggregate,
)


def logic_of(node: Stateful) -> CellLogic:
    """How the cells of a stateful step work."""
    match node:
        case WindowAggregate():
            return CellLogic(WindowCell, node)
        case SessionAggregate():
            return CellLogic(SessionCell, node)
        case Join():
            return CellLogic(JoinCell, node)
        case KeyedApply() | Running():
            return CellLogic(KeyedApplyCell, node)
        case CountAggregate() | AsOf() | CountJoin() | Dedup():
            return CellLogic(KeyedRowsCell, node)
        case BagAggregate():
            return CellLogic(BagCell, node)
        case _:
            raise InternalError(f"no cells are known for {type(node).__name__}")
