"""Input at the edge of what can be: times near the ends of int64, JSON that nests without end, clients that say nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver
from tidegate.control.observation import Observation
from tidegate.elastic.metrics import MetricsServer
from tidegate.elastic.scaling import SubqueryStatus
from tidegate.errors import DataError, QueryError
from tidegate.query.event_time import AFTER_LATEST_US, EARLIEST_US
from tidegate.telemetry.loopback import CLIENTS
from tidegate.testing import answer

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = {"ts": TIME, "k": pa.int64()}


def table(*times_us: int) -> pa.Table:
    return pa.table({"ts": pa.array(times_us, pa.int64()).view(TIME), "k": pa.array([1] * len(times_us), pa.int64())})


def counted(rows: pa.Table, name: str = "calls") -> Any:
    return (
        tg.stream(rows, time="ts", name=name, disorder="1 day", ahead=None)
        .key_by("k")
        .window("10 seconds", every="3 seconds", name="w")
        .aggregate(n=tg.count(), name="count")
    )


def in_process(query: Any, rows: pa.Table) -> pa.Table:
    made: list[pa.Table] = []
    tg.run(query, on="local", to=made.append, progress=False)
    return pa.concat_tables(made)


def on_reference(query: Any, rows: pa.Table) -> pa.Table:
    return answer(query, {"calls": rows}).rows


def in_cells(query: Any, rows: pa.Table) -> pa.Table:
    return pa.concat_tables(Driver(query.node, cells=1).run([Batch({"calls": [rows]})]).tables)


RUNTIMES = [in_process, on_reference, in_cells]
EXTREME = [2**63 - 2, 2**63 - 1 - 5_000_000, 2**62, AFTER_LATEST_US, EARLIEST_US - 1, -(2**62), -(2**63) + 1]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("moment", EXTREME)
@pytest.mark.parametrize("run", RUNTIMES)
def test_a_time_that_no_calendar_has_is_an_error_that_names_it(run: Callable[..., pa.Table], moment: int) -> None:
    rows = table(0, 1, moment, 2)
    with pytest.raises(DataError, match=rf"'(calls|count)'.* row 2 .*{moment}.*0001-01-01.*8999-12-31") as failed:
        run(counted(rows), rows)
    assert "ts" in str(failed.value)


@pytest.mark.parametrize("run", RUNTIMES)
def test_times_at_the_ends_of_the_calendar_are_counted(run: Callable[..., pa.Table]) -> None:
    moments = EARLIEST_US, EARLIEST_US + 1, 0, AFTER_LATEST_US - 1
    rows = table(*moments)
    made = run(counted(rows), rows)
    assert sum(made.column("n").to_pylist()) == sum(
        10_000_000 // 3_000_000 + (moment % 3_000_000 < 1_000_000)
        for moment in (EARLIEST_US, EARLIEST_US, 0, AFTER_LATEST_US - 1)
    )


@pytest.mark.timeout(30)
@pytest.mark.parametrize("run", [in_process, on_reference])
@pytest.mark.parametrize("moment", [2**63 - 2, -(2**63) + 1])
def test_joins_and_functions_refuse_such_times_too(run: Callable[..., pa.Table], moment: int) -> None:
    rows = table(0, moment)
    stream = tg.stream(rows, time="ts", name="calls", disorder="1 day", ahead=None)
    for query in (
        stream.join(stream, on="k", within="1 minute"),
        stream.join(stream, on="k", window="10 seconds", every="3 seconds"),
        stream.filter(nw.col("k") == 1),
    ):
        with pytest.raises(DataError, match=rf"'calls'.* row 1 .*{moment}"):
            run(query, rows)


@pytest.mark.parametrize(
    "lengths",
    [
        {"size": "9999999999999 days", "every": "1 day"},
        {"size": "1 day", "lateness": "9999999999999 days"},
        {"size": "4000000 days"},
    ],
)
def test_windows_longer_than_all_of_time_are_refused(lengths: dict[str, str]) -> None:
    size = lengths.pop("size")
    with pytest.raises(QueryError, match=r"'w'.*days.*long"):
        tg.stream(SCHEMA, time="ts").key_by("k").window(size, name="w", **lengths)


DEPTH = 100_000
DEEP = {
    "arrays": "[" * DEPTH + "]" * DEPTH,
    "objects": '{"a":' * DEPTH + "1" + "}" * DEPTH,
    "never closed": "[" * DEPTH,
    "digits": "1" * 5_000,
    "text around it": '["' + "[" * DEPTH + '",' + "[" * DEPTH,
}


def lines(path: Path, deep: str) -> str:
    good = [json.dumps({"ts": f"2024-01-01T00:00:0{second}Z", "k": second}) for second in range(4)]
    bad = f'{{"ts": "2024-01-01T00:00:02Z", "k": {deep}}}'
    path.write_text("\n".join([*good[:2], bad, *good[2:]]) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("declared", [True, False])
def test_brackets_and_digits_without_end_are_one_malformed_record(tmp_path: Path, deep: str, declared: bool) -> None:
    file = lines(tmp_path / "in.jsonl", DEEP[deep])
    aside = tmp_path / "dead.jsonl"
    stream = tg.stream(file, time="ts", schema=SCHEMA if declared else None, dead_letters=aside)
    made: list[pa.Table] = []
    tg.run(stream, on="local", to=made.append, progress=False)
    assert pa.concat_tables(made).column("k").to_pylist() == [0, 1, 2, 3]
    letters = [json.loads(line) for line in aside.read_text(encoding="utf-8").splitlines()]
    assert {(letter["file"], letter["line"]) for letter in letters} == {(file, 3)}
    assert "too deep" in letters[0]["reason"] or (deep == "digits" and "digits" in letters[0]["reason"])


def test_without_a_place_for_it_such_a_record_stops_the_run_with_file_and_line(tmp_path: Path) -> None:
    file = lines(tmp_path / "in.jsonl", DEEP["arrays"])
    with pytest.raises(DataError, match=r"in.jsonl, line 3: .*too deep") as failed:
        tg.run(tg.stream(file, time="ts", schema=SCHEMA), on="local", to=lambda rows: None, progress=False)
    assert len(str(failed.value)) < 1_000


def test_types_cannot_be_guessed_from_a_number_that_none_of_them_holds(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"ts": "2024-01-01T00:00:00Z", "k": 99999999999999999999}\n', encoding="utf-8")
    with pytest.raises(QueryError, match=r"in.jsonl: .*64 bits.*schema="):
        tg.stream(tmp_path / "in.jsonl", time="ts")


def serving() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tidegate-metrics")]


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return str(reply.read().decode())


def test_clients_that_say_nothing_are_dropped_and_hold_up_nobody() -> None:
    server = MetricsServer(0, lambda: dict[str, SubqueryStatus](), patience_seconds=0.5)
    with closing(server), ExitStack() as connected:
        silent = [
            connected.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
            for _ in range(4 * CLIENTS)
        ]
        for client in silent[1::2]:
            client.sendall(b"GET /metrics HT")
        time.sleep(0.2)
        assert len(serving()) <= CLIENTS + 1
        assert scrape(server.server_port) == "", "the next client is served when the silent ones have been dropped"
        for client in silent:
            client.settimeout(10)
            assert client.recv(1) == b""
    assert not serving()


def test_a_client_that_trickles_is_dropped_too() -> None:
    server = MetricsServer(0, lambda: dict[str, SubqueryStatus](), patience_seconds=0.5)
    with closing(server), socket.create_connection(("127.0.0.1", server.server_port)) as slow:
        began = time.monotonic()
        with pytest.raises(OSError):
            for _ in range(200):
                slow.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < 5


def test_a_client_that_does_not_read_is_dropped() -> None:
    body = {f"subquery {number}" * 100: SubqueryStatus(observation()) for number in range(2_000)}
    # The patience covers building the answer, too: 15 MB of it.
    server = MetricsServer(0, lambda: body, patience_seconds=3.0)
    with closing(server), socket.create_connection(("127.0.0.1", server.server_port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert deaf.recv(4) == b"HTTP"
        until = time.monotonic() + 20
        while server.connected and time.monotonic() < until:
            time.sleep(0.05)
        assert not server.connected
    assert not serving()


def observation() -> Observation:
    return Observation("speed", 5.0, 1.0, 2, offered=100.0, processed=90.5, busy=(0.5, 1.0), backlog=0.0)
