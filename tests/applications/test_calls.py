"""The applications over call records, against plain loops over the same records."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from examples.call_records.application import call_records
from examples.call_records.operators import by_start, same_number
from examples.fraud.application import fraud
from examples.high_mobility.application import high_mobility
from examples.inputs.calls import call_records as generated
from examples.inputs.calls import numbered
from tidegate.testing import answer

Record = dict[str, Any]
Pair = tuple[str, int, float]


def km_between(one: Record, other: Record) -> float:
    """The great circle by the law of cosines: another formula than the application's."""
    lat, lat_2, lon, lon_2 = (math.radians(each) for each in (one["lat"], other["lat"], one["lon"], other["lon"]))
    inner = math.sin(lat) * math.sin(lat_2) + math.cos(lat) * math.cos(lat_2) * math.cos(lon - lon_2)
    return 6_371.0 * math.acos(min(inner, 1.0))


def by_number(records: pa.Table) -> dict[str, list[Record]]:
    """The calls of each number by their starts; of one second, by the columns from left to right."""
    found = defaultdict(list)
    for record in records.sort_by([(name, "ascending") for name in ("start_s", *records.column_names)]).to_pylist():
        found[record["src"]].append(record)
    return found


def plain_pairs(records: pa.Table) -> list[tuple[int, Pair]]:
    """StreamCloud's predicate, for each two records of a number: the later start, and what the pair says."""
    return [
        (
            max(one["start_s"], other["start_s"]),
            (number, abs(one["start_s"] - other["start_s"]), km_between(one, other)),
        )
        for number, calls in by_number(records).items()
        for one, other in combinations(calls, 2)
        if abs(one["start_s"] - other["start_s"]) <= 60
    ]


def assert_pairs(found: pa.Table, wanted: list[Pair]) -> None:
    rows = sorted((row["src"], row["seconds"], row["km"]) for row in found.to_pylist())
    assert [row[:2] for row in rows] == [pair[:2] for pair in sorted(wanted)]
    assert [row[2] for row in rows] == pytest.approx([pair[2] for pair in sorted(wanted)], abs=0.5)


def check_call_records(found: dict[str, pa.Table], records: pa.Table) -> None:
    """The Aggregate, the Join and the Cartesian product, one after the other."""
    minutes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for record in records.to_pylist():
        for back in range(0, 60, 10):
            begin = record["start_s"] // 10 * 10 - back
            minutes[record["district"], begin].append(record["end_s"] - record["start_s"])
    told = {
        (row["district"], round(row["window_start"].timestamp())): (row["calls"], row["duration"])
        for row in found["districts"].to_pylist()
    }
    wanted = {key: (len(each), pytest.approx(sum(each) / len(each))) for key, each in minutes.items()}
    assert told == wanted

    assert_pairs(found["same_number"], [pair for _, pair in plain_pairs(records)])

    overlaps = []
    for one, other in combinations(sorted(records.to_pylist(), key=lambda each: each["start_s"]), 2):
        begins_within = one["start_s"] < other["start_s"] < one["end_s"] and other["start_s"] - one["start_s"] <= 7_200
        if begins_within and {one["src"], one["dst"]} & {other["src"], other["dst"]}:
            overlaps.append((one["src"], one["dst"], other["src"], other["dst"]))
    names = ("src", "dst", "src_2", "dst_2")
    assert sorted(tuple(row[name] for name in names) for row in found["overlapping"].to_pylist()) == sorted(overlaps)
    assert overlaps


def check_fraud(found: dict[str, pa.Table], records: pa.Table) -> None:
    """Hours of a number with at least two pairs that are too far apart."""
    hours: dict[tuple[str, int], list[float]] = defaultdict(list)
    for start, (number, seconds, km) in plain_pairs(records):
        if km > 10 + seconds * 900 / 3_600:
            hours[number, start // 3_600 * 3_600].append(km)
    wanted = {key: (len(kms), pytest.approx(max(kms), abs=0.5)) for key, kms in hours.items() if len(kms) >= 2}
    assert wanted
    told = {
        (row["src"], round(row["window_start"].timestamp())): (row["times"], row["farthest_km"])
        for row in found["suspects"].to_pylist()
    }
    assert told == wanted


def check_high_mobility(found: dict[str, pa.Table], records: pa.Table) -> None:
    """Each two calls of a number that follow one another."""
    wanted = []
    for number, calls in by_number(records).items():
        for one, other in pairwise(calls):
            km, seconds = km_between(one, other), other["start_s"] - one["start_s"]
            if km >= 20 and km / max(seconds, 1) * 3_600 > 300:
                wanted.append((number, seconds, km))
    assert wanted
    assert_pairs(found["moves"], wanted)


@pytest.mark.parametrize(
    "on", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_results_are_those_of_plain_loops(on: str, request: pytest.FixtureRequest) -> None:
    if on == "spark":
        request.getfixturevalue("spark")
    few, many = generated(500, seed=2), generated(12_000, seed=2)
    check_call_records(call_records.run({"calls": few}, on), few)
    check_fraud(fraud.run({"calls": many}, on), many)
    check_high_mobility(high_mobility.run({"calls": many}, on), many)


def test_calls_of_one_number_are_paired_as_streamcloud_does() -> None:
    # start_s    0         30        45     45     105    106
    # end_s      10,000    40        60     60     106    107     the first lasts hours; two end in the same second
    starts, ends = [0, 30, 45, 45, 105, 106], [10_000, 40, 60, 60, 106, 107]
    told = {"src": ["a"] * 6, "start_s": starts, "end_s": ends}
    records = pa.table({**told, "lat": [55.0 + n for n in range(6)], "lon": [12.0 - n for n in range(6)]})
    emitted = numbered(records.sort_by("end_s"))
    wanted = [pair for _, pair in plain_pairs(emitted)]
    assert len(wanted) == 9
    assert_pairs(answer(same_number(by_start(emitted))).rows, wanted)


def test_a_place_is_drawn_for_real_calls_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "cdr_copenhagen").mkdir()
    (tmp_path / "cdr_copenhagen" / "calls.csv").write_text(
        "timestamp,from,to,duration\n100,7,8,50\n90,3,7,20\n95,3,4,-1\n"
    )
    read = high_mobility.read(tmp_path, 10)["calls"]
    told = [(row["src"], row["dst"], row["start_s"] - row["end_s"]) for row in read.to_pylist()]
    assert told == [("3", "7", -20), ("7", "8", -50)]
    assert isinstance(by_start(read), tg.Stream)
