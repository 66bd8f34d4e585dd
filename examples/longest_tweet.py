"""The longest tweet of every hashtag: one hour of tweets, every half hour.

The running example of STRETCH (§1 and appendix C). A tweet with three hashtags has three keys, and is still one tuple: it
is neither copied nor sent three times. Try

    tidegate run examples/longest_tweet.py --to longest-tweet.jsonl
"""

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from inputs.tweets import tweets

import tidegate as tg


def hashtags(batch: pa.RecordBatch) -> pa.ListArray:
    """The words of each tweet that begin with '#'."""
    words = pc.split_pattern(batch.column("tweet"), " ")
    is_tag = pc.starts_with(words.values, "#")
    tags_before = np.concatenate([[0], np.cumsum(is_tag)])
    return pa.ListArray.from_arrays(tags_before[words.offsets], words.values.filter(is_tag))


query = (
    tg.stream(tweets(rows=20_000), time="ts", name="tweets")
    .with_columns(chars=nw.col("tweet").str.len_chars())
    .key_by(tg.keys(hashtags, columns={"hashtag": pa.string()}, reads=["tweet"]))
    .window("1 hour", every="30 minutes")
    .aggregate(chars=tg.max("chars"), tweets=tg.count())
)
