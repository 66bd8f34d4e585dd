"""Run it with ``python -m examples.fraud``, or its query with ``tidegate run examples/fraud``."""

from examples.application import command
from examples.fraud.application import fraud

query = command(fraud, __name__)
