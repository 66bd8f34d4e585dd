"""Elastic, deterministic stream processing for Python, on Spark."""

import logging

from tidegate.autoscale import autoscale
from tidegate.elastic.options import Elastic
from tidegate.errors import (
    CheckpointError,
    DataError,
    EnvironmentFault,
    InternalError,
    QueryError,
    TidegateError,
    UnsupportedError,
    UserError,
)
from tidegate.progress import Progress
from tidegate.query.aggregates import (
    collect,
    count,
    distinct,
    first,
    last,
    max,
    mean,
    min,
    monoid,
    sum,
    top_k,
)
from tidegate.query.arrival import arrival
from tidegate.query.classes.operator import operator
from tidegate.query.forms import updated
from tidegate.query.gathered import gather
from tidegate.query.keys import each, keys
from tidegate.query.stores import store
from tidegate.results import RunResult
from tidegate.run import run
from tidegate.sources.in_memory import heartbeat, marked, paced
from tidegate.sources.kafka import kafka
from tidegate.start import start
from tidegate.steer import end_input, move_shards, set_cells, set_instances
from tidegate.stream import Stream, explain, stream

__all__ = [
    "CheckpointError",
    "DataError",
    "Elastic",
    "EnvironmentFault",
    "InternalError",
    "Progress",
    "QueryError",
    "RunResult",
    "Stream",
    "TidegateError",
    "UnsupportedError",
    "UserError",
    "arrival",
    "autoscale",
    "collect",
    "count",
    "distinct",
    "each",
    "end_input",
    "explain",
    "first",
    "gather",
    "heartbeat",
    "kafka",
    "keys",
    "last",
    "marked",
    "max",
    "mean",
    "min",
    "monoid",
    "move_shards",
    "operator",
    "paced",
    "run",
    "set_cells",
    "set_instances",
    "start",
    "store",
    "stream",
    "sum",
    "top_k",
    "updated",
]
__version__ = "0.1.0"

# Quiet unless the program, or `tidegate -v`, turns logging on.
logging.getLogger(__name__).addHandler(logging.NullHandler())
