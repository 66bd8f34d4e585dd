"""Run it with ``python -m examples.pagerank``, or its query with ``tidegate run examples/pagerank``."""

from examples.application import command
from examples.pagerank.application import pagerank

query = command(pagerank, __name__)
