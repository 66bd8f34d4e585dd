"""What each pass does to some queries, as text: ``tests/golden/compile/NAME.txt`` shows a query before and after each pass.

``TIDEGATE_GOLDEN=write pytest tests/golden`` writes the files anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compile.choose_exchange import choose_exchange
from tidegate.compile.compiler import DROP_COLUMNS, PASSES, REWRITES, compile_query
from tidegate.compile.explain import show_plan
from tidegate.compile.lower_to_aggregates import Operators, lower_to_aggregates
from tidegate.compile.plan import Plan
from tidegate.compile.show_query import show_query
from tidegate.query.names import unique_names
from tidegate.stream import one_query

FOLDER = Path(__file__).parent / "compile"
RULE = "\n\n" + "-" * 100 + "\n"
MOMENT = pa.timestamp("us", tz="UTC")
col = nw.col


def calls(name: str = "calls") -> tg.Stream:
    columns = {"ts": MOMENT, "src": pa.string(), "dst": pa.string(), "start_s": pa.int64(), "end_s": pa.int64()}
    return tg.stream(columns, time="ts", disorder="10 seconds", name=name)


def heavy_customers() -> tg.Stream:
    long = calls().with_columns(duration=col("end_s") - col("start_s"), name="length")
    averages = long.key_by("src").window("1 hour", every="1 minute").aggregate(avg=tg.mean("duration"), name="averages")
    return averages.filter(col("avg") > 300, name="heavy")


def words_of_two_streams() -> tg.Stream:
    tweets, toots = (
        tg.stream({"ts": MOMENT, "lang": pa.string(), "text": pa.string()}, time="ts", name=name)
        for name in ("tweets", "toots")
    )
    english = tweets.union(toots, name="both").filter(col("lang") == "en", name="english")
    words = english.filter(~col("text").is_null(), name="told").with_columns(
        words=col("text").str.split(" "), name="split"
    )
    return words.key_by(tg.each("words")).window("1 minute").aggregate(n=tg.count(), name="counts")


def calls_back() -> tg.Stream:
    return calls("calls").join(
        calls("answers"),
        within="1 minute",
        where=lambda left, right: (left.src == right.dst) & (left.dst == right.src) & (right.start_s > left.end_s),
        name="back",
    )


def alerts_beside_counts() -> tg.Stream:
    counts = calls().key_by("src").window("1 minute").aggregate(n=tg.count(), name="counts")
    return counts.select("ts", "src", name="busy").union(calls("alerts").select("ts", "src", name="raw"), name="all")


def minutes_so_far() -> tg.Stream:
    long = (
        calls()
        .with_columns(seconds=col("end_s") - col("start_s"), name="length")
        .filter(col("seconds") > 60, name="long")
    )
    return long.key_by("src").running(
        lambda call: {"seconds": call["seconds"]},
        lambda state, call: {"seconds": state["seconds"] + call["seconds"]},
        lambda carried, period: {"seconds": carried["seconds"] + period["seconds"]},
        lambda state: {"minutes": state["seconds"] // 60},
        every="1 hour",
        state={"seconds": pa.int64()},
        returns={"minutes": pa.int64()},
        name="so_far",
    )


def calls_once() -> tg.Stream:
    once = (
        calls().filter(col("end_s") > col("start_s"), name="ended").dedup(["src", "dst"], within="1 hour", name="once")
    )
    return once.window("1 day").aggregate(pairs=tg.count(), name="daily")


def busy_times() -> tg.Stream:
    busy = calls().key_by("src").session("10 minutes", most="8 hours")
    return busy.aggregate(calls=tg.count(), last=tg.last("dst"), name="busy")


def calls_as_of_alerts() -> tg.Stream:
    named = calls("alerts").lookup({"7": {"who": "ann"}}, on="src", how="left", name="named")
    alerts = named.filter(col("end_s") > 9, name="long")
    recent = calls().join_asof(alerts, on=[("dst", "src")], tolerance="5 minutes", how="left", name="recent")
    return recent.select("ts", "src", "ts_right", name="which")


def calls_after_alerts() -> tg.Stream:
    alerts = calls("alerts").filter(col("end_s") > 9, name="long")
    met = calls().join(alerts, on=[("dst", "src")], last=3, where=lambda l, r: l.end_s > r.end_s, name="met")
    return met.select("ts", "src", "ts_right", name="which")


def every_hundred_calls() -> tg.Stream:
    hundreds = calls().filter(col("end_s") > col("start_s"), name="ended").key_by("src").count_window(100, every=30)
    return hundreds.aggregate(longest=tg.max("end_s"), last=tg.last("dst"), name="hundreds")


def parted_calls() -> tg.Stream:
    long = calls().with_columns(duration=col("end_s") - col("start_s"), name="length")
    parts = long.route(endless=col("duration") > 3600, wrong=col("duration") < 0, rest=True)
    minutes = parts.rest.key_by("src").window("1 minute").aggregate(n=tg.count(), name="minutes")
    hours = minutes.key_by("src").window("1 hour").aggregate(most=tg.max("n"), name="hours")
    return one_query("golden", {"endless": parts.endless, "wrong": parts.wrong, "minutes": minutes, "hours": hours})


QUERIES = [
    calls_as_of_alerts,
    calls_after_alerts,
    every_hundred_calls,
    busy_times,
    calls_once,
    heavy_customers,
    words_of_two_streams,
    calls_back,
    alerts_beside_counts,
    minutes_so_far,
    parted_calls,
]


@pytest.mark.parametrize("runtime", ["spark", "local"])
@pytest.mark.parametrize("build", QUERIES)
def test_passes(build: Callable[[], tg.Stream], runtime: str) -> None:
    path = FOLDER / f"{build.__name__} on {runtime}.txt"
    shown = history(build(), runtime)
    if os.environ.get("TIDEGATE_GOLDEN") == "write":
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def cheap_before_dear() -> tg.Stream:
    trades = tg.stream({"ts": MOMENT, "stock": pa.string(), "price": pa.int64()}, time="ts", name="trades")
    cheap = trades.filter(col("price") < 10, name="cheap")
    return cheap.join(
        trades.with_columns(dear=col("price") * 2, name="doubled"),
        on="stock",
        window="1 minute",
        where=lambda left, right: left.price < right.dear,
        name="rises",
    )


@pytest.mark.parametrize("operators", ["multi", "single"])
def test_lowering(operators: Operators) -> None:
    path = FOLDER / f"cheap_before_dear from {operators} Aggregates.txt"
    query = unique_names(cheap_before_dear().node)
    parts = [f"the query\n\n{show_query(query)}"]
    lowered = lower_to_aggregates(query, operators)
    parts.append(f"after lower_to_aggregates\n\n{show_query(lowered)}")
    parts.append(f"the plan\n\n{show_plan(compile_query(query, 'local', operators=operators))}")
    shown = RULE.join(parts) + "\n"
    if os.environ.get("TIDEGATE_GOLDEN") == "write":
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def history(query: tg.Stream, runtime: str) -> str:
    """The query, then, for each pass that changed something, what it is afterwards."""
    node = unique_names(query.node)
    parts = [f"the query\n\n{show_query(node)}"]
    for rewrite in REWRITES:
        node, before = rewrite(node), node
        if show_query(node) != show_query(before):
            parts.append(f"after {rewrite.__name__}\n\n{show_query(node)}")
    plan = Plan(node, runtime)
    for build in (*DROP_COLUMNS, *PASSES, choose_exchange):
        plan, before_it = build(plan), plan
        if show_query(plan.query) != show_query(before_it.query):
            parts.append(f"after {build.__name__}\n\n{show_query(plan.query)}")
        if show_plan(plan) != show_plan(before_it):
            parts.append(f"after {build.__name__}\n\n{show_plan(plan)}")
    return RULE.join(parts) + "\n"
