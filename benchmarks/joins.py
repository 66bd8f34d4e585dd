"""Joins in this process: comparisons a second against the bare loop, sorting for bands, skewed keys, and trades.

``scalejoin`` is the benchmark of STRETCH §8.3 with the recognition of bands off: every pair that is near in time is
compared, the window full and sliding. The peer, `bare-loop`, is the same compiled loop over the same blocks on one thread,
with nothing around it. ``bandjoin`` is the same with recognition on. ``skew`` joins under Zipf's keys. ``hedge`` is the
experiment of STRETCH §8.6: trades joined with themselves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import narwhals as nw

import tidegate as tg
from benchmarks.join_inputs import KEYED, LEFT, RIGHT, TRADES, Sides, batches, keyed_sides, scalejoin_sides, trade_sides
from benchmarks.join_runs import BATCH_ROWS, Engine, Row, measure, report, run_bare_loop, run_here
from benchmarks.loads import STEP_US, Pool
from benchmarks.options import Options
from benchmarks.sweep import Part, sweep_pool
from benchmarks.workloads import short_count

BAND_ROWS = (1_000, 10_000)
WINDOW = 100_000
SKEW_WINDOW = 20_000
SKEW_KEYS = 10_000
EXPONENTS = (0.0, 1.0, 2.0)
GENERATED_TRADES = 60_000
AT_70 = Part(0.7, 50, None)
SEARCH_SECONDS = 10.0


def near(l: Any, r: Any) -> Any:
    """The predicate of ScaleJoin's benchmark."""
    return (abs(l.x - r.a) <= 10) & (abs(l.y - r.b) <= 10)


def hedges(l: Any, r: Any) -> Any:
    """Another company moved as much the other way. The paper's predicate has no upper bound: half of all pairs fit."""
    return (l.id != r.id) & (r.nd / l.nd >= -1.05) & (r.nd / l.nd <= -0.95)


def scalejoin(options: Options) -> int:
    """All pairs, with one and two instances, against the bare loop."""
    tuples = options.tuples or 2 * WINDOW
    sides = scalejoin_sides(tuples, min(WINDOW, tuples // 2), options.seed)
    engines: dict[str, Engine] = {
        "bare-loop": lambda given, row: run_bare_loop(_near_query(given, bands=False), given, row),
        "tidegate-local-1": partial(_near, bands=False, instances=1),
        "tidegate-local": partial(_near, bands=False, instances=2),
    }
    rows = measure(sides, engines, options)
    ratios = ["tidegate-local/bare-loop", "tidegate-local-1/bare-loop"]
    return report("scalejoin", sides, rows, options, ratios, figures=_under_load(sides, rows[-1], options))


def bandjoin(options: Options) -> int:
    """The same with and without sorting, a window of 100,000 tuples a side, in batches of two sizes."""
    tuples = options.tuples or 2 * WINDOW
    sides = scalejoin_sides(tuples, min(WINDOW, tuples // 2), options.seed)
    engines: dict[str, Engine] = {
        f"{name}@{short_count(rows)}": partial(_near, bands=bands, instances=instances, rows=rows)
        for rows in BAND_ROWS
        for name, bands, instances in (
            ("tidegate-local (all pairs)", False, 2),
            ("tidegate-local-1", True, 1),
            ("tidegate-local", True, 2),
        )
    }
    rows = measure(sides, engines, options)
    batches = [short_count(each) for each in BAND_ROWS]
    ratios = [f"tidegate-local@{each}/tidegate-local (all pairs)@{each}" for each in batches]
    return report("bandjoin", sides, rows, options, ratios)


def skew(options: Options) -> int:
    """Keys by Zipf's distribution: by key with a selective predicate, and all pairs."""
    tuples = options.tuples or 3 * SKEW_WINDOW
    worst = 0
    sides = keyed_sides(tuples, tuples // 3, SKEW_KEYS, 0.0, options.seed)
    for kind in ("on", "theta"):
        engines: dict[str, Engine] = {
            f"tidegate-local {kind} {exponent:g}": partial(_keyed, exponent=exponent, kind=kind)
            for exponent in EXPONENTS
        }
        names = list(engines)
        rows = measure(sides, engines, options)
        worst |= report(f"skew-{kind}", sides, rows, options, [f"{names[-1]}/{names[0]}"], same=False)
    return worst


def hedge(options: Options) -> int:
    """Trades that hedge each other within 30 seconds, with one and two instances, against the bare loop."""
    sides = trade_sides(options.data, options.tuples or (None if options.data else GENERATED_TRADES), options.seed)
    engines: dict[str, Engine] = {
        "bare-loop": lambda given, row: run_bare_loop(_hedge_query(given), given, row),
        "tidegate-local-1": lambda given, row: run_here(_hedge_query(given), row, 1),
        "tidegate-local": lambda given, row: run_here(_hedge_query(given), row, 2),
    }
    rows = measure(sides, engines, options)
    return report("hedge", sides, rows, options, ["tidegate-local/bare-loop", "tidegate-local-1/bare-loop"])


def _under_load(sides: Sides, row: dict[str, Any], options: Options) -> dict[str, Any]:
    """The highest rate that two instances sustain with full windows, and how late results are at 70 % of it.

    The search begins near what the run as fast as it goes has shown: a tuple meets the other side's window once.
    """
    parts = tuple(side.combine_chunks().to_batches()[0] for side in (sides.left, sides.right))

    def query(left: tg.Stream, right: tg.Stream) -> tg.Stream:
        return left.join(right, within=f"{2 * STEP_US * sides.window}us", where=near, bands=False)

    pool = Pool(parts, query, fill=2 * sides.window)
    guess = row["comparisons_per_second"] / sides.window
    found = sweep_pool("scalejoin", pool, 2, options, AT_70, guess, SEARCH_SECONDS)
    below = found["at_share"]
    return {"under_load": found, **({} if below is None else {"p99_ms": below["p99_ms"]})}


def _near_query(sides: Sides, bands: bool, rows: int = BATCH_ROWS) -> tg.Stream:
    left = tg.stream(list(batches(sides.left, rows)), time="ts", schema=LEFT, name="left")
    right = tg.stream(list(batches(sides.right, rows)), time="ts", schema=RIGHT, name="right")
    return left.join(right, within=f"{sides.within_us}us", where=near, bands=bands)


def _keyed_query(sides: Sides, kind: str) -> tg.Stream:
    left = tg.stream(list(batches(sides.left, BATCH_ROWS)), time="ts", schema=KEYED, name="left")
    right = tg.stream(list(batches(sides.right, BATCH_ROWS)), time="ts", schema=KEYED, name="right")
    if kind == "on":
        return left.join(right, on="key", within=f"{sides.within_us}us", where=lambda l, r: l.value + r.value > 1.995)
    return left.join(
        right,
        within=f"{sides.within_us}us",
        where=lambda l, r: (l.key == r.key) & (l.value + r.value > 1.995),
        bands=False,
    )


def _hedge_query(sides: Sides) -> tg.Stream:
    """A stream joined with itself; ``nd`` is the distance of a price from the company's average."""
    trades = tg.stream(list(batches(sides.left.select(TRADES.names), BATCH_ROWS)), time="ts", schema=TRADES)
    moves = trades.with_columns(nd=(nw.col("price") - nw.col("average")) / nw.col("average"))
    pairs = moves.select("ts", "id", "price", "nd").join(
        moves.select("ts", "id", "price", "nd"), within=f"{sides.within_us}us", where=hedges
    )
    return pairs.select("ts", "id", "price", "id_right", "price_right")


def _near(sides: Sides, row: Row, bands: bool, instances: int, rows: int = BATCH_ROWS) -> None:
    run_here(_near_query(sides, bands, rows), row, instances, 2 * rows)


def _keyed(sides: Sides, row: Row, exponent: float, kind: str) -> None:
    made = keyed_sides(sides.left.num_rows, sides.window, SKEW_KEYS, exponent, row.seed)
    run_here(_keyed_query(made, kind), row, 2)
