"""The queries of Nexmark as SQL of Flink, over `person`, `auction`, `bid` and `side`, with the columns of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_OPEN = "FROM auction a, bid b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"
_RANKS = """
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids
"""
_DISTINCT = ", ".join(
    f"COUNT(DISTINCT {what}) FILTER (WHERE {test}) AS {rank}_{what}s"
    for what in ("bidder", "auction")
    for rank, test in {
        "total": "TRUE",
        "rank1": "price < 10000",
        "rank2": "price >= 10000 AND price < 1000000",
        "rank3": "price >= 1000000",
    }.items()
)
_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_COUNTS = (
    f"SELECT auction, COUNT(*) AS num, window_start, window_end FROM {_HOP} GROUP BY auction, window_start, window_end"
)


def _tumbled(table: str, time: str = "date_time") -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '10' SECOND))"


_CHANNEL_ID = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
_DAY = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"

QUERIES: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908e0 AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        SELECT category, COUNT(*) AS auctions, AVG(CAST(final AS DOUBLE)) AS average
        FROM (SELECT MAX(b.price) AS final, a.category {_OPEN} GROUP BY a.id, a.category) GROUP BY category
    """,
    "q5": f"""
        SELECT c.window_end, c.auction, c.num FROM ({_COUNTS}) c JOIN (
            SELECT MAX(num) AS most, window_start, window_end FROM ({_COUNTS}) GROUP BY window_start, window_end
        ) m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.most
    """,
    "q7": f"""
        SELECT b.date_time AS date_time_left, b.auction, b.bidder, b.price, b.extra FROM bid b JOIN (
            SELECT MAX(price) AS price, window_end AS ended FROM {_tumbled("bid")} GROUP BY window_start, window_end
        ) h ON b.price = h.price WHERE b.date_time BETWEEN h.ended - INTERVAL '10' SECOND AND h.ended
    """,
    "q8": f"""
        SELECT p.id, p.name, p.window_start FROM (
            SELECT id, name, window_start, window_end FROM {_tumbled("person")} GROUP BY id, name, window_start, window_end
        ) p JOIN (
            SELECT seller, window_start, window_end FROM {_tumbled("auction")} GROUP BY seller, window_start, window_end
        ) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
    """,
    "q9": f"""
        SELECT id, item_name, description, initial_bid, reserve, opened, expires, seller, category, extra,
            bidder, price, date_time_right, extra_right
        FROM (
            SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller,
                a.category, a.extra, b.bidder, b.price, b.date_time AS date_time_right, b.extra AS extra_right,
                ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS place
            {_OPEN}
        ) WHERE place <= 1
    """,
    "q10": f"""
        SELECT auction, bidder, price, date_time, extra, {_DAY} AS dt, DATE_FORMAT(date_time, 'HH:mm') AS hm FROM bid
    """,
    "q11": """
        SELECT bidder, COUNT(*) AS bid_count, SESSION_START(date_time, INTERVAL '10' SECOND) AS window_start,
            SESSION_END(date_time, INTERVAL '10' SECOND) AS window_end
        FROM bid GROUP BY bidder, SESSION(date_time, INTERVAL '10' SECOND)
    """,
    "q12": f"""
        SELECT bidder, COUNT(*) AS bid_count, window_start FROM {_tumbled("arriving", "arrival")}
        GROUP BY bidder, window_start, window_end
    """,
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.date_time, s.`value`
        FROM bid b JOIN side s ON MOD(b.auction, 10000) = s.`key`
    """,
    "q14": """
        SELECT * FROM (
            SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908e0 AS price, date_time, extra,
                CASE WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                    WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime'
                END AS bid_time_type,
                CAST(CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS BIGINT) AS c_counts
            FROM bid
        ) WHERE price > 1000000 AND price < 50000000
    """,
    "q15": f"SELECT {_DAY} AS `day`, {_RANKS}, {_DISTINCT} FROM bid GROUP BY {_DAY}",
    "q16": f"""
        SELECT channel, {_DAY} AS `day`, MAX(DATE_FORMAT(date_time, 'HH:mm')) AS `minute`, {_RANKS}, {_DISTINCT}
        FROM bid GROUP BY channel, {_DAY}
    """,
    "q17": f"""
        SELECT auction, {_DAY} AS `day`, {_RANKS}, MIN(price) AS min_price, MAX(price) AS max_price,
            AVG(CAST(price AS DOUBLE)) AS avg_price, SUM(price) AS sum_price
        FROM bid GROUP BY auction, {_DAY}
    """,
    "q18": """
        SELECT bidder, auction, price, channel, url, `at`, extra FROM (
            SELECT *, date_time AS `at`,
                ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place
            FROM bid
        ) WHERE place <= 1
    """,
    "q19": """
        SELECT auction, bidder, price, channel, url, `at`, extra, `rank` FROM (
            SELECT *, date_time AS `at`, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS `rank` FROM bid
        ) WHERE `rank` <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS date_time_left, b.extra, a.item_name,
            a.description, a.initial_bid, a.reserve, a.date_time AS date_time_right, a.expires, a.seller, a.category,
            a.extra AS extra_right
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10
    """,
    "q21": f"""
        SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
            WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {_CHANNEL_ID} END AS channel_id
        FROM bid WHERE {_CHANNEL_ID} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')
    """,
    "q22": """
        SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
            SPLIT_INDEX(url, '/', 5) AS dir3
        FROM bid
    """,
}


@dataclass(frozen=True, slots=True)
class Changing:
    """The key of rows that change, and the columns that do not depend on how Flink breaks ties."""

    key: tuple[str, ...]
    compared: tuple[str, ...]


UPDATING: Mapping[str, Changing] = {
    "q4": Changing(("category",), ("category", "auctions", "average")),
    "q9": Changing(("id",), ("id", "price", "date_time_right")),
    "q15": Changing(("day",), ("total_bids", "rank1_bidders", "total_auctions")),
    "q16": Changing(("channel", "day"), ("channel", "minute", "total_bids", "rank3_bidders", "total_auctions")),
    "q17": Changing(("auction", "day"), ("auction", "total_bids", "min_price", "max_price", "avg_price", "sum_price")),
    "q18": Changing(("bidder", "auction"), ("bidder", "auction", "at")),
    "q19": Changing(("auction", "rank"), ("auction", "price", "rank")),
}
"""The queries whose rows change."""
