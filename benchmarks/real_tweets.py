"""Real tweets as an input: read from JSON, sorted by time, replicated to the wanted volume."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

ALIGNMENT_US = 60_000_000  # copies are shifted by whole minutes, so each falls into windows like the original


def read_tweets(folder: Path) -> pa.Table:
    """The tweets of `folder/tweets_congress/*.json` by time, runs of white space replaced by one space."""
    paths = sorted((folder / "tweets_congress").glob("*.json"))
    if not paths:
        raise FileNotFoundError(f"--data {folder}: no file matches tweets_congress/*.json in it")
    rows: list[tuple[int, int, str]] = []
    for path in paths:
        for tweet in json.loads(path.read_text(encoding="utf-8")):
            ts_us = round(datetime.fromisoformat(tweet["time"]).timestamp()) * 1_000_000
            text = " ".join(tweet["text"].split())
            if text:
                rows.append((ts_us, int(tweet.get("user_id", 0)), text))
    rows.sort()
    ts_us_column, users, texts = zip(*rows, strict=True)
    return _table(np.array(ts_us_column, dtype=np.int64), pa.array(users, pa.int64()), pa.array(texts, pa.string()))


def replicate(tweets: pa.Table, wanted: int) -> pa.Table:
    """The first `wanted` rows of `tweets` followed by as many copies as needed, each later than the one before."""
    ts_us = tweets["ts"].cast(pa.int64()).to_numpy()
    span_us = int(ts_us[-1] - ts_us[0])
    shift_us = (span_us // ALIGNMENT_US + 1) * ALIGNMENT_US
    copies = -(-wanted // len(ts_us))
    if copies > 1:
        print(
            f"real tweets: {wanted:,} tuples are {copies} copies of {len(ts_us):,}, the last one cut short, each "
            f"{shift_us / 3.6e9:.1f} h after the one before",
            file=sys.stderr,
        )
    parts = [
        _table(ts_us + copy * shift_us, tweets["user"].combine_chunks(), tweets["text"].combine_chunks())
        for copy in range(copies)
    ]
    return pa.concat_tables(parts).slice(0, wanted)


def _table(ts_us: np.ndarray, users: pa.Array, texts: pa.Array) -> pa.Table:
    return pa.table({"ts": pa.array(ts_us, pa.timestamp("us", tz="UTC")), "user": users, "text": texts})
