"""Protocols: how shards get from one owner to another, one a file, what each costs, and the planner that picks one."""

from __future__ import annotations

from tidegate.control.protocols.adopt import Adopt
from tidegate.control.protocols.donate_collect import DonateCollect
from tidegate.control.protocols.epoch_switch import EpochSwitch
from tidegate.control.protocols.move import MoveProtocol
from tidegate.control.protocols.window_recreation import WindowRecreation

PROTOCOLS: dict[str, MoveProtocol] = {
    each.name: each for each in (EpochSwitch(), Adopt(), WindowRecreation(), DonateCollect())
}
"""The protocols by the name they have in options and in the ledger."""
