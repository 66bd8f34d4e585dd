"""Two streams, forwarded: what it costs to share and to order tuples when nothing else is done with them. Operator 6.

Every tuple has the keys 1 to `COPIES`, so it is emitted that many times. Windows of one microsecond and a state without
fields: nothing is kept.
"""

import numpy as np
import pyarrow as pa

import tidegate as tg

COPIES = 3


def every_key(batch: pa.RecordBatch) -> pa.ListArray:
    """f_MK: all keys, for every tuple."""
    ends = np.arange(batch.num_rows + 1, dtype=np.int32) * COPIES
    return pa.ListArray.from_arrays(ends, np.tile(np.arange(1, COPIES + 1), batch.num_rows))


def forward(window, tweet):
    """f_U: no state, and the tuple's payload."""
    return tg.updated(rows={"copy": window.key, "tweet": tweet["tweet"]})


def operator_6(one: tg.Stream, other: tg.Stream) -> tg.Stream:
    """O+ of two inputs."""
    keys = tg.keys(every_key, columns={"copy": pa.int64()}, reads=["tweet"])
    return (
        tg.gather(one.key_by(keys), other.key_by(keys))
        .window("1 microsecond")
        .apply(update=forward, windows="single", state={}, returns={"copy": pa.int64(), "tweet": pa.string()})
    )
