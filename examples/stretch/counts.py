"""How often each word, or each two words that stand close, are tweeted: two minutes, every minute. Operators 4 and 5.

Operator 5 gives a tweet a key for each, operator 4 counts the copies that a map makes (algorithms 8 and 9). `wordcount`
and `paircount` differ in the keys alone: a word is here a pair with nothing. `examples/word_count_by_column.py` is
operator 5 with functions of whole columns.
"""

import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg

DISTANCE = 3
"""Of `paircount` with low duplication."""
PAIR = {"one": pa.string(), "other": pa.string()}
COUNTED = {**PAIR, "count": pa.int64()}


def words(batch: pa.RecordBatch) -> pa.Array:
    """f_MK of `wordcount`: each word of a tweet, once."""
    return _keys({(word, None) for word in text.split()} for text in batch.column("tweet").to_pylist())


def pairs(batch: pa.RecordBatch) -> pa.Array:
    """f_MK of `paircount`: each two words of a tweet that are at most `DISTANCE` apart, once."""
    return _keys(_close(text.split()) for text in batch.column("tweet").to_pylist())


def _close(words: list[str]) -> set[tuple[str, str]]:
    return {(one, other) for at, one in enumerate(words) for other in words[at + 1 : at + 1 + DISTANCE]}


def _keys(found) -> pa.Array:
    rows = [[dict(zip(PAIR, key, strict=True)) for key in sorted(keys, key=str)] for keys in found]
    return pa.array(rows, pa.list_(pa.struct(list(PAIR.items()))))


def one_more(window, tweet):
    """f_U."""
    return tg.updated({"count": window.state["count"] + 1})


def counted(window):
    """f_O."""
    one, other = window.key
    return {"one": one, "other": other, "count": window.state["count"]}


def operator_4(tweets: tg.Stream, keys=words) -> tg.Stream:
    """A: one key a tuple, behind a map that copies (algorithms 8 and 9)."""

    def copied(batch: pa.RecordBatch) -> pa.Table:
        found = keys(batch)
        times = batch.column("ts").take(pc.list_parent_indices(found))
        return pa.table([times, *found.flatten().flatten()], names=["ts", *PAIR])

    return _counted(tweets.map_batches(copied, schema={"ts": tweets.schema.field("ts").type, **PAIR}).key_by(*PAIR))


def operator_5(tweets: tg.Stream, keys=words) -> tg.Stream:
    """A+: many keys a tuple, and no copies."""
    return _counted(tweets.key_by(tg.keys(keys, columns=PAIR, reads=["tweet"])))


def _counted(keyed):
    return keyed.window("2 minutes", every="1 minute").apply(
        update=one_more, output=counted, state={"count": pa.int64()}, initial={"count": 0}, returns=COUNTED
    )
