"""Which cell has which shard: sets of shards, the mapping of an epoch, and mappings that move little.

The keys of a stateful step lie in `SHARDS_OF_A_STEP` shards, whatever the number of its cells. An epoch maps each shard to a
cell; the next epoch may map it to another, and then the shard's state is listed by that cell. The pairs of an inner join
without keys lie in as many shards, which form a square: shard ``r·SIDE + c`` has the pairs of left tuples of row r and right
tuples of column c; see `tidegate.state.pair_grid` for the others.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import UserError

SIDE = 32
SHARDS_OF_A_STEP = SIDE * SIDE
ShardSet: TypeAlias = int
"""A set of shards: bit s says whether shard s is in it."""
NONE: ShardSet = 0
ALL: ShardSet = (1 << SHARDS_OF_A_STEP) - 1
ADOPT, RECREATE = "adopt", "window recreation"
PROTOCOLS = ADOPT, RECREATE


def shard_set(chosen: NDArray[np.bool_]) -> ShardSet:
    """The shards for which an array of one entry per shard is true.

    >>> bin(shard_set(np.arange(SHARDS_OF_A_STEP) < 3))
    '0b111'
    """
    return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")


def members(shards: ShardSet) -> NDArray[np.bool_]:
    """A set of shards as an array of one entry per shard."""
    packed = np.frombuffer(shards.to_bytes(SHARDS_OF_A_STEP // 8, "little"), np.uint8)
    return np.unpackbits(packed, bitorder="little").view(np.bool_)


@dataclass(frozen=True, slots=True)
class Handover:
    """While windows are recreated: what begins before ``switch`` is the cell's that a shard had in the ``previous`` mapping.

    It takes tuples before ``last``; those from ``switch`` on go to the new one as well. When the watermark has come to
    ``over`` it is done. All of them are event times in microseconds.
    """

    previous: tuple[int, ...]
    switch: int
    last: int
    over: int


@dataclass(frozen=True, slots=True)
class CellEpoch:
    """A mapping of shards to cells, and how shards change hands when it comes into force; ``number`` counts from 0."""

    number: int
    mapping: tuple[int, ...]
    protocol: str = ADOPT
    handover: Handover | None = None

    @property
    def array(self) -> NDArray[np.int64]:
        """The cell of each shard."""
        return np.asarray(self.mapping, np.int64)

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells that have shards."""
        return tuple(sorted(set(self.mapping)))

    def owned(self, cell: int) -> ShardSet:
        """The shards of a cell."""
        return shard_set(self.array == cell)

    @property
    def previous(self) -> NDArray[np.int64]:
        """The cell that each shard had, for what begins before the switch."""
        return np.asarray(self.mapping if self.handover is None else self.handover.previous, np.int64)

    def owned_before(self, cell: int) -> ShardSet:
        """The shards of a cell for what begins before the switch; its shards where nothing is handed over."""
        return shard_set(self.previous == cell)

    def next(self, mapping: Iterable[int], protocol: str = ADOPT) -> CellEpoch:
        """The epoch after this one."""
        return CellEpoch(self.number + 1, tuple(mapping), protocol)

    def encode(self) -> dict[str, Any]:
        """The epoch as JSON has it."""
        handover, times = self.handover, None
        if handover is not None:
            times = [_packed(handover.previous), handover.switch, handover.last, handover.over]
        fields = {"number": self.number, "protocol": self.protocol, "mapping": _packed(self.mapping)}
        return {**fields, "handover": times}

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> CellEpoch:
        """The epoch that JSON has."""
        known = fields["handover"]
        handover = None if known is None else Handover(_unpacked(known[0]), *known[1:])
        return cls(fields["number"], _unpacked(fields["mapping"]), fields["protocol"], handover)


def _packed(mapping: Sequence[int]) -> str:
    return base64.b64encode(zlib.compress(np.asarray(mapping, "<u2").tobytes())).decode()


def _unpacked(text: str) -> tuple[int, ...]:
    return tuple(np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u2").tolist())


def checked_mapping(mapping: Sequence[int], cells: int) -> tuple[int, ...]:
    """A mapping of all shards to cells; refused unless every shard has a cell that is there."""
    found = tuple(mapping)
    if len(found) != SHARDS_OF_A_STEP:
        raise UserError(
            f"a mapping has a cell for each of the {SHARDS_OF_A_STEP} shards of a step; {len(found)} entries came"
        )
    odd = sorted({each for each in found if not 0 <= each < cells})
    if odd:
        raise UserError(f"a mapping names cells from 0 to {cells - 1}, the step's last; cell {odd[0]} came")
    return found


def first_mapping(cells: int, grid: bool = False) -> tuple[int, ...]:
    """The mapping of a step that begins with so many cells."""
    if grid:
        return _grid_mapping(cells)
    return tuple((np.arange(SHARDS_OF_A_STEP) * cells // SHARDS_OF_A_STEP).tolist())


def even_mapping(mapping: Sequence[int], cells: int, grid: bool = False) -> tuple[int, ...]:
    """A mapping to the cells from 0 to before ``cells``, each with its share, that moves as few shards as possible.

    From n cells to one more it moves one shard in n + 1, as consistent hashing does (Gedik §4.3), and is even as well. On a
    grid a cell gets whole stretches of rows and columns, so that each tuple goes to few cells, and more may move.

    >>> before = first_mapping(4)
    >>> after = even_mapping(before, 5)
    >>> sum(one != other for one, other in zip(before, after))
    204
    """
    if grid:
        return _grid_mapping(cells)
    owners = np.asarray(mapping, np.int64)
    counts = np.bincount(owners, minlength=cells)
    least, larger = divmod(len(owners), cells)
    # Those that have most get the larger shares: then fewest shards move.
    share = np.full(cells, least)
    share[np.argsort(-counts[:cells], kind="stable")[:larger]] += 1
    after = owners.copy()
    free = list(np.flatnonzero(owners >= cells).tolist())
    for cell in range(cells):
        free += np.flatnonzero(owners == cell)[share[cell] :].tolist()
    takers = np.repeat(np.arange(cells), np.maximum(share - counts[:cells], 0))
    after[np.sort(np.asarray(free, np.int64))] = takers
    return tuple(after.tolist())


def grid_shape(cells: int) -> tuple[int, int]:
    """The rows and columns of cells in a grid of at most so many: those of which the largest cell is smallest.

    >>> grid_shape(6), grid_shape(7), grid_shape(37)
    ((2, 3), (1, 7), (8, 4))
    """
    shapes = [(rows, min(cells // rows, SIDE)) for rows in range(1, min(cells, SIDE) + 1)]
    return min(shapes, key=lambda shape: (-(-SIDE // shape[0]) * -(-SIDE // shape[1]), sum(shape), shape))


def _grid_mapping(cells: int) -> tuple[int, ...]:
    rows, columns = grid_shape(cells)
    of_row, of_column = np.arange(SIDE) * rows // SIDE, np.arange(SIDE) * columns // SIDE
    return tuple((of_row[:, None] * columns + of_column).ravel().tolist())
