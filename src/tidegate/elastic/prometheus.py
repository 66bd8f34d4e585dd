"""Figures of a running query for Prometheus, over HTTP on the loopback address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tidegate.control.observation import Observation
from tidegate.elastic.latest import Latest
from tidegate.errors import EnvironmentFault

LOOPBACK = "127.0.0.1"
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


class MetricsServer:
    """Serves `/metrics` on the loopback address until it is closed; port 0 takes a free one."""

    def __init__(self, port: int, latest: Callable[[], Mapping[str, Latest]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path not in ("/metrics", "/"):
                    self.send_error(404, "only /metrics is here")
                    return
                body = exposition(latest()).encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                """Say nothing: the query's own output is on this screen."""

        try:
            self._server = ThreadingHTTPServer((LOOPBACK, port), Handler)
        except OSError as error:
            raise EnvironmentFault(
                f"metrics: port {port} of {LOOPBACK} cannot be served: {error}; choose another, or 0 for a free one"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name="tidegate-metrics")
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it has."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
