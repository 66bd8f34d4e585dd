"""Session windows: tuples of a key that follow one another closely, whenever they begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.errors import QueryError
from tidegate.query.event_time import LONGEST_US, Duration, format_duration, parse_duration
from tidegate.watermark import Watermark

UNLIMITED_US = 2**62
"""Longer than any session can last."""


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """The shape of sessions; all lengths in microseconds.

    Without ``most_us`` a tuple opens ``[τ, τ + gap)``, and what overlaps is one session. With it a session takes settled
    tuples in their order, and ends ``most_us`` after its first tuple at the latest.
    """

    gap_us: int
    most_us: int | None = None

    @classmethod
    def parse(cls, step: str, gap: Duration, most: Duration | None) -> SessionWindow:
        """A checked shape for a step."""
        lengths = {"gap": parse_duration(gap, f"step '{step}': gap")}
        if most is not None:
            lengths["most"] = parse_duration(most, f"step '{step}': most")
        for what, length in lengths.items():
            if not 0 < length <= LONGEST_US:
                raise QueryError(
                    f"step '{step}': {what} ({format_duration(length)}) of a session must be longer than zero, and at most "
                    f"{format_duration(LONGEST_US)}"
                )
        return cls(lengths["gap"], lengths.get("most"))

    @property
    def limit_us(self) -> int:
        """How long a session may last."""
        return UNLIMITED_US if self.most_us is None else self.most_us

    @property
    def joins_within_us(self) -> int:
        """How near in time tuples are that may be combined before they are settled; with a limit those of one time."""
        return self.gap_us if self.most_us is None else 1

    def end(self, first: Any, last: Any) -> Any:
        """When sessions end whose first and last tuples have such times, numbers or NumPy arrays."""
        return last + self.gap_us if self.most_us is None else np.minimum(last + self.gap_us, first + self.most_us)

    def least_arriving(self, watermark: Watermark) -> int:
        """The earliest time at which a tuple that arrives is not late."""
        return watermark if self.most_us is not None else watermark - self.gap_us + 1

    def __str__(self) -> str:
        most = "" if self.most_us is None else f", at most {format_duration(self.most_us)}"
        return f"{format_duration(self.gap_us)} apart{most}"
