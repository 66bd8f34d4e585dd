"""Run it with ``python -m examples.stretch``, or its query with ``tidegate run examples/stretch``."""

from examples.application import command
from examples.stretch.application import stretch

query = command(stretch, __name__)
