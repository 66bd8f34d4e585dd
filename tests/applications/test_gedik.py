"""The applications of Gedik et al. against plain Python; PageRank is in `test_pagerank`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.bargain_index.application import bargain_index
from examples.inputs.logins import SCHEMA
from examples.network_monitoring.application import network_monitoring
from examples.network_monitoring.break_ins import parsed
from examples.twitter.application import twitter
from examples.twitter.text import STOP_WORDS, analysed

Tables = dict[str, pa.Table]
RUNTIMES = ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)])]


@pytest.fixture(params=RUNTIMES)
def on(request: pytest.FixtureRequest) -> str:
    """The name of a runtime, with a session if it needs one."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


def micros(row: dict[str, Any]) -> int:
    return round(row["ts"].timestamp() * 1_000_000)


def test_bargains_are_quotes_below_the_last_average(on: str) -> None:
    inputs = bargain_index.generate(1_200, 4)
    trades = defaultdict(list)
    for trade in inputs["trades"].to_pylist():
        trades[trade["id"]].append((micros(trade), trade["price"], trade["volume"]))
    wanted = []
    for quote in inputs["quotes"].to_pylist():
        time = micros(quote)
        # A window ends at a whole second; its average counts from one microsecond before that, for five seconds.
        for second in range((time + 1) // 1_000_000, (time + 1) // 1_000_000 - 6, -1):
            end = second * 1_000_000
            inside = [(p, v) for at, p, v in trades[quote["id"]] if end - 15_000_000 <= at < end]
            if inside and time - (end - 1) <= 5_000_000:
                vwap = sum(p * v for p, v in inside) / sum(v for _, v in inside)
                if quote["ask"] < vwap:
                    wanted.append((time, quote["id"], vwap, (vwap - quote["ask"]) * quote["size"]))
                break
    found = [
        (micros(row), row["id"], row["vwap"], row["index"])
        for row in bargain_index.run(inputs, on)["bargains"].to_pylist()
    ]
    assert len(wanted) > 100
    for row, expected in zip(sorted(found), sorted(wanted), strict=True):
        assert row[:2] == expected[:2]
        assert row[2:] == pytest.approx(expected[2:], rel=1e-9, abs=1e-6)


def plain_attempts(lines: pa.Table) -> list[tuple[str, str, bool, int]]:
    """Host, user, whether accepted, and how often, by the words of a line."""
    found = []
    for message in lines.sort_by([("ts", "ascending"), ("line", "ascending")])["message"].to_pylist():
        words = message.rstrip("]").split()
        if "password" in words:
            times = int(words[3]) if "repeated" in words else 1
            at = words.index("from")
            found.append((words[at + 1], words[at - 1], "Accepted" in words, times))
    return found


def test_break_ins_follow_many_failures(on: str) -> None:
    inputs = network_monitoring.generate(4_000, 5)
    failed: dict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    wanted = []
    for host, user, accepted, times in plain_attempts(inputs["lines"]):
        if accepted:
            before = failed.pop(host, Counter())
            if before.total() > 20:
                wanted.append((host, user, before.total(), sorted(f"{name} {n}" for name, n in before.items())))
        else:
            failed[host][user] += times
            total[host] += times
    found = network_monitoring.run(inputs, on)
    rows = [(row["host"], row["user"], row["failures"], sorted(row["tried"])) for row in found["break_ins"].to_pylist()]
    assert sorted(rows) == sorted(wanted)
    assert len(wanted) > 5
    assert {row["host"]: row["failures"] for row in found["failures"].to_pylist()} == total  # all lie in one hour


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("sshd[1]: Failed password for invalid user a b from 1.2.3.4 port 5 ssh2", []),
        ("sshd[1]: Failed password for invalid user bob from 1.2.3.4 port 5 ssh2", [("1.2.3.4", "bob", False, 1)]),
        ("sshd[1]: Accepted publickey for ann from ::1 port 5 ssh2", [("::1", "ann", True, 1)]),
        ("sshd[1]: Invalid user bob from 1.2.3.4", []),
        ("cron[1]: Failed password for bob from 1.2.3.4 port 5 ssh2", []),
    ],
)
def test_lines_are_parsed(message: str, told: list[Any]) -> None:
    batch = pa.RecordBatch.from_pylist([{"ts": 0, "line": 0, "message": message}], SCHEMA)
    rows = parsed(batch).to_pylist()
    assert [(row["host"], row["user"], row["accepted"], row["times"]) for row in rows] == told


def plain_key_words(text: str) -> set[str]:
    words = {word.lower().strip(".,;:!?\"'()[]{}…“”‘’«»-–—*&|/") for word in text.split()}
    return {word for word in words if len(word) >= 4 and word not in STOP_WORDS.to_pylist()}


def test_key_words_are_counted_and_messages_measured(on: str) -> None:
    inputs = twitter.generate(3_000, 6)
    used: dict[int, Counter[str]] = defaultdict(Counter)
    words: dict[int, list[int]] = defaultdict(list)
    tags: dict[int, list[int]] = defaultdict(list)
    for row in inputs["tweets"].to_pylist():
        hour = micros(row) // 3_600_000_000
        used[hour].update(plain_key_words(row["tweet"]))
        words[hour].append(len(row["tweet"].split()))
        tags[hour].append(row["tweet"].count("#"))
    found = twitter.run(inputs, on)
    measured = {
        micros(row) // 3_600_000_000: (row["tweets"], row["words"], row["hashtags"])
        for row in found["statistics"].to_pylist()
    }
    assert measured == {
        hour: (
            len(words[hour]),
            pytest.approx(sum(words[hour]) / len(words[hour])),
            pytest.approx(sum(tags[hour]) / len(words[hour])),
        )
        for hour in words
    }
    listed: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in found["key_words"].to_pylist():
        hour = micros(row) // 3_600_000_000
        assert used[hour][row["word"]] == row["tweets"]
        listed[hour].append((row["rank"], row["tweets"]))
    for hour, counts in used.items():
        assert sorted(listed[hour]) == [(at, n) for at, (_, n) in enumerate(counts.most_common(3), 1)]


def test_a_message_is_analysed_by_itself() -> None:
    text = "Hello @ann, the STREAM rises! Will it fall? See https://t.co/x #Tide"
    batch = pa.record_batch({"ts": pa.array([0, 1], pa.timestamp("us", tz="UTC")), "tweet": [text, ""]})
    one, nothing = analysed(batch).to_pylist()
    one.pop("ts")
    assert one == {
        "chars": len(text),
        "words": 11,
        "sentences": 2,
        "hashtags": 1,
        "mentions": 1,
        "links": 1,
        "key_words": ["hello", "stream", "rises", "fall", "#tide"],
    }
    assert (nothing["words"], nothing["sentences"], nothing["key_words"]) == (0, 0, [])


def test_files_of_a_folder_are_read(tmp_path: Path) -> None:
    for name in ("tweets_congress", "logs_loghub"):
        (tmp_path / name).mkdir()
    tweets = [
        {"time": "2020-02-04T10:00:00-05:00", "screen_name": "b", "text": "later"},
        {"time": "2020-02-04T09:00:00-05:00", "screen_name": "a", "text": "Earlier words"},
    ]
    (tmp_path / "tweets_congress" / "1.json").write_text(json.dumps(tweets))
    assert twitter.read(tmp_path, 1)["tweets"]["tweet"].to_pylist() == ["Earlier words"]
    log = "Dec 10 06:55:48 Lab sshd[2]: Accepted password for ann from 1.2.3.4 port 9 ssh2\nno line\n"
    (tmp_path / "logs_loghub" / "x.log").write_text(log)
    (line,) = network_monitoring.read(tmp_path, 10)["lines"].to_pylist()
    assert f"{line['ts']:%m-%d %T}" == "12-10 06:55:48"
    assert parsed(pa.RecordBatch.from_pylist([line], SCHEMA)).num_rows == 1
