"""Run it with ``python -m examples.twitter``, or its query with ``tidegate run examples/twitter``."""

from examples.application import command
from examples.twitter.application import twitter

query = command(twitter, __name__)
