"""All six operators over tweets and points, as one query."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.inputs.points import points
from examples.inputs.tweets import real_tweets, tweets
from examples.stretch.counts import operator_4, operator_5, pairs
from examples.stretch.forward import COPIES, operator_6
from examples.stretch.longest_tweet import operator_1, operator_2
from examples.stretch.scalejoin import operator_3
from tidegate.testing import difference

POINTS_OF_TWEETS = 10
"""Every pair of points is tried in Python, so there is one for so many tweets."""
TOLD = {
    "operator_1": "A, the longest tweet of a hashtag",
    "operator_2": "A+, the longest tweet of a hashtag",
    "operator_3": "J+, ScaleJoin",
    "operator_4": "A, word count",
    "operator_5": "A+, word count",
    "operator_5_pairs": "A+, pair count",
    "operator_6": "O+, forward",
}


def with_points(read: pa.Table, seed: int) -> dict[str, pa.Table]:
    """Tweets, and two streams of points."""
    left, right = points(1 + read.num_rows // POINTS_OF_TWEETS, seed, most=500, step_us=100_000)
    return {"tweets": read, "left": left, "right": right}


def results(inputs: Tables) -> dict[str, tg.Stream]:
    """What each operator gives."""
    messages, left, right = (tg.stream(inputs[name], time="ts", name=name) for name in ("tweets", "left", "right"))
    return {
        "operator_1": operator_1(messages),
        "operator_2": operator_2(messages),
        "operator_3": operator_3(left, right),
        "operator_4": operator_4(messages),
        "operator_5": operator_5(messages),
        "operator_5_pairs": operator_5(messages, pairs),
        "operator_6": operator_6(messages, messages),
    }


def report(found: Tables) -> Report:
    """How many rows each gives, and whether copies make a difference."""
    pairs_of = ("operator_1", "operator_2"), ("operator_4", "operator_5")
    same = all(difference(found[one], found[other]) is None for one, other in pairs_of)
    rows = {"operator": list(TOLD), "what": list(TOLD.values()), "rows": [found[name].num_rows for name in TOLD]}
    return Report(
        pa.table(rows),
        f"Operators 1 and 2, and 4 and 5, {'give the same' if same else 'differ'}, with copies of tuples and without; "
        f"operator 6 gives {COPIES} copies of two streams.",
    )


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """Real tweets, and generated points."""
    return with_points(real_tweets(folder, tuples), 1)


stretch = Application(
    name="stretch",
    question="What do the six operators of STRETCH's appendix give?",
    generate=lambda tuples, seed: with_points(pq.read_table(tweets(rows=tuples, seed=seed)), seed),
    read=read,
    results=results,
    report=report,
    tuples=2_000,
)
