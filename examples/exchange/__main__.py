"""Run it with ``python -m examples.exchange``, or its query with ``tidegate run examples/exchange``."""

from examples.application import command
from examples.exchange.application import exchange

query = command(exchange, __name__)
