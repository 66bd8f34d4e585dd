"""ScaleJoin as an O+ of its own functions: two streams of points, joined where both coordinates are close. Operator 3.

A tuple has all keys. Under each it is compared with the tuples of the other stream that are stored there, and it is stored
under one of them, in turn: `count` goes up alike under all keys. `examples/scalejoin.py` says the same with `join`, which is
thousands of times as fast.
"""

import numpy as np
import pyarrow as pa

import tidegate as tg

KEYS = 4
"""The paper has 1,000, so that they can be spread over as many instances."""
SIZE_US = 30_000_000
NEAR = 10
STORED = tg.store(key={"time": pa.int64(), "count": pa.int64()}, value={"x": pa.int64(), "y": pa.float64()})
PAIR = {"x": pa.int64(), "y": pa.float64(), "a": pa.int64(), "b": pa.float64()}


def every_key(batch: pa.RecordBatch) -> pa.ListArray:
    """f_MK: all keys, from 0 on, for every tuple."""
    ends = np.arange(batch.num_rows + 1, dtype=np.int32) * KEYS
    return pa.ListArray.from_arrays(ends, np.tile(np.arange(KEYS), batch.num_rows))


def match(window, point):
    """f_U: purge what is too old, match with the rest, store in turn."""
    count = window.states[0]["count"] + 1
    sides = window.store("left"), window.store("right")
    mine, opposite = sides[point.input], sides[1 - point.input]
    while (oldest := opposite.first()) is not None and oldest[0][0] + SIZE_US < point.time:
        opposite.remove(oldest[0])
    found = []
    for _, other in opposite.items():
        if abs(point["x"] - other["x"]) <= NEAR and abs(point["y"] - other["y"]) <= NEAR:
            left, right = (point, other) if point.input == 0 else (other, point)
            found.append({"x": left["x"], "y": left["y"], "a": right["x"], "b": right["y"]})
    if count % KEYS == window.key:
        mine.put((point.time, count), {"x": point["x"], "y": point["y"]})
    return tg.updated({"count": count}, {"count": count}, rows=found)


def operator_3(left: tg.Stream, right: tg.Stream) -> tg.Stream:
    """J+ over all pairs within 30 seconds."""
    keys = tg.keys(every_key, columns={"share": pa.int64()}, reads=["x"])
    return (
        tg.gather(left.key_by(keys), right.key_by(keys))
        .unbounded()
        .apply(
            update=match,
            state={"count": pa.int64()},
            initial={"count": 0},
            stores={"left": STORED, "right": STORED},
            returns=PAIR,
        )
    )
