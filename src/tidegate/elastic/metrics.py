"""Metrics of a running query for Prometheus, over HTTP on the loopback address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from tidegate.control.observation import Observation
from tidegate.elastic.scaling import SubqueryStatus
from tidegate.telemetry.loopback import PATIENCE_SECONDS, LoopbackServer

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


class MetricsServer(LoopbackServer):
    """Serves `/metrics` on the loopback address until it is closed; port 0 takes a free one."""

    def __init__(
        self,
        port: int,
        latest: Callable[[], Mapping[str, SubqueryStatus]],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(QueryCollector(latest))
        super().__init__("metrics", port, make_wsgi_app(registry), patience_seconds)
