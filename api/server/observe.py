"""Prometheus metrics: request durations by route template, and gauges from the database.

Counts and times are summed over the processes of `core.telemetry`. Gauges are read from the
database at scrape time and are the same in every process: take their maximum.
"""

import os
import time
from collections.abc import Iterator
from functools import cache

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core import telemetry
from core.jobs.queue import QueueAndServiceMetrics

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def render_metrics_page(metrics: QueueAndServiceMetrics, version: str) -> bytes:
    """Render the service's metrics in Prometheus's text format."""
    # Apart from telemetry's own figures, which are summed over all processes.
    gauges = CollectorRegistry()
    gauges.register(_DatabaseMetricsCollector(metrics, version))
    return generate_latest(gauges) + telemetry.render_metrics()


class LatencyMiddleware:
    """Pure ASGI middleware that measures the duration of every HTTP request by route template."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        async def send_and_measure_latency(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Never label by the path itself: it would create a time series per object.
                route = getattr(scope.get("route"), "path", "none")
                # A client may send any word as a method, and each label is a time series for good.
                method = scope["method"] if scope["method"] in _METHODS else "other"
                seconds = time.perf_counter() - began
                _get_latency_histogram(method, route, message["status"]).observe(seconds)
            await send(message)

        await self.app(scope, receive, send_and_measure_latency)


@cache
def _get_latency_histogram(method: str, route: str, status: int) -> Histogram:
    """Return the histogram with these labels, cached because looking it up takes a lock."""
    return telemetry.HTTP_SECONDS.labels(method, route, str(status))


class _DatabaseMetricsCollector(Collector):
    def __init__(self, metrics: QueueAndServiceMetrics, version: str) -> None:
        self._metrics = metrics
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Yield counts of jobs and other database figures as Prometheus gauges."""
        now = self._metrics
        jobs = GaugeMetricFamily("perennial_jobs", "Jobs by state.", labels=["state"])
        for state, count in now.jobs.items():
            jobs.add_metric([state], count)
        yield jobs
        yield GaugeMetricFamily(
            "perennial_queue_depth", "Jobs that wait for a worker.", now.jobs["queued"]
        )
        yield GaugeMetricFamily(
            "perennial_queue_oldest_seconds",
            "How long the oldest queued job has waited.",
            now.oldest_s,
        )
        yield GaugeMetricFamily(
            "perennial_leases_expired", "Jobs whose worker's lease has run out.", now.expired
        )
        yield GaugeMetricFamily("perennial_models", "Models.", now.models)
        versions = GaugeMetricFamily("perennial_versions", "Versions by status.", labels=["status"])
        for status, count in now.versions.items():
            versions.add_metric([status], count)
        yield versions
        yield CounterMetricFamily(
            "perennial_scrub_objects",
            "Stored objects that the scrub has hashed.",
            now.scrubbed_objects,
        )
        yield CounterMetricFamily("perennial_scrub_bytes", "Their bytes.", now.scrubbed_bytes)
        yield GaugeMetricFamily(
            "perennial_scrub_ended_timestamp_seconds",
            "When the scrub had last hashed everything; 0: never.",
            now.scrubbed_at,
        )
        yield GaugeMetricFamily(
            "perennial_damaged_objects",
            "Stored objects that are missing or have another digest than their name.",
            now.damaged,
        )
        workers = GaugeMetricFamily(
            "perennial_workers",
            "Workers that report, by device; those in the state lost claim no jobs, since their "
            "device cannot be used.",
            labels=["device", "state"],
        )
        for (device, state), count in now.workers.items():
            workers.add_metric([device, state], count)
        yield workers
        build = GaugeMetricFamily(
            "perennial_build_info", "Which build answers.", labels=["version", "pid"]
        )
        build.add_metric([self._version, str(os.getpid())], 1)
        yield build
