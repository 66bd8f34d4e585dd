"""Bargains in generated or real trades and quotes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.bargain_index.bargains import bargains
from examples.inputs.ticks import quoted, traded
from examples.inputs.trades import quotes, trades


def generate(tuples: int, seed: int) -> dict[str, pa.Table]:
    """So many trades and as many quotes of the same market."""
    return {
        "trades": pq.read_table(trades(rows=tuples, seed=seed)),
        "quotes": pq.read_table(quotes(rows=tuples, seed=seed)),
    }


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """The first trades of a folder's ticks, and what was asked at the exchanges meanwhile."""
    made = traded(folder).filter(pc.field("volume") > 0).slice(0, tuples)
    last = made["ts"][-1]
    asked = quoted(folder).filter((pc.field("side") == "sell") & (pc.field("ts") <= last)).slice(0, tuples)
    renamed = asked.rename_columns({"stock": "id", "price": "ask", "volume": "size"})
    return {
        "trades": made.select(["ts", "id", "price", "volume"]),
        "quotes": renamed.select(["ts", "id", "ask", "size"]),
    }


def results(inputs: Tables) -> dict[str, tg.Stream]:
    """The bargains."""
    made, asked = (tg.stream(inputs[name], time="ts", name=name) for name in ("trades", "quotes"))
    return {"bargains": bargains(made, asked)}


def report(found: Tables) -> Report:
    """The best ones."""
    best = found["bargains"].sort_by([("index", "descending"), ("ts", "ascending")]).slice(0, 5)
    saved = pc.sum(found["bargains"]["index"]).as_py() or 0.0
    shown = best.set_column(best.column_names.index("index"), "index", pc.round(best["index"], 2))
    return Report(
        shown, f"{found['bargains'].num_rows:,} quotes were bargains; all of them would have saved {saved:,.0f}."
    )


bargain_index = Application(
    name="bargain_index",
    question="Which shares are offered below the average price of the last seconds, and how good a bargain is it?",
    generate=generate,
    read=read,
    results=results,
    report=report,
)
