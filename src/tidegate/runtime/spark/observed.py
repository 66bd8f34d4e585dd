"""What a query on Spark is observed by: each field of an observation, and what it is measured from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OBSERVED: Mapping[str, str] = MappingProxyType(
    {
        "mapping": "with `balance=`, of each step of several cells: the cells of the shards that got rows",
        "offered": "rows since the batch before began, where batches take all; else processed and the change of what waits",
        "admitted": "rows of the batches that ended in the period, over its length",
        "processed": "the same",
        "demand": "the same as `offered`",
        "backlog": "what sources report that they had more than the batch took, or `backlog=`; absent where neither does",
        "congestion": "share of time that batches ran over their trigger interval; without one, of batches that left some",
        "busy": "time in tasks of each executor, over its cores, less what larger batches would save; absent on `local[…]`",
        "shard_loads": "of such a step: the rows, or panes, of each shard",
        "shard_state_bytes": "of such a step: the bytes of a cell, shared out alike over its shards",
        "watermark_lag_seconds": "newest event time less the watermark",
        "latency_seconds": "half the time between batches and the batch, on average; absent where something is left waiting",
        "network": "where instances are shared out, of a step of several cells: rows of each cell, over the time that the "
        "slowest worked and over its own",
        "network_arrival_rate": "of such a step: the rows of all cells, over that time",
        "cores": "of such a step: as many instances as fit wherever Spark puts its cells",
    }
)
