"""Run it with ``python -m examples.call_records``, or its query with ``tidegate run examples/call_records``."""

from examples.application import command
from examples.call_records.application import call_records

query = command(call_records, __name__)
