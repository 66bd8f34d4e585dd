"""Tweets with hashtags (STRETCH §1 and appendix C): a time, a user and a text; generated, or real ones."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidegate.demo import demo_folder, write_once

WORDS = ["hi", "the", "tide", "is", "high", "and", "I", "am", "holding", "on", "to", "what", "a", "stream", "says"]
TAGS = ["#red", "#pink", "#blue", "#green", "#tide", "#gate", "#spark", "#monday", "#coffee", "#rain"]
CONGRESS = "tweets_congress"
FIRST_SECOND = 1_704_099_600  # 2024-01-01 09:00 UTC


def tweets(
    folder: str | Path | None = None, *, rows: int = 20_000, seed: int = 1, hours: float = 6, files: int = 12
) -> str:
    """A folder of tweets in order, generated unless it is there; returns its path. A tweet has up to three hashtags."""
    where = Path(folder) if folder is not None else demo_folder(f"tweets-{rows}-{seed}")
    return write_once(where, lambda: _table(rows, seed, hours), files)


def _table(rows: int, seed: int, hours: float) -> pa.Table:
    random = np.random.default_rng(seed)
    moments = FIRST_SECOND * 1_000_000 + np.sort(random.integers(0, int(hours * 3_600_000_000), rows))
    users = random.integers(0, max(rows // 10, 1), rows)
    lengths, tagged = random.integers(1, 15, rows), random.integers(0, 4, rows)
    words = random.integers(0, len(WORDS), (rows, 15))
    tags = (len(TAGS) * random.random((rows, 3)) ** 2).astype(np.int64)
    texts = [
        " ".join([WORDS[word] for word in words[row, : lengths[row]]] + [TAGS[tag] for tag in tags[row, : tagged[row]]])
        for row in range(rows)
    ]
    return pa.table({"ts": pa.array(moments, pa.timestamp("us", tz="UTC")), "user": users, "tweet": texts})


def real_tweets(folder: Path, rows: int) -> pa.Table:
    """The first tweets of `folder/tweets_congress/*.json` by time: ts, user, tweet."""
    paths = sorted((folder / CONGRESS).glob("*.json"))
    if not paths:
        raise FileNotFoundError(f"--data {folder}: no file matches {CONGRESS}/*.json in it")
    told = [tweet for path in paths for tweet in json.loads(path.read_text(encoding="utf-8"))]
    moments = [datetime.fromisoformat(tweet["time"]) for tweet in told]
    columns = {"user": [tweet["screen_name"] for tweet in told], "tweet": [tweet["text"] for tweet in told]}
    table = pa.table({"ts": pa.array(moments, pa.timestamp("us", tz="UTC")), **columns})
    return table.sort_by([(name, "ascending") for name in table.column_names]).slice(0, rows).combine_chunks()
