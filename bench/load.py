"""A load generator for one HTTP GET: keep-alive connections that ask again as soon as they are answered.

Written on bare asyncio streams, since a full HTTP client costs more than the server under test and the
two share the machine.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Load:
    """What one run saw: requests per second, latencies in milliseconds, answers by status."""

    clients: int
    per_s: float
    p50_ms: float
    p99_ms: float
    statuses: dict[int, int]


def run(url: str, clients: int, seconds: float, headers: Mapping[str, str] | None = None) -> Load:
    """Ask `url` from `clients` connections for `seconds` (after a tenth of it as warm-up)."""
    return asyncio.run(_run(url, clients, seconds, dict(headers or {})))


async def _run(url: str, clients: int, seconds: float, headers: dict[str, str]) -> Load:
    parts = urlsplit(url)
    lines = [
        f"GET {parts.path} HTTP/1.1",
        f"Host: {parts.netloc}",
        *(f"{k}: {v}" for k, v in headers.items()),
    ]
    request = ("\r\n".join(lines) + "\r\n\r\n").encode()
    start = time.perf_counter() + seconds * 0.1
    end = start + seconds
    latencies: list[float] = []
    statuses: dict[int, int] = {}

    async def client() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while (sent := time.perf_counter()) < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            length = _content_length(head)
            if length:
                await reader.readexactly(length)
            if sent >= start:
                latencies.append(time.perf_counter() - sent)
                statuses[status] = statuses.get(status, 0) + 1
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    latencies.sort()
    return Load(
        clients,
        len(latencies) / seconds,
        latencies[len(latencies) // 2] * 1e3,
        latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))] * 1e3,
        statuses,
    )


def _content_length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"content-length:")
    return int(lower[at + 15 : lower.index(b"\r\n", at)]) if at >= 0 else 0
