"""How long requests take, by route template; and the page that Prometheus reads.

Counters and latencies are of the API process that answers the scrape: scrape each process, or sum over
them. Gauges come from the database at scrape time and are the same in every process: take their maximum.
"""

import os
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.requests.queue import Figures

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """Latencies of one app in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._latency = Histogram(
            "perennial_http_request_seconds",
            "Time from request to the first byte of its answer, in this process.",
            ("method", "route", "status"),
            buckets=BUCKETS_S,
            registry=self.registry,
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        known = method if method in _METHODS else "other"
        self._latency.labels(known, route, str(status)).observe(seconds)

    def page(self, figures: Figures, version: str) -> bytes:
        """The page in Prometheus's text format."""
        gauges = CollectorRegistry()
        gauges.register(_Gauges(figures, version))
        return generate_latest(gauges) + generate_latest(self.registry)


class Latency:
    """Pure ASGI middleware: observes every HTTP request under its route's template."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The path itself never: it would make a time series per object.
                route = getattr(scope.get("route"), "path", "none")
                self.metrics.observe(scope["method"], route, message["status"], time.perf_counter() - began)
            await send(message)

        await self.app(scope, receive, watched)


class _Gauges(Collector):
    def __init__(self, figures: Figures, version: str) -> None:
        self._figures = figures
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """The database's figures as gauges."""
        now = self._figures
        jobs = GaugeMetricFamily("perennial_jobs", "Jobs by state.", labels=["state"])
        for state, count in now.jobs.items():
            jobs.add_metric([state], count)
        yield jobs
        yield GaugeMetricFamily("perennial_queue_depth", "Jobs that wait for a worker.", now.jobs["queued"])
        yield GaugeMetricFamily(
            "perennial_queue_oldest_seconds", "How long the oldest queued job has waited.", now.oldest_s
        )
        yield GaugeMetricFamily(
            "perennial_leases_expired", "Jobs whose worker's lease has run out.", now.expired
        )
        yield GaugeMetricFamily("perennial_models", "Models.", now.models)
        versions = GaugeMetricFamily("perennial_versions", "Versions by status.", labels=["status"])
        for status, count in now.versions.items():
            versions.add_metric([status], count)
        yield versions
        build = GaugeMetricFamily("perennial_build_info", "Which build answers.", labels=["version", "pid"])
        build.add_metric([self._version, str(os.getpid())], 1)
        yield build
