"""Calls that share a number, calling or called, and overlap in time: StreamCloud's Cartesian product (§X).

Either of two numbers may equal either of two others, so no key can bring the calls together; every pair within an hour is
tried. Try

    tidegate explain examples/overlapping_calls.py --on local
    tidegate run examples/overlapping_calls.py --on local
"""

from typing import Any

import narwhals as nw

import tidegate as tg
from tidegate.demo.calls import calls


def overlap(l: Any, r: Any) -> Any:
    """Both have a number in common, and the one that began later did so before the other ended."""
    shared = (l.src == r.src) | (l.src == r.dst) | (l.dst == r.src) | (l.dst == r.dst)
    return shared & (l.start_s < r.start_s) & (r.start_s < l.end_s)


stream = tg.stream(calls(rows=20_000), time="ts", name="calls")

query = stream.join(stream, within="1 hour", where=overlap).select(
    "ts", "src", "dst", src_2=nw.col("src_right"), dst_2=nw.col("dst_right")
)
