"""Hostile archives through HTTP: a typed 4xx that names the entry, and nothing kept."""

from pathlib import Path

import psutil
import pytest

from tests.core.ingest import hostile_corpus
from tests.e2e import small
from tests.rest import Rest
from tools import service

MB = 1 << 20
ATTACKS = hostile_corpus.hostile()


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def model(client: Rest) -> None:
    small.create(client, "target", "finetune")


def stored(running: service.Service) -> set[Path]:
    """Find the files of store and spool that are no notes of sweeps."""
    folders = (running.data_dir / "store", running.data_dir / "spool")
    files = {p for folder in folders for p in folder.rglob("*") if p.is_file()}
    return {p for p in files if "sweeps" not in p.parts}


def api_process(running: service.Service) -> psutil.Process:
    for process in psutil.Process(running.process.pid).children(recursive=True):
        if any("api.app" in word for word in process.cmdline()):
            return process
    raise AssertionError("no API process")


def test_every_attack_is_answered_by_a_typed_4xx_and_leaves_nothing_behind(
    running: service.Service, client: Rest
) -> None:
    before, api = stored(running), api_process(running)
    rss = api.memory_info().rss
    for attack in ATTACKS:
        answer = client.http.post(
            "/v1/models/target/tasks",
            content=attack.build(),
            headers={"Content-Type": attack.content_type or "application/octet-stream"},
        )
        problem = answer.json()
        assert 400 <= answer.status_code < 500, (attack.name, problem)
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert problem["type"].removeprefix("/problems/") in attack.code.split("|"), (attack.name, problem)
        assert any(text in problem["detail"] for text in attack.entry.split("|")), (attack.name, problem)
    assert stored(running) <= before
    assert client.get("/v1/models/target/tasks")["items"] == []
    assert api.memory_info().rss - rss < 256 * MB
