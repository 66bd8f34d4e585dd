"""Which tuples a cell of a join gets, where tuples are routed by what they hold, not by keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.state.epochs import SHARDS_OF_A_STEP, SIDE, ShardSet, members, shard_set


@dataclass(frozen=True, slots=True)
class PairGrid:
    """Lines of shards: a tuple lies in a line of its side, and goes to every cell that has a shard of that line.

    The pairs of an inner join lie in a square: left tuples in its rows, right ones in its columns, so that each pair has one
    shard, and both of its tuples go to the cell that has it (StreamCloud §IV.A.b, fig. 4).

    Whether a tuple of a ``judged`` side has a partner is known where all tuples of the other side are. So each of them has
    a shard of its own, and the other side is one line, which goes to all cells. If both sides are judged, both go to all
    cells, and each tuple still has a shard: its cell is the one that judges it.

    >>> PairGrid().lines(0), PairGrid((0,)).lines(0), PairGrid((0,)).lines(1), PairGrid((0, 1)).lines(0)
    (32, 1024, 1, 1)
    """

    judged: tuple[int, ...] = ()

    @property
    def is_square(self) -> bool:
        """Whether cells are to have whole stretches of rows and columns."""
        return not self.judged

    def lines(self, side: int) -> int:
        """In how many lines the tuples of a side lie."""
        if self.is_square:
            return SIDE
        return SHARDS_OF_A_STEP if self.judged == (side,) else 1

    def line_of_shards(self, side: int) -> NDArray[np.int64]:
        """The line of each shard."""
        shards = np.arange(SHARDS_OF_A_STEP)
        return shards // SIDE if self.is_square and side == 0 else shards % self.lines(side)

    def first_shards(self, side: int) -> NDArray[np.int64]:
        """The first shard of each line."""
        return np.unique(self.line_of_shards(side), return_index=True)[1]

    def held(self, side: int, owned: ShardSet) -> ShardSet:
        """All shards of the lines in which some shards lie: those whose tuples of a side a cell has that owns these."""
        lines = self.line_of_shards(side)
        some = np.zeros(self.lines(side), np.bool_)
        some[lines[members(owned)]] = True
        return shard_set(some[lines])
