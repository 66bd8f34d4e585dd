"""The exchange as one query of twelve results: the transactions, six statistics and five events."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.exchange.analytics import events, statistics
from examples.exchange.transactor import transactions
from examples.inputs.orders import orders, quoted_orders

ALARMED = ("price_alarms", "large_deals", "own_deals", "price_jumps", "bursts")
ABOVE_FIRST = 1.01


def results(inputs: Tables) -> dict[str, tg.Stream]:
    """The transactions and what is computed of them; the transactor runs once for each order."""
    deals = transactions(tg.stream(inputs["orders"], time="ts", name="orders"))
    return {"transactions": deals, **statistics(deals), **events(deals, inputs["limits"])}


def with_limits(placed: pa.Table) -> dict[str, pa.Table]:
    """Orders, and as limit of each stock one percent above the first price that was named for it."""
    first = placed.group_by("stock", use_threads=False).aggregate([("price", "first")])
    limit = pc.cast(pc.floor(pc.multiply(first["price_first"], ABOVE_FIRST)), pa.int64())
    return {"orders": placed, "limits": pa.table({"stock": first["stock"], "limit": limit})}


def report(found: Tables) -> Report:
    """The stocks with the greatest turnover, and how often something was noticed."""
    deals, index = found["transactions"], found["composite_index"].sort_by("ts")["index"].to_pylist()
    by_stock = deals.group_by("stock").aggregate([([], "count_all"), ("volume", "sum"), ("cash", "sum")])
    top = by_stock.sort_by([("cash_sum", "descending"), ("stock", "ascending")]).slice(0, 5)
    rows = pa.table(
        {
            "stock": top["stock"],
            "deals": top["count_all"],
            "shares": top["volume_sum"],
            "turnover": pc.divide(top["cash_sum"], 100),
            "average": pc.round(pc.divide(pc.divide(top["cash_sum"], top["volume_sum"].cast(pa.float64())), 100.0), 4),
        }
    )
    noticed = ", ".join(f"{found[name].num_rows:,} {name.replace('_', ' ')}" for name in ALARMED)
    moved = f"the index went from {index[0]:,.1f} to {index[-1]:,.1f}" if index else "there is no index"
    return Report(rows, f"{deals.num_rows:,} transactions; {moved}; {noticed}.")


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """Orders made of the first quotes in the folder."""
    return with_limits(quoted_orders(folder, tuples))


exchange = Application(
    name="exchange",
    question="Which transactions do limit orders lead to, and what do six statistics and five alarms say of them?",
    generate=lambda tuples, seed: with_limits(orders(tuples, seed)),
    read=read,
    results=results,
    report=report,
)
