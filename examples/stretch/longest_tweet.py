"""The longest tweet of every hashtag: an hour of tweets, every half hour. Operators 1 and 2.

Operator 2 gives a tweet the keys of its hashtags; operator 1 needs a map before it that copies the tweet for each of
them. Both have the same f_U and f_O. `examples/longest_tweet.py` says the same with `tg.max`, and is faster.
"""

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg

TAGGED = {"ts": pa.timestamp("us", tz="UTC"), "hashtag": pa.string(), "chars": pa.int64()}


def hashtags(batch: pa.RecordBatch) -> pa.Array:
    """f_MK: the words of each tweet that begin with '#'."""
    words = [text.split() for text in batch.column("tweet").to_pylist()]
    return pa.array([sorted({word for word in each if word.startswith("#")}) for each in words], pa.list_(pa.string()))


def copied(batch: pa.RecordBatch) -> pa.Table:
    """Algorithm 7: a row for each hashtag of a tweet."""
    tags = hashtags(batch)
    of = pc.list_parent_indices(tags)
    chars = pc.utf8_length(batch.column("tweet")).cast(pa.int64())
    return pa.table([batch.column("ts").take(of), tags.flatten(), chars.take(of)], names=list(TAGGED))


def longer(window, tweet):
    """f_U: a window's state is the length of the longest tweet so far."""
    return tg.updated({"chars": max(window.state["chars"], tweet["chars"])})


def longest(window):
    """f_O: one row for each hashtag and window."""
    return {"hashtag": window.key, "chars": window.state["chars"]}


def operator_1(tweets: tg.Stream) -> tg.Stream:
    """A: one key a tuple, behind a map that copies."""
    return _longest(tweets.map_batches(copied, schema=TAGGED).key_by("hashtag"))


def operator_2(tweets: tg.Stream) -> tg.Stream:
    """A+: many keys a tuple, and no copies."""
    measured = tweets.with_columns(chars=nw.col("tweet").str.len_chars())
    return _longest(measured.key_by(tg.keys(hashtags, columns={"hashtag": pa.string()}, reads=["tweet"])))


def _longest(keyed):
    return keyed.window("1 hour", every="30 minutes").apply(
        update=longer,
        output=longest,
        state={"chars": pa.int64()},
        initial={"chars": 0},
        returns={"hashtag": pa.string(), "chars": pa.int64()},
    )
