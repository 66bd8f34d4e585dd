"""An engine of one operator: the Aggregate whose windows give any number of rows (Semantic Overlap §5.1).

A function gets the rows of one key and window and returns result rows, which leave at the end of the window − 1 µs. Maps,
filters and joins are such Aggregates, so a graph of them is all there is. It runs in one process or, by key, in several on
one machine, with watermarks, an order check, and snapshots to go on from. It imports no other runtime of tidegate.
"""

from tidegate.micro.folder import results
from tidegate.micro.graph import AggregateStage, ReplayableSource, Row, aggregate, source
from tidegate.micro.parquet_rows import parquet
from tidegate.micro.runner import collect, run

__all__ = ["AggregateStage", "ReplayableSource", "Row", "aggregate", "collect", "parquet", "results", "run", "source"]
