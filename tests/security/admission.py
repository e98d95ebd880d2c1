"""Attacks by the content of requests: huge recipes and labels, and impossible architectures.

Some of them try to start torch, and must fail. `PYTHONPATH=. python -m tests.security.admission`
starts an embedded service, makes each attack once and prints its costs: seconds, memory, and how
long another owner waited for a list meanwhile.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.descendants import list_descendants
from tests.rest import Rest
from tests.security.memory import find_pids
from tests.security.owners import make_client
from tools import service

MB = 1 << 20
HUGE_RECIPE = {"x" * 900_000: None}
LONG_LABELS = [f"{number:05}".ljust(90, "x") for number in range(10_000)]
HUGE_NETWORK = {"name": "mlp", "hidden": [16384] * 16}
TINY_BASE = (2).to_bytes(8, "little") + b"{}"


@dataclass
class Cost:
    """The costs of an attack.

    They are answers by status, seconds, MiB, and the seconds of a neighbour's lists.
    """

    answers: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    api_mb: float = 0.0  # above what the API had before
    others_mb: float = 0.0  # of the processes that the API started meanwhile
    others: int = 0  # how many of these there were at once
    neighbour_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        waits = self.neighbour_s or [0.0]
        return (
            f"{dict(self.answers)}, {self.seconds:.1f} s, API +{self.api_mb:.0f} MiB, its "
            f"processes {self.others_mb:.0f} MiB, a neighbour's list "
            f"{1000 * statistics.median(waits):.0f} ms, at most {1000 * max(waits):.0f} ms"
        )


def make_architecture_query(width: int) -> dict[str, str]:
    """Return the query of a base whose architecture no other request asks for."""
    return {"architecture": f'{{"name": "mlp", "hidden": [{width}]}}'}


def _make_write_client(running: service.RunningService, owner: str) -> Rest:
    return make_client(Rest(running.url, running.key), owner, 300.0)


@contextmanager
def measure_cost(running: service.RunningService) -> Iterator[Cost]:
    """Measure the API's memory and another owner's lists while the block runs."""
    neighbour = _make_write_client(running, "neighbour")
    api = psutil.Process(find_pids(running.process.pid)["api"])
    before, there = api.memory_info().rss, {process.pid for process in list_descendants(api.pid)}
    cost, end = Cost(), threading.Event()

    def record_peak_use() -> None:
        while not end.wait(0.02):
            cost.api_mb = max(cost.api_mb, (api.memory_info().rss - before) / MB)
            more = [process for process in list_descendants(api.pid) if process.pid not in there]
            cost.others = max(cost.others, len(more))
            cost.others_mb = max(cost.others_mb, sum(map(_read_rss, more)) / MB)

    def time_neighbour_requests() -> None:
        while not end.wait(0.05):
            began = time.monotonic()
            neighbour.get("/v1/models?limit=5")
            cost.neighbour_s.append(time.monotonic() - began)

    threads = [
        threading.Thread(target=target, daemon=True)
        for target in (record_peak_use, time_neighbour_requests)
    ]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    try:
        yield cost
    finally:
        cost.seconds = time.monotonic() - began
        end.set()
        for thread in threads:
            thread.join()


def send_huge_recipes(running: service.RunningService, models: int = 60) -> Cost:
    """Send recipes with one name of 900,000 characters that has no effect.

    Then list all models.
    """
    return _create_and_list_models(running, "recipes", models, scenario="class", recipe=HUGE_RECIPE)


def send_long_labels(running: service.RunningService, models: int = 40) -> Cost:
    """Create models of ten thousand labels of maximum length; then list all models."""
    return _create_and_list_models(running, "labels", models, scenario="data", classes=LONG_LABELS)


def _create_and_list_models(
    running: service.RunningService, owner: str, models: int, **fields: object
) -> Cost:
    attacker = _make_write_client(running, owner)
    with measure_cost(running) as cost:
        for number in range(models):
            answer = attacker.http.post("/v1/models", json={"name": f"m{number}", **fields})
            cost.answers[answer.status_code] += 1
        with ThreadPoolExecutor(3) as pool:
            for answer in pool.map(
                lambda _: attacker.http.get("/v1/models", params={"limit": 200}), range(3)
            ):
                cost.answers[answer.status_code] += 1
    return cost


def send_bases_without_body(running: service.RunningService, requests: int = 16) -> Cost:
    """Send concurrent requests for different architectures, without a body."""
    return _send_bases_at_once(running, "bases", requests, 100, b"")


def send_tiny_bases(running: service.RunningService, requests: int = 16) -> Cost:
    """Send concurrent requests for different architectures, with a body of a few bytes."""
    return _send_bases_at_once(running, "tiny", requests, 300, TINY_BASE)


def _send_bases_at_once(
    running: service.RunningService, owner: str, requests: int, width: int, body: bytes
) -> Cost:
    attacker = _make_write_client(running, owner)

    def send_base(number: int) -> int:
        query = make_architecture_query(width + number)
        return int(attacker.http.post("/v1/bases", params=query, content=body).status_code)

    with measure_cost(running) as cost, ThreadPoolExecutor(requests) as pool:
        for status in pool.map(send_base, range(requests)):
            cost.answers[status] += 1
    return cost


def request_huge_network(running: service.RunningService) -> tuple[int, dict[str, Any]]:
    """Request an architecture whose weights fit on no machine, and return the answer."""
    body = {
        "name": "huge",
        "scenario": "class",
        "architecture": HUGE_NETWORK,
        "image": {"size": 1024},
    }
    answer = _make_write_client(running, "networks").http.post("/v1/models", json=body)
    return answer.status_code, answer.json()


def _read_rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


ATTACKS = (send_huge_recipes, send_long_labels, send_bases_without_body, send_tiny_bases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--attack", action="append", choices=[attack.__name__ for attack in ATTACKS]
    )
    asked = parser.parse_args().attack
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder) / "data") as running,
    ):
        for attack in ATTACKS:
            if asked is None or attack.__name__ in asked:
                print(f"{attack.__name__}: {attack(running)}", flush=True)
        status, answer = request_huge_network(running)
        print(f"request_huge_network: {status}, {answer.get('detail', answer.get('id'))}")


if __name__ == "__main__":
    main()
