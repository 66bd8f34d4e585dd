"""Run it with ``python -m examples.bargain_index``, or its query with ``tidegate run examples/bargain_index``."""

from examples.application import command
from examples.bargain_index.application import bargain_index

query = command(bargain_index, __name__)
