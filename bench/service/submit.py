"""Cost of sending a batch and of listing a model's versions.

    python -m bench.service.submit [--submits 40] [--versions 65] [--database
        postgresql+psycopg://postgres@127.0.0.1:5432/postgres]

An API process without a worker, so that nothing is learned meanwhile. Batches of twenty PNGs of two
classes, no two of them alike, are sent one after the other over one connection, each under its own
Idempotency-Key; SQL statements are counted in this process, with the same application on the same
database. Then the versions of a model are listed with `limit=200`. Milliseconds are medians and
those of nine of ten. Goals: a submit takes ≤ 25 ms and ≤ 20 statements; a list ≤ 30 ms, with ≤ 2 kB
a version.
"""

import argparse
import io
import logging
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
from PIL import Image
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from api.app import create_app
from bench.service.series import GeneratedRowCounts
from bench.service.side import DatabaseWithApi, create_filled_database, serve_database_by_api
from tools import service

IMAGES = 10
WARM_UP = 5
MODEL = {"scenario": "class", "base": "perennial/resnet20-cifar100"}


def main() -> None:
    """Measure the duration of submits and of task lists, and print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submits", type=int, default=40)
    parser.add_argument("--versions", type=int, default=65)
    parser.add_argument("--database", default="", help="a PostgreSQL server; default: SQLite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size = GeneratedRowCounts(60, tasks=options.versions, measured=2)
        side = create_filled_database(Path(folder), options.database, "submit", size)
        service.link_shared_test_catalogue(side.settings.data_dir)
        connection: dict[str, Any] = {"headers": _build_headers(side), "timeout": 120.0}
        with serve_database_by_api(side), httpx2.Client(base_url=side.url, **connection) as client:
            process = psutil.Process(side.process)
            client.post("/v1/models", json={"name": "sent", **MODEL}).raise_for_status()
            _print_submit_times(client, process, options.submits)
            _print_version_list_times(client, process, side.first_model_id(), options.submits)
        _print_submit_statement_count(side)


def build_zip_of_noise_images(seed: int) -> bytes:
    """Build a zip batch of random images in two class folders, different for each seed."""
    draw, out = np.random.default_rng(seed), io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for label in ("cat", "dog"):
            for number in range(IMAGES):
                archive.writestr(f"{label}/{number}.png", draw_noise_png(draw))
    return out.getvalue()


def draw_noise_png(draw: np.random.Generator) -> bytes:
    """Encode a random image of 32 × 32 pixels as PNG."""
    out = io.BytesIO()
    Image.fromarray(draw.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


def _build_headers(side: DatabaseWithApi) -> dict[str, str]:
    return {"Authorization": f"Bearer {side.keys['owner']}"}


def _submit_noise_batch(client: httpx2.Client | TestClient, seed: int) -> None:
    headers = {"Content-Type": "application/zip", "Idempotency-Key": f"batch-{seed}"}
    response = client.post(
        "/v1/models/sent/tasks", content=build_zip_of_noise_images(seed), headers=headers
    )
    assert response.status_code == 202, response.text


def _print_submit_times(client: httpx2.Client, process: psutil.Process, count: int) -> None:
    batches = [build_zip_of_noise_images(seed) for seed in range(count + WARM_UP)]

    def submit_numbered_batch(number: int) -> None:
        headers = {"Content-Type": "application/zip", "Idempotency-Key": f"batch-{number}"}
        response = client.post("/v1/models/sent/tasks", content=batches[number], headers=headers)
        assert response.status_code == 202, response.text

    _print_call_times("submit", process, submit_numbered_batch, count)


def _print_version_list_times(
    client: httpx2.Client, process: psutil.Process, model: str, count: int
) -> None:
    path = f"/v1/models/{model}/versions?limit=200"
    response = client.get(path)
    response.raise_for_status()
    versions = len(response.json()["items"])
    _print_call_times(f"list of {versions} versions", process, lambda _: client.get(path), count)
    size = len(response.content)
    print(f"  {size:,} bytes, {size / versions:,.0f} a version")


def _print_call_times(
    title: str, process: psutil.Process, call: Callable[[int], object], count: int
) -> None:
    for number in range(WARM_UP):
        call(number)
    times, before = [], process.cpu_times()
    for number in range(WARM_UP, WARM_UP + count):
        begin = time.perf_counter()
        call(number)
        times.append(1000 * (time.perf_counter() - begin))
    after = process.cpu_times()
    cpu = 1000 * (after.user + after.system - before.user - before.system) / count
    nine_of_ten = sorted(times)[int(0.9 * count)]
    median = statistics.median(times)
    print(
        f"{title}: {median:.1f} ms, nine of ten {nine_of_ten:.1f} ms, CPU {cpu:.1f} ms", flush=True
    )


def _print_submit_statement_count(side: DatabaseWithApi) -> None:
    logging.disable(logging.INFO)  # the application's own lines
    with TestClient(create_app(side.settings)) as client:
        client.headers.update(_build_headers(side))
        _submit_noise_batch(client, 1_000_000)
        statements: list[str] = []

        def record_sql_statement(*arguments: object) -> None:
            statements.append(str(arguments[2]))

        event.listen(Engine, "before_cursor_execute", record_sql_statement)
        _submit_noise_batch(client, 1_000_001)
        event.remove(Engine, "before_cursor_execute", record_sql_statement)
    print(f"a submit takes {len(statements)} SQL statements")


if __name__ == "__main__":
    main()
