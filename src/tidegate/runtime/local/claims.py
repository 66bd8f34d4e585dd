"""Work on segments that is done once, by whichever instance comes first, while the others go on.

An instance that finds a segment taken does not wait for it: it takes up the next one. It has to wait only where it needs
what was derived, such as at the end of a window, and then for all segments up to there; while it would wait, it takes up
what lies ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tidegate.gate.segment import Segment


@dataclass(slots=True, eq=False)
class Claims:
    """One piece of work for every segment of a log: ``function(segment)``, run once for each.

    Every instance must `take_up` every segment it passes. Then `finish` knows all that is under way before a place, also
    for an instance that began behind it: who let it in had passed all of that.
    """

    name: str
    function: Callable[[Segment], Any]
    _under_way: dict[int, Segment] = field(default_factory=dict)

    def take_up(self, segment: Segment) -> None:
        """Do the work on a segment unless somebody has begun to; raises what made it fail if that is known."""
        compute = partial(self.function, segment)
        if not segment.derived.claim(self.name, compute):
            self._under_way[segment.index] = segment
        if segment.derived.is_done(self.name):
            # Looked at after it was noted: one of us, who noted it or who did it, sees both and takes it off again.
            self._under_way.pop(segment.index, None)
            segment.derived.derive(self.name, compute)

    def finish(self, number: int, ahead: Iterator[Segment]) -> None:
        """Wait until the work on all segments up to a number is done; do that on segments ahead meanwhile."""
        for segment in list(self._under_way.values()):
            if segment.index <= number:
                while not segment.derived.is_done(self.name) and (later := next(ahead, None)) is not None:
                    self.take_up(later)
                self.result(segment)

    def result(self, segment: Segment) -> Any:
        """What the work on a segment gave, waited for if need be."""
        value = segment.derived.derive(self.name, partial(self.function, segment))
        self._under_way.pop(segment.index, None)
        return value
