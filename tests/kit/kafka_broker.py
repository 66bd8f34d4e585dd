"""librdkafka's own cluster for tests: says its address and serves until standard input ends."""

from __future__ import annotations

import os
import sys

import confluent_kafka

if __name__ == "__main__":
    settings = {"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0}
    cluster = confluent_kafka.Producer(settings)
    brokers = cluster.list_topics(timeout=10).brokers
    print(",".join(f"{each.host}:{each.port}" for each in brokers.values()), flush=True)
    sys.stdin.read()
    os._exit(0)
