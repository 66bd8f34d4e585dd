"""Metrics of a running query for Prometheus, over HTTP on the loopback address."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from tidegate.control.observation import Observation
from tidegate.elastic.scaling import SubqueryStatus
from tidegate.errors import EnvironmentFault

LOOPBACK = "127.0.0.1"
CLIENTS = 8
"""So many are served at a time: a scraper, its spare, and people who inspect."""
WAITING_CLIENTS = 8 * CLIENTS
PATIENCE_SECONDS = 10.0
"""How long a client has to ask and to take the answer; scrapers wait as long."""
POLL_SECONDS = 0.1

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


class QueryCollector(Collector):
    """Collects the last observation of each subquery when Prometheus scrapes; what is not known has no line."""

    def __init__(self, latest: Callable[[], Mapping[str, SubqueryStatus]]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        latest = self._latest()
        for name, (meaning, value_of) in GAUGES.items():
            gauge = GaugeMetricFamily(f"tidegate_{name}", f"{meaning}.", labels=["subquery"])
            for subquery, status in latest.items():
                value = value_of(status.observation)
                if value is not None:
                    gauge.add_metric([subquery], value)
            if gauge.samples:
                yield gauge
        if latest:
            changes = CounterMetricFamily("tidegate_changes", "Changes that were carried out.", labels=["subquery"])
            for subquery, status in latest.items():
                changes.add_metric([subquery], status.changes)
            yield changes


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Log nothing: the query's own output is on this screen."""


class MetricsServer(WSGIServer):
    """Serves `/metrics` on the loopback address until it is closed; port 0 takes a free one.

    A client is dropped ``patience_seconds`` after it has connected. So clients that send nothing, or read nothing, hold
    no more than `CLIENTS` threads, and none of them for long.
    """

    request_queue_size = WAITING_CLIENTS

    def __init__(
        self,
        port: int,
        latest: Callable[[], Mapping[str, SubqueryStatus]],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        try:
            super().__init__((LOOPBACK, port), _SilentHandler)
        except OSError as error:
            raise EnvironmentFault(
                f"metrics: port {port} of {LOOPBACK} cannot be served: {error}; choose another, or 0 for a free one"
            ) from error
        registry = CollectorRegistry(auto_describe=False)
        registry.register(QueryCollector(latest))
        self.set_app(make_wsgi_app(registry))
        self.connected: dict[socket.socket, float] = {}
        self._patience_seconds = patience_seconds
        self._pool = ThreadPoolExecutor(CLIENTS, "tidegate-metrics-client")
        self._thread = threading.Thread(
            target=self.serve_forever, args=(POLL_SECONDS,), daemon=True, name="tidegate-metrics"
        )
        self._thread.start()

    def close(self) -> None:
        """Hang up and stop serving."""
        self.shutdown()
        self._thread.join()
        self._hang_up(float("inf"))
        self._pool.shutdown()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return len(self.connected) < WAITING_CLIENTS

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connected[request] = time.monotonic()
        self._pool.submit(self._serve, request, client_address)

    def service_actions(self) -> None:
        self._hang_up(time.monotonic() - self._patience_seconds)

    def _serve(self, request: Any, client_address: Any) -> None:
        # A client that is gone, or was too slow, is no error of the query, whose output is on this screen.
        with suppress(OSError):
            self.finish_request(request, client_address)
        del self.connected[request]
        self.shutdown_request(request)

    def _hang_up(self, connected_before: float) -> None:
        for connection, since in tuple(self.connected.items()):
            if since <= connected_before:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
