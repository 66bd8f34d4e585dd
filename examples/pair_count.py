"""How often two words stand close to each other, over two minutes, every minute.

Operator 5 of STRETCH (appendix D) as `paircount`: f_MK makes a key of every two words at most `DISTANCE` apart, f_U
counts, f_O hands the counts out. With `tg.each("words")` as key it would be `wordcount`. Try

    tidegate run examples/pair_count.py --on local
"""

import pyarrow as pa
from inputs.tweets import tweets

import tidegate as tg

DISTANCE = 2
PAIR = {"one": pa.string(), "other": pa.string()}


def pairs(batch: pa.RecordBatch) -> pa.Array:
    """Every two words of a tweet that are at most `DISTANCE` apart."""
    made = []
    for text in batch.column("tweet").to_pylist():
        words = text.split(" ")
        near = ((at, one, words[at + 1 : at + 1 + DISTANCE]) for at, one in enumerate(words))
        made.append([{"one": one, "other": other} for _, one, others in near for other in others])
    return pa.array(made, pa.list_(pa.struct(list(PAIR.items()))))


def one_more(window, tweet):
    """f_U."""
    return tg.updated({"count": window.state["count"] + 1})


def counted(window):
    """f_O."""
    one, other = window.key
    return {"one": one, "other": other, "count": window.state["count"]}


query = (
    tg.stream(tweets(rows=2_000), time="ts", name="tweets")
    .key_by(tg.keys(pairs, columns=PAIR, reads=["tweet"]))
    .window("2 minutes", every="1 minute")
    .apply(
        update=one_more,
        output=counted,
        state={"count": pa.int64()},
        initial={"count": 0},
        returns={**PAIR, "count": pa.int64()},
    )
)
