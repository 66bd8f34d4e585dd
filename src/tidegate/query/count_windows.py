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
            if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= LARGEST:
                raise QueryError(
                    f"step '{step}': {what} of a count window is a number of tuples, from 1 to {LARGEST:,}; got {number!r}"
                    + ("; windows in time are .window('1 minute')" if isinstance(number, str) else "")
                )
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
