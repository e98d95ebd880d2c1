"""Prometheus metrics of API and worker: counters and durations, by name.

Each process counts separately. An API process serves its metrics at `/metrics`, a worker on the
port `PERENNIAL_METRICS_PORT`. If several processes share one address (`uvicorn --workers 4`), name
an empty folder in PROMETHEUS_MULTIPROC_DIR, preferably in memory, and empty it before each start.
All processes with this variable count there, and each serves the sum. The variable belongs to the
Prometheus client, which reads it when it is imported.

No label has an id, which would make one time series per object.
"""

import os

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    start_http_server,
)
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
_SLOW_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
# Not the client library's own registry, in which other libraries may have metrics.
_registry = CollectorRegistry()

HTTP_SECONDS = Histogram(
    "perennial_http_request_seconds",
    "Time from request to the first byte of its answer.",
    ("method", "route", "status"),
    buckets=_FAST_S,
    registry=_registry,
)
CONNECTIONS_REFUSED = Counter(
    "perennial_connections_refused",
    "Connections and requests that were refused, by the limit that was reached.",
    ("limit",),
    registry=_registry,
)
STORE_SECONDS = Histogram(
    "perennial_store_seconds",
    "Time of an operation of the store; of a read, until it is open.",
    ("operation",),
    buckets=_FAST_S,
    registry=_registry,
)
STORE_FAILURES = Counter(
    "perennial_store_failures",
    "Operations of the store that failed, by code of the error.",
    ("operation", "code"),
    registry=_registry,
)
WAIT_SECONDS = Histogram(
    "perennial_job_wait_seconds",
    "Time from a job's creation to its first claim.",
    buckets=_SLOW_S,
    registry=_registry,
)
INGEST_SECONDS = Histogram(
    "perennial_ingest_seconds",
    "Time to decode an uploaded archive and store its images; one that is rejected is not in it.",
    buckets=_SLOW_S,
    registry=_registry,
)
INGEST_IMAGES = Counter(
    "perennial_ingest_images",
    "Images of archives that were decoded, training and held-out.",
    registry=_registry,
)
EXPORT_SECONDS = Histogram(
    "perennial_export_seconds",
    "Time of a job to make a download, from its claim to the stored file; one that fails is not in "
    "it.",
    buckets=_SLOW_S,
    registry=_registry,
)
EXPORT_BYTES = Counter(
    "perennial_export_bytes",
    "Bytes of the downloads that jobs made.",
    registry=_registry,
)
TRAINING_IMAGES = Counter(
    "perennial_training_images",
    "Images that training went through, once per epoch.",
    registry=_registry,
)
TRAINING_SECONDS = Counter(
    "perennial_training_seconds",
    "Time in which they were gone through: the ratio of the two rates is images per second.",
    registry=_registry,
)
ATTEMPTS = Counter(
    "perennial_attempts",
    "Attempts at jobs that ended, by outcome and cause.",
    ("outcome", "cause"),
    registry=_registry,
)
DEVICE_LOST = Gauge(
    "perennial_device_lost",
    "1 while a worker claims no jobs, since its device cannot be used.",
    registry=_registry,
    # 1 if any living process has lost its device; a dead one no longer counts.
    multiprocess_mode="livemax",
)
DEVICE_LOSSES = Counter(
    "perennial_device_losses",
    "Times that a worker found its device lost: at its start, by a job, or by a check that "
    "followed.",
    registry=_registry,
)
DELIVERY_SECONDS = Histogram(
    "perennial_delivery_seconds",
    "Time of an attempt to deliver to a webhook, by outcome: delivered or failed.",
    ("outcome",),
    buckets=_FAST_S,
    registry=_registry,
)


def select_metrics_registry() -> CollectorRegistry:
    """Return the Prometheus registry to serve: this process's, or sums over all processes that
    share the folder.
    """
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return _registry
    # A new one each time: in the process's own registry, its values would count twice.
    shared = CollectorRegistry()
    MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
    return shared


def render_metrics() -> bytes:
    """Render the service's metrics in Prometheus's text format."""
    return generate_latest(select_metrics_registry())


def start_metrics_server(host: str, port: int) -> None:
    """Serve Prometheus metrics at `http://host:port/metrics` from a thread, without authentication.

    They name no model, so they need no key.

    Raises:
        OSError: the port cannot be used.
    """
    start_http_server(port, host, select_metrics_registry())
