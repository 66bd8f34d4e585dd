"""Which neighbours to merge, so that there are few pieces and each row is copied a few times only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

FAN_IN = 8


def alike(sizes: Sequence[int], most: int, fan_in: int = FAN_IN) -> range | None:
    """The last stretch of at least ``fan_in`` neighbours of about the same size, of at most ``most`` together.

    >>> alike([4000, 500, 10, 9, 11, 10], 10_000, fan_in=4)
    range(2, 6)
    """
    stop = len(sizes)
    groups = [list(group) for _, group in groupby(sizes, key=lambda size: size.bit_length() // 3)]
    for group in reversed(groups):
        start = stop - len(group)
        taken = total = 0
        while taken < len(group) and total + group[taken] <= most:
            total += group[taken]
            taken += 1
        if taken >= fan_in:
            return range(start, start + taken)
        stop = start
    return None
