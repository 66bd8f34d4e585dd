"""What a job in this process is observed by: each field of an observation, and what it is measured from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OBSERVED: Mapping[str, str] = MappingProxyType(
    {
        "mapping": "the epoch in force",
        "offered": "what sources with a schedule were due to deliver; of others what they delivered while not blocked",
        "admitted": "tuples that gates took in",
        "processed": "tuples that every instance with a share in them is done with",
        "demand": "`offered` of the sources, through measured selectivities",
        "backlog": "tuples that are ready and not processed, and those that scheduled sources are behind",
        "queued": "tuples that are ready and not processed",
        "congestion": "time that sources stood blocked",
        "busy": "time at work of each instance, in users' functions too",
        "shard_loads": "`apply`: every tuple; aggregates: samples that take 1 % of the work, none where keys are a function",
        "shard_state_bytes": "`apply` and joins: all states; aggregates: 4,096 panes, once a second",
        "pooled": "joins, aggregates, steps without state, and `apply` while one instance does whole segments",
        "hot_key": "the keys of the last samples",
        "watermark_lag_seconds": "newest event time less the watermark of the subquery's gate",
        "latency_seconds": "results, where a source has a schedule",
        "window_inputs": "joins: tuples that arrive and are held of each side",
        "comparisons": "joins: pairs tried",
        "network": "demand, and tuples completed per busy instance, of all subqueries",
        "network_arrival_rate": "`offered` of all sources",
    }
)
