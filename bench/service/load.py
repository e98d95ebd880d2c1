"""A load generator for one HTTP GET: keep-alive connections that ask again as soon as they are
answered.

Written on bare asyncio streams, since a full HTTP client costs more than the server under test and
the two share the machine.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class RequestLoadResult:
    """Result of a load test: requests per second, latencies in milliseconds, responses by status."""

    clients: int
    per_s: float
    p50_ms: float
    p99_ms: float
    statuses: dict[int, int]
    latencies_ms: tuple[float, ...]
    """Of every answer, in rising order."""


def measure_request_load(
    url: str,
    clients: int,
    seconds: float,
    headers: Mapping[str, str] | None = None,
    *,
    warm_up: float = 0.1,
    pause_s: float = 0.0,
    until: Callable[[], bool] = lambda: False,
) -> RequestLoadResult:
    """Request a URL over `clients` connections for some seconds, and measure rate and latencies.

    Args:
        warm_up: goes before, a share of `seconds`; its answers do not count.
        pause_s: that each client waits between an answer and its next question; they begin spread
            over one.
        until: asked before each question; True ends the run early.
    """
    return asyncio.run(
        _measure_request_load(url, clients, seconds, dict(headers or {}), warm_up, pause_s, until)
    )


async def _measure_request_load(
    url: str,
    clients: int,
    seconds: float,
    headers: dict[str, str],
    warm_up: float,
    pause_s: float,
    until: Callable[[], bool],
) -> RequestLoadResult:
    parts = urlsplit(url)
    lines = [
        f"GET {parts.path}{'?' if parts.query else ''}{parts.query} HTTP/1.1",
        f"Host: {parts.netloc}",
        *(f"{k}: {v}" for k, v in headers.items()),
    ]
    request = ("\r\n".join(lines) + "\r\n\r\n").encode()
    start = time.perf_counter() + seconds * warm_up
    end = start + seconds
    latencies: list[float] = []
    statuses: dict[int, int] = {}

    async def send_requests_as_client(number: int) -> None:
        await asyncio.sleep(pause_s * number / clients)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        first = True
        while ((sent_at := time.perf_counter()) < end and not until()) or first:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            length = _parse_content_length(head)
            if length:
                await reader.readexactly(length)
            first = sent_at < start
            if not first:
                latencies.append(time.perf_counter() - sent_at)
                statuses[status] = statuses.get(status, 0) + 1
            if pause_s:
                await asyncio.sleep(pause_s)
        writer.close()

    await asyncio.gather(*(send_requests_as_client(number) for number in range(clients)))
    over = time.perf_counter() - start
    seconds = over if until() else max(seconds, over)
    latencies.sort()
    return RequestLoadResult(
        clients,
        len(latencies) / seconds,
        compute_quantile(latencies, 0.5) * 1e3,
        compute_quantile(latencies, 0.99) * 1e3,
        statuses,
        tuple(latency * 1e3 for latency in latencies),
    )


def compute_quantile(rising: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values; NaN without values."""
    return rising[min(len(rising) - 1, int(len(rising) * share))] if rising else math.nan


def _parse_content_length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"content-length:")
    return int(lower[at + 15 : lower.index(b"\r\n", at)]) if at >= 0 else 0
