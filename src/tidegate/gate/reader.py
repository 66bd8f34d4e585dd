"""A reader: a cursor into a gate's log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.gate.log import Node
from tidegate.gate.parker import Parker
from tidegate.gate.segment import Segment

if TYPE_CHECKING:
    from tidegate.gate.core import Core


class Reader:
    """A handle on one reader of a gate, for one thread at a time.

    Asking for the next segment says that the one before is done with. As long as there is a next segment in the log,
    `get` takes no lock.
    """

    __slots__ = ("_core", "finished", "name", "node", "parker", "passed_bytes", "passed_rows", "removed", "thread")

    def __init__(self, core: Core, name: str, node: Node) -> None:
        self._core = core
        self.name = name
        self.node = node
        self.passed_rows = node.rows_through
        self.passed_bytes = node.bytes_through
        self.parker = Parker()
        self.removed = False
        self.finished = False
        self.thread: int | None = None

    def get(self, timeout_seconds: float | None = None) -> Segment | None:
        """The next segment; waits for it, at most so long if a time is given.

        None if nothing came in time, or if nothing will ever come: then ``finished`` is set (the input has ended, or the
        reader was removed). Raises `GateAborted` if the run has failed.
        """
        self.thread = threading.get_ident()
        core = self._core
        here = self.node
        # First say what has been passed, then look whether a source waits for that: it looks in the other order.
        self.passed_rows = here.rows_through
        self.passed_bytes = here.bytes_through
        if core.blocked:
            core.on_passed()
        following = here.next
        if following is None or self.removed or core.failure is not None:
            following = core.next(self, timeout_seconds)
            if following is None:
                return None
        self.node = following
        return following.segment

    def following(self, count: int) -> Iterator[Segment]:
        """Up to ``count`` segments with rows behind the one got last, before the next control segment; never waits."""
        node = self.node.next
        while count > 0 and node is not None and node.segment is not None and node.segment.control is None:
            if node.segment.rows:
                count -= 1
                yield node.segment
            node = node.next

    def __iter__(self) -> Iterator[Segment]:
        """All segments until the input ends or the reader is removed."""
        while (segment := self.get()) is not None:
            yield segment
