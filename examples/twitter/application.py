"""The key words of tweets, and what tweets are like, hour by hour."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.inputs.tweets import real_tweets, tweets
from examples.twitter.text import ANALYSED, analysed

MOST_USED = 3


def results(inputs: Tables) -> dict[str, tg.Stream]:
    """The statistics of each hour, and its most used key words."""
    messages = tg.stream(inputs["tweets"], time="ts", name="tweets").map_batches(analysed, schema=ANALYSED)
    named = ("chars", "words", "sentences", "hashtags", "mentions", "links")
    hours = messages.window("1 hour")
    used = messages.key_by(tg.each("key_words", name="word")).window("1 hour").aggregate(tweets=tg.count())
    return {
        "statistics": hours.aggregate(tweets=tg.count(), **{name: tg.mean(name) for name in named}),
        "key_words": used.select("ts", "tweets", "word").window("1 hour").top_n(MOST_USED, by="tweets"),
    }


def report(found: Tables) -> Report:
    """The hours with the most tweets, each with its most used key words."""
    words = found["key_words"].sort_by([("ts", "ascending"), ("rank", "ascending")]).to_pylist()
    by_hour: dict[object, list[str]] = {}
    for row in words:
        by_hour.setdefault(row["window_start"], []).append(f"{row['word']} {row['tweets']}")
    busiest = found["statistics"].sort_by([("tweets", "descending"), ("ts", "ascending")]).slice(0, 5)
    rows = pa.table(
        {
            "hour": busiest["window_start"],
            "tweets": busiest["tweets"],
            **{name: pc.round(busiest[name], 1) for name in ("words", "sentences", "hashtags")},
            "key_words": [", ".join(by_hour.get(hour, [])) for hour in busiest["window_start"].to_pylist()],
        }
    )
    total = pc.sum(found["statistics"]["tweets"]).as_py() or 0
    return Report(rows, f"{total:,} tweets in {found['statistics'].num_rows:,} hours.")


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """Real tweets."""
    return {"tweets": real_tweets(folder, tuples)}


twitter = Application(
    name="twitter",
    question="Which key words do tweets use, and how long are they, hour by hour?",
    generate=lambda tuples, seed: {"tweets": pq.read_table(tweets(rows=tuples, seed=seed))},
    read=read,
    results=results,
    report=report,
)
