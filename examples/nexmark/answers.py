"""The same 23 questions as SQL for DuckDB, over all events at once: what a stream's results must come to in the end.

Written from the questions, not from the streaming queries. ``{side}`` is the number of rows of the side table.
Where many rows would do, such as the last bid of two in one millisecond, the order of all columns decides.
"""

from __future__ import annotations

from collections.abc import Mapping

_OPEN = """
    select a.*, b.bidder, b.price, b.date_time as bid_time, b.extra as bid_extra
    from auction a join bid b on a.id = b.auction
    where b.date_time between a.date_time and a.expires
"""
_FINAL = f"select id, seller, category, max(price) as final, max(bid_time) as last_bid from ({_OPEN}) group by all"
_RANKS = """
    count(*) as total_bids,
    count(*) filter (price < 10000) as rank1_bids,
    count(*) filter (price >= 10000 and price < 1000000) as rank2_bids,
    count(*) filter (price >= 1000000) as rank3_bids
"""
_DISTINCT = ", ".join(
    f"count(distinct {what}) filter ({test}) as {rank}_{what}s"
    for what in ("bidder", "auction")
    for rank, test in {
        "total": "true",
        "rank1": "price < 10000",
        "rank2": "price >= 10000 and price < 1000000",
        "rank3": "price >= 1000000",
    }.items()
)
_HOP = """
    select make_timestamptz((last - back) * 2000000 + 10000000) as window_end, auction, count(*) as num
    from (select auction, epoch_us(date_time) // 2000000 as last from bid), range(5) as hops(back)
    group by all
"""
_CHANNEL_ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"

ANSWERS: Mapping[str, str] = {
    "q0": "select auction, bidder, price, date_time, extra from bid",
    "q1": "select auction, bidder, price * 0.908::double as price, date_time, extra from bid",
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": """
        select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    "q4": f"select category, count(*) as auctions, avg(final) as average from ({_FINAL}) group by category",
    "q5": f"""
        with counts as ({_HOP})
        select window_end, auction, num from counts
        where (window_end, num) in (select (window_end, max(num)) from counts group by window_end)
    """,
    "q6": f"""
        with numbered as (
            select *, row_number() over seller as number, avg(final) over (seller rows 9 preceding) as average
            from ({_FINAL}) window seller as (partition by seller order by last_bid, id)
        )
        select seller, id as last, average from numbered where number >= 10
    """,
    "q7": """
        with highest as (
            select time_bucket(interval 10 second, date_time) as start, max(price) as price from bid group by all
        )
        select b.date_time as date_time_left, b.auction, b.bidder, b.price, b.extra
        from bid b join highest h on b.price = h.price and b.date_time between h.start and h.start + interval 10 second
    """,
    "q8": """
        select distinct p.id, p.name, time_bucket(interval 10 second, p.date_time) as window_start
        from person p join auction a on p.id = a.seller
        and time_bucket(interval 10 second, p.date_time) = time_bucket(interval 10 second, a.date_time)
    """,
    "q9": f"""
        select id, item_name, description, initial_bid, reserve, date_time as opened, expires, seller, category, extra,
            bidder, price, bid_time as date_time_right, bid_extra as extra_right
        from ({_OPEN}) qualify row_number() over (partition by id order by price desc, bid_time, bidder) = 1
    """,
    "q10": """
        select auction, bidder, price, date_time, extra,
            strftime(date_time, '%Y-%m-%d') as dt, strftime(date_time, '%H:%M') as hm
        from bid
    """,
    "q11": """
        with gaps as (
            select *, date_time - lag(date_time) over (partition by bidder order by date_time) as gap from bid
        ), numbered as (
            select *, count(*) filter (gap is null or gap >= interval 10 second)
                over (partition by bidder order by date_time) as number
            from gaps
        )
        select bidder, count(*) as bid_count, min(date_time) as window_start,
            max(date_time) + interval 10 second as window_end
        from numbered group by bidder, number
    """,
    "q12": """
        select bidder, count(*) as bid_count, time_bucket(interval 10 second, arrival) as window_start
        from bid group by all
    """,
    "q13": """
        select b.auction, b.bidder, b.price, b.date_time, s.value from bid b join side s on b.auction % 10000 = s.key
    """,
    "q14": """
        select auction, bidder, price * 0.908::double as price, date_time, extra,
            case when hour(date_time) between 8 and 18 then 'dayTime'
                when hour(date_time) <= 6 or hour(date_time) >= 20 then 'nightTime' else 'otherTime' end as bid_time_type,
            length(extra) - length(replace(extra, 'c', '')) as c_counts
        from bid where price * 0.908::double > 1000000 and price * 0.908::double < 50000000
    """,
    "q15": f"select date_trunc('day', date_time)::timestamptz as window_start, {_RANKS}, {_DISTINCT} from bid group by all",
    "q16": f"""
        select channel, date_trunc('day', date_time)::timestamptz as window_start,
            strftime(max(date_time), '%H:%M') as minute, {_RANKS}, {_DISTINCT}
        from bid group by all
    """,
    "q17": f"""
        select auction, date_trunc('day', date_time)::timestamptz as window_start, {_RANKS}, min(price) as min_price,
            max(price) as max_price, avg(price) as avg_price, sum(price)::bigint as sum_price
        from bid group by all
    """,
    "q18": """
        select bidder, auction, price, channel, url, date_time as at, extra from bid
        qualify row_number() over (partition by bidder, auction order by date_time desc, price, channel, url, extra) = 1
    """,
    "q19": """
        select auction, bidder, price, channel, url, date_time as at, extra,
            row_number() over (partition by auction order by price desc, date_time, bidder, channel, url, extra) as rank
        from bid qualify rank <= 10
    """,
    "q20": """
        select b.auction, b.bidder, b.price, b.channel, b.url, b.date_time as date_time_left, b.extra, a.item_name,
            a.description, a.initial_bid, a.reserve, a.date_time as date_time_right, a.expires, a.seller, a.category,
            a.extra as extra_right
        from bid b join auction a on b.auction = a.id where a.category = 10
    """,
    "q21": f"""
        select * from (
            select auction, bidder, price, channel, case lower(channel) when 'apple' then '0' when 'google' then '1'
                when 'facebook' then '2' when 'baidu' then '3' else nullif({_CHANNEL_ID}, '') end as channel_id
            from bid
        ) where channel_id is not null
    """,
    "q22": """
        select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2,
            split_part(url, '/', 6) as dir3
        from bid
    """,
}
"""The columns of an answer are those that are compared; a streaming result has its event time too, and window ends."""

LAST_ROWS: Mapping[str, tuple[str, str]] = {"q4": ("category", "auctions")}
"""Queries that give rows again as they change: the key of a row, and the column that is greatest in its last one."""
