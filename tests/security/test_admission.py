"""The attacks of `admission`, on a running service: what they cost, and that nobody else pays."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.requests.audit import MAX_DATA_BYTES
from core.requests.pages import MAX_PAGE_BYTES
from tests.rest import Rest
from tests.security import admission
from tests.security.memory import pids
from tools import digits, service

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    with service.running(tmp_path_factory.mktemp("service"), {"PERENNIAL_THREADS": "1"}) as found:
        yield found


def test_recipes_of_one_huge_name_are_refused_and_never_stored(running: service.Service) -> None:
    cost = admission.huge_recipes(running, models=20)
    assert cost.answers == {422: 20, 200: 3}
    assert cost.api_mb < 100


def test_models_of_long_labels_are_listed_in_pages_that_are_bounded(running: service.Service) -> None:
    cost = admission.long_labels(running, models=20)
    assert cost.answers == {201: 20, 200: 3}
    assert cost.api_mb < 150
    admin = Rest(running.url, running.key)
    page = admin.call("GET", "/v1/models", params={"limit": 200})
    assert len(page.content) < MAX_PAGE_BYTES + 100_000 and page.json()["next_cursor"] is not None
    assert len(admin.items("/v1/models")) >= 20
    rows = admin.items("/v1/audit")
    assert rows and all(len(str(row["data"])) < 2 * MAX_DATA_BYTES for row in rows)


def test_bases_without_a_body_start_no_process(running: service.Service) -> None:
    cost = admission.bases_without_body(running)
    assert cost.answers == {422: 16}
    assert cost.others_mb < 50


def test_bases_of_many_architectures_start_one_process_of_an_owner_at_once(running: service.Service) -> None:
    cost = admission.tiny_bases(running, requests=4)
    assert cost.answers == {422: 4}
    assert cost.others_mb < 500


def test_a_network_beyond_every_machine_is_refused_with_its_parameters(running: service.Service) -> None:
    status, answer = admission.huge_network(running)
    assert status == 422 and "55,566,401,536 parameters" in answer["detail"]


def test_a_job_that_outgrows_its_bound_fails_with_a_sentence_and_the_worker_goes_on(tmp_path: Path) -> None:
    """Admitted under a bound that was lowered since: the first job is far above it, the second within."""
    data = tmp_path / "data"
    network = {"architecture": {"name": "mlp", "hidden": [6000, 6000]}, "image": {"size": 32}}
    with service.running(data, {"PERENNIAL_THREADS": "1"}) as before:
        client = Rest(before.url, before.key)
        client.models.create("large", recipe={"method": "finetune", "epochs": 50}, **network)
        large = client.submit("large", digits.archives()[0][1]).id
        client.jobs.pause(large)
        while client.get(f"/v1/jobs/{large}")["state"] != "paused":
            time.sleep(0.1)
    bound = {"PERENNIAL_THREADS": "1", "PERENNIAL_JOB_MEMORY_BYTES": "800000000"}
    with service.running(data, bound) as now:
        client = Rest(now.url, now.key)
        worker = pids(now.process.pid)
        client.models.create(
            "small", recipe={"method": "finetune", "epochs": 1}, image={"size": 8}, architecture="small-cnn"
        )
        client.jobs.resume(large)
        small = client.submit("small", digits.archives()[0][1]).id
        failed, learned = client.wait(large), client.wait(small)
        assert failed.state == "failed" and failed.error is not None and failed.error.kind == "memory"
        assert "more than the 0.8 GB of memory that one job may have here" in failed.error.detail
        assert failed.attempt == 2  # the one that was paused, and one under the bound: not three
        assert learned.state == "succeeded"
        assert pids(now.process.pid) == worker
        answer = client.http.post(f"/v1/jobs/{large}/retry", json={})
        assert answer.status_code == 422 and "One job may take 0.8 GB here" in answer.json()["detail"]


def test_a_job_that_runs_longer_than_jobs_may_fails_with_a_sentence(tmp_path: Path) -> None:
    bound = {"PERENNIAL_THREADS": "1", "PERENNIAL_MAX_JOB_S": "4"}
    with service.running(tmp_path / "data", bound) as running:
        client = Rest(running.url, running.key)
        client.models.create(
            "long",
            recipe={"method": "finetune", "epochs": 10_000},
            image={"size": 8},
            architecture="small-cnn",
        )
        failed = client.wait(client.submit("long", digits.archives()[0][1]), 120)
        assert failed.state == "failed" and failed.error.kind == "time"
        assert "ran longer than the 4 seconds" in failed.error.detail
        client.models.create(
            "short", recipe={"method": "finetune", "epochs": 1}, image={"size": 8}, architecture="small-cnn"
        )
        assert client.wait(client.submit("short", digits.archives()[0][1]), 120).state == "succeeded"
