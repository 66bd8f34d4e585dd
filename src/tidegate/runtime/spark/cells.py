"""The group keys of cells: Spark puts key k on partition ``pmod(murmur3(k), P)``, so each cell needs a fitting integer."""

from __future__ import annotations

_MASK = 0xFFFFFFFF


def cell_keys(cells: int) -> tuple[int, ...]:
    """For each cell p the smallest integer that Spark places on partition p of ``cells``.

    >>> cell_keys(2)
    (2, 0)
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < cells:
        found.setdefault(murmur3(candidate) % cells, candidate)
        candidate += 1
    return tuple(found[cell] for cell in range(cells))


def murmur3(value: int, seed: int = 42) -> int:
    """Spark's 32-bit Murmur3 hash of an int, signed."""
    k = _rotate(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(seed ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
