"""Trades that hedge each other: within 30 seconds, one company moved up as much as another moved down.

STRETCH's last experiment (§8.6): a join of a stream with itself, and no equality in sight. The paper asks for a ratio of
the two moves of at least −1.05; here it is also at most −0.95. Real trades can take the place of generated ones: a folder
of parquet files with ts, id, price and average. Try

    tidegate explain examples/hedges.py --on local
    tidegate run examples/hedges.py --on local
    TRADES=/path/to/trades tidegate run examples/hedges.py --on local --to hedges.jsonl
"""

import os

import narwhals as nw
from inputs.trades import trades

import tidegate as tg

moves = (
    tg.stream(os.environ.get("TRADES") or trades(rows=4_000), time="ts", name="trades")
    .with_columns(nd=(nw.col("price") - nw.col("average")) / nw.col("average"))
    .select("ts", "id", "price", "nd")
)

query = moves.join(
    moves,
    within="30 seconds",
    where=lambda l, r: (l.id != r.id) & (r.nd / l.nd >= -1.05) & (r.nd / l.nd <= -0.95),
).select("ts", l_id=nw.col("id"), l_price=nw.col("price"), r_id=nw.col("id_right"), r_price=nw.col("price_right"))
