"""Persons, auctions and bids by seed, with the proportions and distributions of Nexmark's public generator.

Of 50 events the first is a person who registers, the next three are auctions that open, and 46 are bids. Half of all bids
go to one hot auction, the first of the latest hundred; three of four bids come from a hot bidder, and three of four auctions
are of a hot seller. The rest is spread over the last hundred auctions and thousand people, and a few that do not exist yet.
Prices are log-uniform from 1 to 1,000,000 dollars, in cents. An auction lasts until about a hundred more have opened.

An event depends on the seed and on its number, not on how many are generated or how they are cut into files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.nexmark.texts import Numbers, Random, letters, padding, words

EVENTS_IN_A_ROUND, AUCTIONS_IN_A_ROUND = 50, 3  # and one person; the rest are bids
BLOCK = 50_000
"""Events that share a seed: whole rounds."""
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
HOT_AMONG = 100
"""One auction, seller or bidder among so many is hot."""
HOT_AUCTION, HOT_SELLER, HOT_BIDDER, HOT_CHANNEL = 2, 4, 4, 2
"""All but one in so many go to the hot one."""
AUCTIONS_OPEN, PEOPLE_ACTIVE, AHEAD = 100, 1_000, 10
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
STALL_EVERY_US, STALL_US = 20_000_000, 3_000_000
"""For so long, so often, nothing arrives; what has happened meanwhile then arrives at once."""
KINDS = ("person", "auction", "bid")


@dataclass(frozen=True)
class Nexmark:
    """Everything that decides the events. ``rate`` is how many happen in a second of event time."""

    events: int
    rate: int = 10_000
    seed: int = 1
    start: datetime = datetime(2024, 1, 1, tzinfo=UTC)

    @property
    def longest_auction(self) -> timedelta:
        """No auction stays open for longer."""
        return timedelta(milliseconds=1 + 2 * self._open_ms)

    @property
    def _open_ms(self) -> int:
        """How long it takes until a hundred more auctions have opened; half of the longest auction."""
        return max(AUCTIONS_OPEN * EVENTS_IN_A_ROUND // AUCTIONS_IN_A_ROUND * 1_000 // self.rate + 1, 1)

    def tables(self) -> dict[str, pa.Table]:
        """All events by kind: person, auction, bid."""
        blocks = list(self.blocks())
        return {kind: pa.concat_tables([block[kind] for block in blocks]).combine_chunks() for kind in KINDS}

    def write(self, folder: Path, events_in_a_file: int = 250_000) -> None:
        """Parquet files ``folder/KIND/batch-00000.parquet`` and so on; those of one number span the same time."""
        for kind in KINDS:
            (folder / kind).mkdir(parents=True, exist_ok=True)
        for number, first in enumerate(range(0, self.events, events_in_a_file)):
            part = list(self.blocks(first, min(first + events_in_a_file, self.events)))
            for kind in KINDS:
                path = folder / kind / f"batch-{number:05}.parquet"
                pq.write_table(pa.concat_tables([block[kind] for block in part]), path)
                os.utime(path, (1_700_000_000 + 10 * number,) * 2)  # some readers go by modification time

    def blocks(self, first: int = 0, stop: int | None = None) -> Iterator[dict[str, pa.Table]]:
        """The events from number ``first`` up to ``stop``, some tens of thousands at a time."""
        stop = self.events if stop is None else stop
        for block in range(first // BLOCK, -(-stop // BLOCK)):
            numbers = np.arange(block * BLOCK, (block + 1) * BLOCK)
            random = np.random.default_rng((self.seed, block))
            place = numbers % EVENTS_IN_A_ROUND
            wanted = (numbers >= first) & (numbers < stop)
            make = {"person": self._persons, "auction": self._auctions, "bid": self._bids}
            kinds = {"person": place == 0, "auction": (place > 0) & (place <= AUCTIONS_IN_A_ROUND)}
            kinds["bid"] = place > AUCTIONS_IN_A_ROUND
            # A block is always drawn whole, so that where it is cut changes nothing.
            yield {kind: make[kind](random, numbers[of]).filter(pa.array(wanted[of])) for kind, of in kinds.items()}

    def _persons(self, random: Random, numbers: Numbers) -> pa.Table:
        rows = len(numbers)
        names = pc.binary_join_element_wise(_choice(random, FIRST_NAMES, rows), _choice(random, LAST_NAMES, rows), " ")
        mailbox, domain = (words(random, self._pool, rows, longest) for longest in (7, 5))
        emails = pc.binary_join_element_wise(mailbox, "@", domain, ".com", "")
        fours = [pa.array(np.char.zfill(random.integers(0, 10_000, rows).astype(str), 4)) for _ in range(4)]
        cards = pc.binary_join_element_wise(*fours, " ")
        texts = {
            "name": names,
            "email_address": emails,
            "credit_card": cards,
            "city": _choice(random, CITIES, rows),
            "state": _choice(random, STATES, rows),
        }
        used = 8 + sum(np.asarray(pc.binary_length(text), np.int64) for text in texts.values())
        return pa.table(
            {
                "id": FIRST_ID + numbers // EVENTS_IN_A_ROUND,
                **texts,
                "date_time": _moments(self._times(numbers)),
                "extra": padding(random, self._filler, used, PERSON_BYTES),
            }
        )

    def _auctions(self, random: Random, numbers: Numbers) -> pa.Table:
        rows, times = len(numbers), self._times(numbers)
        people = numbers // EVENTS_IN_A_ROUND
        hot = random.integers(0, HOT_SELLER, rows) > 0
        sellers = np.where(hot, people // HOT_AMONG * HOT_AMONG, _active_people(random, people))
        first_bids = _prices(random, rows)
        names, descriptions = (words(random, self._pool, rows, longest) for longest in (20, 100))
        used = 48 + sum(np.asarray(pc.binary_length(text), np.int64) for text in (names, descriptions))
        return pa.table(
            {
                "id": FIRST_ID + _last_auctions(numbers),
                "item_name": names,
                "description": descriptions,
                "initial_bid": first_bids,
                "reserve": first_bids + _prices(random, rows),
                "date_time": _moments(times),
                "expires": _moments(times + 1_000 * (1 + random.integers(0, 2 * self._open_ms, rows))),
                "seller": FIRST_ID + sellers,
                "category": FIRST_CATEGORY + random.integers(0, CATEGORIES, rows),
                "extra": padding(random, self._filler, used, AUCTION_BYTES),
            }
        )

    def _bids(self, random: Random, numbers: Numbers) -> pa.Table:
        rows = len(numbers)
        people, last = numbers // EVENTS_IN_A_ROUND, _last_auctions(numbers)
        lowest = np.maximum(last - AUCTIONS_OPEN, 0)
        some = lowest + random.integers(0, last - lowest + 1 + AHEAD)
        hot = random.integers(0, HOT_AUCTION, rows) > 0
        auctions = np.where(hot, last // HOT_AMONG * HOT_AMONG, some)
        hot = random.integers(0, HOT_BIDDER, rows) > 0
        # The second of its hundred, so that hot bidders are no hot sellers.
        bidders = np.where(hot, people // HOT_AMONG * HOT_AMONG + 1, _active_people(random, people))
        hot = random.integers(0, HOT_CHANNEL, rows) > 0
        known = np.where(hot, random.integers(0, len(HOT_CHANNELS), rows), random.integers(0, CHANNELS, rows) + 4)
        channels, urls = (texts.take(pa.array(known)) for texts in self._channels)
        return pa.table(
            {
                "auction": FIRST_ID + auctions,
                "bidder": FIRST_ID + bidders,
                "price": _prices(random, rows),
                "channel": channels,
                "url": urls,
                "date_time": _moments(self._times(numbers)),
                "extra": padding(random, self._filler, np.full(rows, 32), BID_BYTES),
                "arrival": _moments(self._arrivals(numbers)),
            }
        )

    def _times(self, numbers: Numbers) -> Numbers:
        """When events happen, in whole milliseconds: several in one where the rate is high."""
        return self._start_us + numbers * 1_000 // self.rate * 1_000

    def _arrivals(self, numbers: Numbers) -> Numbers:
        """When they arrive: soon after, but what happens while the line stalls arrives when it is up again. In order."""
        moments = self._start_us + numbers * 1_000_000 // self.rate
        into = moments % STALL_EVERY_US
        return moments + np.maximum(STALL_US - into, 0) + 1_000

    @property
    def _start_us(self) -> int:
        return round(self.start.timestamp()) * 1_000_000

    @cached_property
    def _pool(self) -> Any:
        return letters(np.random.default_rng((self.seed, 1, 1)), gap=" ")

    @cached_property
    def _filler(self) -> Any:
        return letters(np.random.default_rng((self.seed, 3, 3)))

    @cached_property
    def _channels(self) -> tuple[pa.Array, pa.Array]:
        """Channels and the address of each: four hot ones, then ten thousand, nine of ten with a number in the address."""
        random = np.random.default_rng((self.seed, 2, 2))
        pool, rows = letters(random, gap="_"), len(HOT_CHANNELS) + CHANNELS
        folders = [words(random, pool, rows, 5) for _ in range(3)]
        addresses = pc.binary_join_element_wise("https://www.nexmark.com", *folders, "item.htm?query=1", "/")
        numbered = random.integers(0, 10, rows) > 0
        numbered[: len(HOT_CHANNELS)] = False
        tails = [f"&channel_id={_reversed_bits(number - 4)}" if numbered[number] else "" for number in range(rows)]
        names = pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))])
        return names, pc.binary_join_element_wise(addresses, pa.array(tails), "")


def side_table(rows: int = 10_000) -> pa.Table:
    """The table of query 13: numbers and their texts."""
    return pa.table({"key": np.arange(rows), "value": pa.array([str(number) for number in range(rows)])})


def _moments(times_us: Numbers) -> pa.Array:
    return pa.array(times_us, pa.timestamp("us", tz="UTC"))


def _choice(random: Random, texts: tuple[str, ...], rows: int) -> pa.Array:
    return pa.array(texts).take(pa.array(random.integers(0, len(texts), rows)))


def _prices(random: Random, rows: int) -> Numbers:
    return np.rint(10.0 ** (random.random(rows) * 6) * 100).astype(np.int64)


def _last_auctions(numbers: Numbers) -> Numbers:
    """The auction that opened last when an event happens, counted from 0; of an auction itself."""
    place = np.minimum(numbers % EVENTS_IN_A_ROUND - 1, AUCTIONS_IN_A_ROUND - 1)
    return np.maximum(numbers // EVENTS_IN_A_ROUND * AUCTIONS_IN_A_ROUND + place, 0)


def _active_people(random: Random, people: Numbers) -> Numbers:
    """One of the latest thousand, or of the next few."""
    active = np.minimum(people + 1, PEOPLE_ACTIVE)
    return people + 1 - active + random.integers(0, active + AHEAD)


def _reversed_bits(number: int) -> int:
    """The 32 bits of a number from right to left, as a signed number without its sign."""
    turned = int(f"{number:032b}"[::-1], 2)
    return abs(turned - (1 << 32) if turned >> 31 else turned)
