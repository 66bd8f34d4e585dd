"""A kit for tests of your own queries: the reference interpreter, and comparison of answers as bags.

>>> import pyarrow as pa, tidegate as tg
>>> from tidegate.testing import answer
>>> calls = pa.table({"ts": pa.array([1, 2], pa.timestamp("s")), "who": ["a", "a"]})
>>> query = tg.stream(calls, time="ts").key_by("who").window("1 minute").aggregate(n=tg.count())
>>> answer(query).rows.select(["who", "n"]).to_pylist()
[{'who': 'a', 'n': 2}]
"""

from tidegate.reference import Advance, Answer, Event, LateTuple, Rows, events_of, interpret
from tidegate.run_reference import answer
from tidegate.testing.bags import difference, last_revisions, same_bag

__all__ = [
    "Advance",
    "Answer",
    "Event",
    "LateTuple",
    "Rows",
    "answer",
    "difference",
    "events_of",
    "interpret",
    "last_revisions",
    "same_bag",
]
