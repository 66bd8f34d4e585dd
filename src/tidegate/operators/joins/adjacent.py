"""Which neighbours to merge, so that there are few pieces and each row is copied a few times only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

FAN_IN = 4
"""So many are merged: every piece is looked at for every segment, which soon costs more than to copy it now and then."""


def merge_candidates(sizes: Sequence[int], most: int) -> range | None:
    """The last stretch of at least `FAN_IN` neighbours of about the same size, of at most ``most`` together.

    >>> merge_candidates([4000, 500, 10, 9, 11, 10], 10_000)
    range(2, 6)
    """
    stop = len(sizes)
    groups = [list(group) for _, group in groupby(sizes, key=lambda size: size.bit_length() // 2)]
    for group in reversed(groups):
        start = stop - len(group)
        taken = total = 0
        while taken < len(group) and total + group[taken] <= most:
            total += group[taken]
            taken += 1
        if taken >= FAN_IN:
            return range(start, start + taken)
        stop = start
    return None
