"""The controllers by the name they have in rules, on the command line and in the ledger."""

from __future__ import annotations

from tidegate.control.controllers.ds2 import Ds2
from tidegate.control.controllers.fixed import Fixed
from tidegate.control.controllers.predictive import Predictive
from tidegate.control.controllers.queueing import Queueing
from tidegate.control.controllers.saso import Saso
from tidegate.control.controllers.steady import Steady
from tidegate.control.controllers.thresholds import Thresholds

CONTROLLERS: dict[str, type] = {
    "steady": Steady,
    "thresholds": Thresholds,
    "saso": Saso,
    "queueing": Queueing,
    "predictive": Predictive,
    "ds2": Ds2,
    "fixed": Fixed,
}

RECOMMENDED = "steady"
"""What drives a subquery where nothing else is asked for."""
