"""Figures of a running query for Prometheus, over HTTP on the loopback address."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tidegate.control.observation import Observation
from tidegate.elastic.latest import Latest
from tidegate.errors import EnvironmentFault

LOOPBACK = "127.0.0.1"
CLIENTS = 8
"""So many are served at a time: a scraper, its spare, and people who look."""
PATIENCE_SECONDS = 5.0
"""How long a client has to ask, and how long to take the answer; scrapers wait ten seconds."""
CONTENT = "text/plain; version=0.0.4; charset=utf-8"

GAUGES: dict[str, tuple[str, Callable[[Observation], float | None]]] = {
    "instances": ("Instances or executors there are", lambda seen: seen.instances),
    "offered_per_second": ("Tuples per second that sources would deliver", lambda seen: seen.offered),
    "processed_per_second": ("Tuples per second completed", lambda seen: seen.processed),
    "backlog": ("Tuples that wait", lambda seen: seen.backlog),
    "congestion": ("Share of time in which sources were held up", lambda seen: seen.congestion),
    "busy": ("Share of time in which instances worked, on average", lambda seen: seen.utilisation),
    "watermark_lag_seconds": (
        "Event time from the watermark to the newest tuple",
        lambda seen: seen.watermark_lag_seconds,
    ),
    "latency_seconds": ("Mean latency of results", lambda seen: seen.latency_seconds),
}


def exposition(latest: Mapping[str, Latest]) -> str:
    """The figures as Prometheus reads them; what is not known has no line."""
    return "".join(line + "\n" for line in _lines(latest))


def _lines(latest: Mapping[str, Latest]) -> Iterator[str]:
    for name, (meaning, figure) in GAUGES.items():
        known = {subquery: figure(each.observation) for subquery, each in latest.items()}
        if any(value is not None for value in known.values()):
            yield f"# HELP tidegate_{name} {meaning}."
            yield f"# TYPE tidegate_{name} gauge"
        for subquery, value in known.items():
            if value is not None:
                yield f"tidegate_{name}{{{_label(subquery)}}} {float(value)!r}"
    if latest:
        yield "# HELP tidegate_changes_total Changes that were carried out."
        yield "# TYPE tidegate_changes_total counter"
    for subquery, each in latest.items():
        yield f"tidegate_changes_total{{{_label(subquery)}}} {each.changes}"


def _label(subquery: str) -> str:
    escaped = subquery.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'subquery="{escaped}"'


class _UntilDeadline(io.RawIOBase):
    """What a socket receives up to a moment of the monotonic clock, however little comes at a time."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self._deadline - time.monotonic(), 0.001))
        return self._connection.recv_into(buffer)


class _BoundedServer(HTTPServer):
    """Serves `CLIENTS` clients at a time, each for some seconds; more of them wait to be accepted."""

    request_queue_size = 8 * CLIENTS

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((LOOPBACK, port), handler)
        self._room = threading.Semaphore(CLIENTS)
        self._pool = ThreadPoolExecutor(CLIENTS, "tidegate-metrics-client")
        self._connected: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._room.acquire()
        self._connected.add(request)
        self._pool.submit(self._serve, request, client_address)

    def close(self) -> None:
        """Hang up and stop serving; to be called from a thread other than the one that serves."""
        self._hang_up()
        self.shutdown()
        self._hang_up()
        self._pool.shutdown()
        self.server_close()

    def _serve(self, request: Any, client_address: Any) -> None:
        # A client that is gone, or was too slow, is no error of the query, whose output is on this screen.
        with suppress(OSError):
            self.finish_request(request, client_address)
        self._connected.discard(request)
        self.shutdown_request(request)
        self._room.release()

    def _hang_up(self) -> None:
        for connection in tuple(self._connected):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class MetricsServer:
    """Serves `/metrics` on the loopback address until it is closed; port 0 takes a free one.

    A client has ``patience_seconds`` to ask and to take the answer. So clients that say nothing, or read nothing, hold no
    more than `CLIENTS` threads, and none of them for long.
    """

    def __init__(
        self, port: int, latest: Callable[[], Mapping[str, Latest]], patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def setup(self) -> None:
                super().setup()
                self.deadline = time.monotonic() + patience_seconds
                self.rfile = io.BufferedReader(_UntilDeadline(self.connection, self.deadline))

            def do_GET(self) -> None:
                if self.path not in ("/metrics", "/"):
                    self.send_error(404, "only /metrics is here")
                    return
                body = exposition(latest()).encode()
                self.connection.settimeout(patience_seconds)
                self.send_response(200)
                self.send_header("Content-Type", CONTENT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                """Say nothing: the query's own output is on this screen."""

        try:
            self._server = _BoundedServer(port, Handler)
        except OSError as error:
            raise EnvironmentFault(
                f"metrics: port {port} of {LOOPBACK} cannot be served: {error}; choose another, or 0 for a free one"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name="tidegate-metrics")
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it has."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.close()
        self._thread.join()
