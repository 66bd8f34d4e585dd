"""Run it with ``python -m examples.high_mobility``, or its query with ``tidegate run examples/high_mobility``."""

from examples.application import command
from examples.high_mobility.application import high_mobility

query = command(high_mobility, __name__)
