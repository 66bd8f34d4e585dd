"""The benchmark of ScaleJoin (STRETCH §8.3): two streams of points, joined where both coordinates differ by at most 10.

The coordinates are uniform from 1 to 10,000, so one pair in 250,000 fits. As written here the difference of the first is
recognised as a band and served by sorting; with bands=False all pairs are tried. Try

    tidegate explain examples/scalejoin.py --on local
    tidegate run examples/scalejoin.py --on local
"""

import numpy as np
import pyarrow as pa

import tidegate as tg

TUPLES = 50_000
TIMES = pa.array(np.arange(TUPLES) * 1_000).cast(pa.timestamp("us"))
random = np.random.default_rng(1)

left = pa.table({"ts": TIMES, "x": random.integers(1, 10_001, TUPLES), "y": random.uniform(1, 10_000, TUPLES)})
right = pa.table({"ts": TIMES, "a": random.integers(1, 10_001, TUPLES), "b": random.uniform(1, 10_000, TUPLES)})

query = tg.stream(left, time="ts", name="left").join(
    tg.stream(right, time="ts", name="right"),
    within="30 seconds",
    where=lambda l, r: (r.a - 10 <= l.x <= r.a + 10) and (r.b - 10 <= l.y <= r.b + 10),
)
