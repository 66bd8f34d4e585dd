"""The longest tweet of every hashtag again, with functions of its own: one tuple at a time.

Operator 2 of STRETCH (appendix D): f_MK gives a tweet the keys of its hashtags, f_U keeps the length of the longest, f_O
hands it out. `longest_tweet.py` says the same with `tg.max`, and is faster. Try

    tidegate run examples/longest_tweet_by_tuple.py --on local
"""

import pyarrow as pa
from inputs.tweets import tweets

import tidegate as tg


def hashtags(batch: pa.RecordBatch) -> pa.Array:
    """The words of each tweet that begin with '#'."""
    words = [text.split(" ") for text in batch.column("tweet").to_pylist()]
    return pa.array([[word for word in each if word.startswith("#")] for each in words], pa.list_(pa.string()))


def longer(window, tweet):
    """f_U: a window's state is the length of the longest tweet so far."""
    return tg.updated({"chars": max(window.state["chars"], len(tweet["tweet"]))})


def longest(window):
    """f_O: one row for each hashtag and window."""
    return {"hashtag": window.key, "chars": window.state["chars"]}


query = (
    tg.stream(tweets(rows=20_000), time="ts", name="tweets")
    .key_by(tg.keys(hashtags, columns={"hashtag": pa.string()}, reads=["tweet"]))
    .window("1 hour", every="30 minutes")
    .apply(
        update=longer,
        output=longest,
        state={"chars": pa.int64()},
        initial={"chars": 0},
        returns={"hashtag": pa.string(), "chars": pa.int64()},
    )
)
