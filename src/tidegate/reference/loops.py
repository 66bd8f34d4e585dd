"""The law of an Aggregate that loops: its rows are its own input again (listings 3 to 5), one tuple at a time.

A row it emits has a time that its watermark has passed, so it comes back as a late tuple. Two guards keep that from doing
harm. At the entry a watermark waits as long as tuples are due that it would make too late (C2, listing 4); at the exit it
waits as long as rows are due before it (C3, listing 5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.query.bag_functions import EMBEDDED, INDEX, ITEMS
from tidegate.query.nodes import BagAggregate
from tidegate.reference.bags import BagLaw, HeldBag, rows_of_bag
from tidegate.reference.rows import LateTuple, keys_of, python_row
from tidegate.watermark import END, START, Watermark


@dataclass
class Successors:
    """How many rows are still due for each time, and the watermark that may pass them.

    As printed the listings keep entries of zero, which hold a watermark back for ever, and the last one forgets a watermark
    that came while rows were due. Here an entry of zero is removed, and the latest watermark waits.
    """

    lateness: int
    due: dict[int, int] = field(default_factory=dict)
    received: Watermark = START
    forwarded: Watermark = START

    def add(self, time: int, count: int) -> None:
        """So many more rows are due at a time; fewer if the number is negative."""
        left = self.due.pop(time, 0) + count
        if left:
            self.due[time] = left

    def next_watermark(self) -> Watermark | None:
        """The watermark that may be forwarded now, if there is a new one.

        Where one moves further than rows may be late, those between are put in: the next row that is due decides.
        """
        bound = min(self.due) + self.lateness if self.due else END
        reached = min(self.received, bound)
        if reached <= self.forwarded:
            return None
        self.forwarded = reached
        return reached


@dataclass
class LoopLaw:
    """One Aggregate that loops at work: what comes in, the guard before it, and the guard behind it."""

    node: BagAggregate
    late: list[LateTuple] = field(default_factory=list)

    def __post_init__(self) -> None:
        lateness = self.node.loop_us
        assert lateness is not None
        self.inner = BagLaw(self.node)
        self.entry, self.exit = Successors(lateness), Successors(0)
        self.looping: deque[pa.Table] = deque()

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Take a tuple that comes from an Embed."""
        time = python_row(row, self.node.input)[self.node.time]
        if time < self.entry.received:
            raise InternalError(f"step '{self.node.name}': the Embed before it gave a late tuple")
        yield from self.take(row)

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Take a watermark, and everything that loops until nothing does any more."""
        yield from self.reach(watermark)
        while self.looping:
            yield from self.take(self.looping.popleft())
        if self.exit.forwarded != watermark:
            raise InternalError(f"step '{self.node.name}': a loop holds back the watermark {watermark}")

    def reach(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Take a watermark (listing 4, processW)."""
        self.entry.received = watermark
        yield from self.fire()

    def take(self, row: pa.Table) -> Iterator[pa.Table]:
        """Take a tuple from an Embed, or one that has looped (listing 4, processT)."""
        tuple_ = python_row(row, self.node.input)
        time, index = tuple_[self.node.time], tuple_[INDEX]
        if index == EMBEDDED:
            self.entry.add(time, len(tuple_[ITEMS]))
            yield from self.inner.receive(0, row)
        else:
            if time + 1 + self.entry.lateness <= self.inner.watermark:
                raise InternalError(f"step '{self.node.name}': a tuple that loops came too late")
            self.entry.add(time, -1)
            (key,) = keys_of(self.node.keys[0], row, tuple_)
            yield from self.emit(rows_of_bag(self.node, time, HeldBag(key, ([row],))))
        yield from self.fire()

    def fire(self) -> Iterator[pa.Table]:
        """Let the watermark through that the guard at the entry allows (listing 4, forwardW)."""
        while (reached := self.entry.next_watermark()) is not None:
            yield from self.emit(self.inner.advance(reached))
            self.exit.received = reached
            self.exit.next_watermark()

    def emit(self, rows: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Emit rows, and feed them back (listing 5, processT)."""
        for row in rows:
            tuple_ = python_row(row, self.node)
            time, index = tuple_[self.node.time], tuple_[INDEX]
            if time < self.exit.forwarded:
                raise InternalError(f"step '{self.node.name}': a row left behind its watermark")
            self.exit.add(time, len(tuple_[ITEMS]) - 1 if index == 0 else -1)
            self.looping.append(row)
            yield row
        self.exit.next_watermark()
