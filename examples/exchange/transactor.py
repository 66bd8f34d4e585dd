"""The transactor: executes each order against the outstanding orders of its stock, by price, then by time.

The book of a stock is two stores, whose first entry is the best order: the lowest ask, the highest bid (its price is kept
negated), and of equal prices the one that came first.
"""

import pyarrow as pa

import tidegate as tg

STANDING = tg.store(
    key={"rank": pa.int64(), "time": pa.int64(), "order": pa.int64()},
    value={"trader": pa.string(), "volume": pa.int64()},
)
TRANSACTION = {
    "stock": pa.string(),
    "number": pa.int64(),
    "price": pa.int64(),
    "volume": pa.int64(),
    "cash": pa.int64(),
    "seller": pa.string(),
    "buyer": pa.string(),
}
"""`number` counts the transactions of a stock, so that those of one order stay in their order."""


def execute(window, order):
    """A row for each outstanding order that this one meets, at the outstanding one's price; the rest of it stands."""
    buys, limit, left = order["side"] == "buy", order["price"], order["volume"]
    asks, bids = window.store("asks"), window.store("bids")
    facing, own = (asks, bids) if buys else (bids, asks)
    number, made = window.state["number"], []
    while left and (best := facing.first()) is not None:
        place, outstanding = best
        price = abs(place[0])
        if price > limit if buys else price < limit:
            break
        volume = min(left, outstanding["volume"])
        left -= volume
        if volume == outstanding["volume"]:
            facing.remove(place)
        else:
            facing.put(place, {"trader": outstanding["trader"], "volume": outstanding["volume"] - volume})
        number += 1
        seller, buyer = outstanding["trader"], order["trader"]
        if not buys:
            seller, buyer = buyer, seller
        made.append(
            {
                "stock": window.key,
                "number": number,
                "price": price,
                "volume": volume,
                "cash": price * volume,
                "seller": seller,
                "buyer": buyer,
            }
        )
    if left:
        own.put((-limit if buys else limit, order.time, order["order"]), {"trader": order["trader"], "volume": left})
    return tg.updated({"number": number}, rows=made)


def transactions(orders: tg.Stream) -> tg.Stream:
    """The transactions that orders (ts, order, stock, trader, side, price, volume) lead to."""
    return (
        orders.key_by("stock")
        .unbounded()
        .apply(
            update=execute,
            state={"number": pa.int64()},
            initial={"number": 0},
            stores={"asks": STANDING, "bids": STANDING},
            returns=TRANSACTION,
            name="transactor",
        )
    )
