"""Run it with ``python -m examples.network_monitoring``, or its query with ``tidegate run examples/network_monitoring``."""

from examples.application import command
from examples.network_monitoring.application import network_monitoring

query = command(network_monitoring, __name__)
