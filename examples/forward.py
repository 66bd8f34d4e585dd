"""Two streams of tweets, forwarded: what it costs to share and to order tuples when nothing else is done with them.

Operator 6 of STRETCH (appendix D). Every tuple has the keys 1 to `COPIES`, so it is handed out that many times. Windows
of one microsecond and a state without fields: nothing is kept. Try

    tidegate run examples/forward.py --on local
"""

import numpy as np
import pyarrow as pa
from inputs.tweets import tweets

import tidegate as tg

COPIES = 3


def every_key(batch: pa.RecordBatch) -> pa.ListArray:
    """All keys, for every tuple."""
    ends = np.arange(batch.num_rows + 1, dtype=np.int32) * COPIES
    return pa.ListArray.from_arrays(ends, np.tile(np.arange(1, COPIES + 1), batch.num_rows))


def forward(window, tweet):
    """f_U: no state, and the tuple's payload."""
    return tg.updated(rows={"copy": window.key, "tweet": tweet["tweet"]})


keys = tg.keys(every_key, columns={"copy": pa.int64()}, reads=["tweet"])
one, other = (tg.stream(tweets(rows=5_000, seed=seed), time="ts", name=f"tweets {seed}") for seed in (1, 2))
query = (
    tg.gather(one.key_by(keys), other.key_by(keys))
    .window("1 microsecond")
    .apply(update=forward, windows="single", state={}, returns={"copy": pa.int64(), "tweet": pa.string()})
)
