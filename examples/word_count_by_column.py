"""How many tweets hold each word, over two minutes, every minute: functions of its own over whole columns.

Operator 5 of STRETCH (appendix D) as `wordcount`, in the columnar form. A call gets many contributions of tweets to windows
of words; `slots` says which window each goes to. Try

    tidegate run examples/word_count_by_column.py --on local
"""

import narwhals as nw
import numpy as np
import pyarrow as pa
from inputs.tweets import tweets

import tidegate as tg


def count(batch):
    """f_U: add to each window's count the contributions that go to it."""
    before = np.asarray(batch.windows.states["count"])
    return tg.updated({"count": before + np.bincount(batch.slots, minlength=len(before))})


def counted(expired):
    """f_O: one row for each window."""
    return {"word": expired.keys["word"], "window_start": expired.starts, "count": expired.states["count"]}


query = (
    tg.stream(tweets(rows=20_000), time="ts", name="tweets")
    .with_columns(words=nw.col("tweet").str.split(" "))
    .key_by(tg.each("words", name="word"))
    .window("2 minutes", every="1 minute")
    .apply_columns(
        update=count,
        output=counted,
        state={"count": pa.int64()},
        initial={"count": 0},
        returns={"word": pa.string(), "window_start": pa.timestamp("us", tz="UTC"), "count": pa.int64()},
    )
)
