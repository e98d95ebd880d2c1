"""Admission by the API: networks and jobs within their bounds, heavy work without holding
up others.
"""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.bases import expected_base
from core.settings import Settings
from core.versions import exports
from tests.api.conftest import KeyOf, Make, serve_api
from tests.api.overlap import PATIENCE_S, Overlap

HUGE = {"name": "mlp", "hidden": [16384] * 16}


def request_model_creation(client: TestClient, name: str = "birds", **fields: Any) -> Any:
    return client.post("/v1/models", json={"name": name, "scenario": "class", **fields})


def test_a_network_beyond_every_machine_is_refused_with_its_parameters(client: TestClient) -> None:
    answer = request_model_creation(client, architecture=HUGE, image={"size": 1024})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["type"] == "/problems/job-too-large"
    assert "55,566,401,536 parameters; one may have 1,000,000,000 here" in problem["detail"]
    assert problem["errors"][0]["field"] == "architecture"
    assert client.get("/v1/models").json()["items"] == []


def test_a_job_beyond_its_bound_is_refused_with_the_arithmetic(settings: Settings) -> None:
    with serve_api(settings.model_copy(update={"job_memory_bytes": 3_000_000_000})) as client:
        answer = request_model_creation(client, architecture="resnet50", image={"size": 224})
        assert answer.status_code == 422
        detail = answer.json()["detail"]
        for words in (
            "23,508,032 parameters × 4 bytes × 8 copies",
            "activations of 96 images",
            "One job may take 3.0 GB here",
            "recipe.batch_size",
        ):
            assert words in detail
        assert answer.json()["needed"] > answer.json()["limit"] == 3_000_000_000
        small = {"batch_size": 4, "method": "finetune"}
        assert (
            request_model_creation(
                client, architecture="resnet50", image={"size": 224}, recipe=small
            ).status_code
            == 201
        )


def test_a_batch_whose_recipe_asks_for_too_much_is_refused_and_leaves_nothing(
    settings: Settings, archive: Make
) -> None:
    with serve_api(settings.model_copy(update={"job_memory_bytes": 3_000_000_000})) as client:
        assert request_model_creation(client).status_code == 201
        body, huge = archive(cat=3, dog=3), json.dumps({"batch_size": 65_536})
        for query in ("", "?validate=only"):
            path, headers = f"/v1/models/birds/tasks{query}", {"Perennial-Recipe": huge}
            answer = client.post(path, content=body, headers=headers)
            assert answer.status_code == 422 and answer.json()["type"] == "/problems/job-too-large"
        assert client.get("/v1/models/birds/tasks").json()["items"] == []
        assert (
            client.patch("/v1/models/birds", json={"recipe": {"batch_size": 65_536}}).status_code
            == 422
        )
        assert client.post("/v1/models/birds/tasks", content=body).status_code == 202


def test_without_bounds_everything_is_taken(settings: Settings) -> None:
    with serve_api(
        settings.model_copy(update={"job_memory_bytes": 0, "max_parameters": 0})
    ) as client:
        assert (
            request_model_creation(client, architecture=HUGE, image={"size": 1024}).status_code
            == 201
        )


def test_an_api_whose_workers_are_elsewhere_admits_by_the_setting_alone() -> None:
    broker = "redis://127.0.0.1:1/0"
    assert Settings(broker_url=broker).max_admitted_job_memory_bytes == 0
    assert Settings(broker_url=broker, job_memory_bytes=5).max_admitted_job_memory_bytes == 5
    assert Settings().max_admitted_job_memory_bytes == Settings().usable_job_memory_bytes > 0


def test_a_base_without_a_body_or_of_a_huge_network_starts_no_process(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        expected_base,
        "_compute_expected_base_tensor_shapes",
        lambda request: asked.append(request) or {},
    )
    empty = client.post("/v1/bases", params={"architecture": "resnet18"})
    assert empty.status_code == 422 and "The body is empty" in empty.json()["detail"]
    huge = {"architecture": json.dumps(HUGE), "image_size": 1024}
    assert (
        client.post("/v1/bases", params=huge, content=b"x").json()["type"]
        == "/problems/job-too-large"
    )
    assert asked == []


def test_processes_that_say_what_a_base_holds_are_few_at_once(
    client: TestClient, key_of: KeyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Overlap(2)

    def describe_base(_request: str) -> dict[str, Any]:
        asking.work()
        return {"tensors": {}, "optional": [], "ignored": []}

    monkeypatch.setattr(expected_base, "_compute_expected_base_tensor_shapes", describe_base)
    owners = [key_of(f"owner-{n}") for n in range(4)]

    def send_base(number: int) -> int:
        query = {"architecture": json.dumps({"name": "mlp", "hidden": [200 + number]})}
        headers = owners[number % 4]
        return int(
            client.post("/v1/bases", params=query, content=b"x", headers=headers).status_code
        )

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(send_base, range(12))) == {422}
    assert asking.most == 2


def test_lists_do_not_wait_for_downloads_that_are_made(
    client: TestClient, key_of: KeyOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """More downloads than the server has threads, each of which takes until the list was
    answered.
    """
    assert request_model_creation(client).status_code == 201
    listed = threading.Event()

    def fail_export_after_listing(*_: Any, **__: Any) -> Any:
        assert listed.wait(PATIENCE_S)
        raise exports.ExportUnavailable("not today")

    monkeypatch.setattr(exports, "find_stored_export", lambda *_, **__: None)
    monkeypatch.setattr(exports, "get_or_build_export", fail_export_after_listing)
    other = key_of("other")
    turns = client.app.state.export_work._turns  # type: ignore[attr-defined]
    with ThreadPoolExecutor(60) as pool:
        downloads = [
            pool.submit(client.get, "/v1/models/birds/versions/0/download") for _ in range(60)
        ]
        while sum(len(asked) for asked in turns._waiting.values()) < 59:
            time.sleep(0.01)
        assert client.get("/v1/models", headers=other).status_code == 200
        listed.set()
        assert {one.result().status_code for one in downloads} == {422}
