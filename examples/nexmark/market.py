"""The streams that the queries read, from files or from tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidegate as tg
from examples.nexmark.generator import KINDS, side_table

TIME = "date_time"


@dataclass(frozen=True, slots=True)
class Market:
    """An auction house. ``arriving`` are the bids by the time at which they arrived, ``side`` is the table of query 13.

    ``longest`` bounds how long an auction is open. From it the queries that wait for the end of an auction know when all
    its bids are there, and joins how long a tuple may have to be kept.
    """

    person: tg.Stream
    auction: tg.Stream
    bid: tg.Stream
    arriving: tg.Stream
    longest: timedelta
    side: pa.Table = field(default_factory=side_table)


def market(origins: Mapping[str, Any], longest: timedelta) -> Market:
    """The streams over an origin for each kind of event: a table, a glob of files, a streaming DataFrame."""
    streams = {kind: tg.stream(origins[kind], time=TIME, name=kind) for kind in KINDS}
    return Market(**streams, arriving=tg.stream(origins["bid"], time="arrival", name="bid"), longest=longest)


def market_of_files(folder: Path, longest: timedelta) -> Market:
    """The streams over the files that `Nexmark.write` wrote."""
    return market({kind: str(folder / kind / "*.parquet") for kind in KINDS}, longest)


Query = Callable[[Market], tg.Stream]
