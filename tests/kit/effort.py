"""How many cases are generated: a sample for `make test`, many more for `make test-long`.

The sample is the same at every run, so that a failure is one of the change at hand.
"""

from __future__ import annotations

import os

LONG = os.environ.get("TIDEGATE_TESTS") == "long"
LONG_FACTOR = 8


def examples(sample: int) -> int:
    """So many generated cases in `make test`, eight times as many in `make test-long`."""
    return sample * LONG_FACTOR if LONG else sample
