"""Windows in number of tuples: so many tuples of a key, whenever they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.errors import QueryError
from tidegate.query.windows import Window

LARGEST = 2**31


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The shape of windows over the tuples of a key, numbered from 0: window i holds ``[i·every, i·every + size)``."""

    size: int
    every: int

    @classmethod
    def parse(cls, step: str, size: Any, every: Any) -> CountWindow:
        """A checked shape for a step; back to back unless ``every`` says how far it advances."""
        for what, number in (("size", size), ("every", size if every is None else every)):
            checked_number(step, what, "a count window", number, ".window('1 minute')")
        window = cls(size, size if every is None else every)
        if window.every > window.size:
            raise QueryError(
                f"step '{step}': a count window advances by {window.every:,} tuples and holds {window.size:,}, so tuples "
                "between windows would be lost; make every ≤ size"
            )
        return window

    @property
    def numbers(self) -> Window:
        """The same windows where a tuple's number stands for its time: what is said of slices holds for them too."""
        return Window(self.size, self.every)

    def first_open(self, tuples: Any) -> Any:
        """The first window that is not full when a key has had so many tuples, a number or a NumPy array of them."""
        first = (tuples - self.size) // self.every + 1
        return first * (first > 0)

    def unfilled(self, tuples: Any) -> Any:
        """How many windows hold something and are not full when a key has had so many tuples, a number or an array."""
        return (tuples + self.every - 1) // self.every - self.first_open(tuples)

    def __str__(self) -> str:
        return f"{self.size:,} tuples every {self.every:,}"


def checked_number(step: str, what: str, of: str, number: Any, in_time: str) -> int:
    """A number of tuples that a user gave; ``in_time`` is how the same is said of time."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= LARGEST:
        raise QueryError(
            f"step '{step}': {what} of {of} is a number of tuples, from 1 to {LARGEST:,}; got {number!r}"
            + (f"; windows in time are {in_time}" if isinstance(number, str) else "")
        )
    return number
