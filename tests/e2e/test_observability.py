"""What a running service tells those who watch it: figures of all its processes, and lines that can be followed."""

import json
import time
from collections.abc import Iterator

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from perennial import Invalid
from tests.rest import Rest
from tools import digits, service

EPOCHS = 5
RECIPE = {"method": {"name": "finetune"}, "epochs": EPOCHS}
pytestmark = [pytest.mark.slow, pytest.mark.share(4, together=True)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[service.Service, int]]:
    """A service whose processes share their figures, and the port on which its worker shows them."""
    folder, port = tmp_path_factory.mktemp("watched"), service.free_port()
    figures = folder / "figures"
    figures.mkdir()
    environment = {
        "PERENNIAL_THREADS": "1",
        "PERENNIAL_METRICS_PORT": str(port),
        "PROMETHEUS_MULTIPROC_DIR": str(figures),
    }
    with service.running(folder / "data", environment) as running:
        yield running, port


@pytest.fixture(scope="module")
def learned(watched: tuple[service.Service, int]) -> dict[str, str]:
    """One batch learned and one rejected; the ids of the jobs and of the first one's request and model."""
    running, _ = watched
    client = Rest(running.url, running.key)
    model = client.models.create("watched", recipe=RECIPE, architecture="small-cnn").id
    _, archive = digits.archives()[0]
    answer = httpx2.post(
        f"{running.url}/v1/models/watched/tasks",
        content=archive,
        headers={
            "Authorization": f"Bearer {running.key}",
            "Content-Type": "application/zip",
            "X-Request-Id": "first-batch",
        },
    )
    job = answer.raise_for_status().json()["job"]["id"]
    assert client.wait(job).state == "succeeded"
    return {"request": "first-batch", "job": job, "model": model}


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every figure of a page, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_the_api_shows_what_its_worker_counted(
    watched: tuple[service.Service, int], learned: dict[str, str]
) -> None:
    running, port = watched
    client = Rest(running.url, running.key)
    task = client.get("/v1/models/watched/tasks/1")
    headers = {"Authorization": f"Bearer {running.key}"}
    found = samples(httpx2.get(f"{running.url}/metrics", headers=headers).text)
    assert found["perennial_attempts_total", frozenset({("outcome", "published"), ("cause", "")})] == 1
    assert found["perennial_ingest_images_total", frozenset()] == task["n_train"] + task["n_held_out"]
    assert found["perennial_ingest_seconds_count", frozenset()] == 1
    assert found["perennial_training_images_total", frozenset()] == EPOCHS * task["n_train"]
    assert found["perennial_training_seconds_total", frozenset()] > 0
    assert found["perennial_job_wait_seconds_count", frozenset()] == 1
    assert found["perennial_store_seconds_count", frozenset({("operation", "put")})] > 3
    submit = frozenset({("method", "POST"), ("route", "/v1/models/{model}/tasks"), ("status", "202")})
    assert found["perennial_http_request_seconds_count", submit] == 1
    assert found["perennial_queue_depth", frozenset()] == 0
    # A worker at scale has a page of its own; here the same figures stand on it.
    own = samples(httpx2.get(f"http://127.0.0.1:{port}/metrics").text)
    assert own["perennial_training_images_total", frozenset()] == EPOCHS * task["n_train"]


def test_the_lines_of_a_batch_can_be_followed_from_its_request_to_its_version(
    watched: tuple[service.Service, int], learned: dict[str, str]
) -> None:
    lines = [json.loads(line) for line in watched[0].log.read_text().splitlines() if line.startswith("{")]
    of_request = [line for line in lines if line.get("request") == learned["request"]]
    accepted = next(line for line in of_request if line["event"] == "task accepted")
    assert (accepted["service"], accepted["job"], accepted["model"]) == (
        "api",
        learned["job"],
        learned["model"],
    )
    told = next(line for line in of_request if line["event"] == "request")
    assert (told["method"], told["status"]) == ("POST", 202) and told["ms"] > 0 and told["key"]
    of_job = [line for line in lines if line.get("job") == learned["job"] and line["service"] == "worker"]
    assert [line["event"] for line in of_job][::3] == ["attempt", "published"]
    assert {line["model"] for line in of_job} == {learned["model"]}


def test_a_refused_request_is_counted_and_logged(watched: tuple[service.Service, int]) -> None:
    running, _ = watched
    client = Rest(running.url, running.key)
    with pytest.raises(Invalid, match="unknown method"):
        client.models.create(
            "watched-again", recipe={"method": {"name": "no-such"}}, architecture="small-cnn"
        )
    headers = {"Authorization": f"Bearer {running.key}"}
    found = samples(httpx2.get(f"{running.url}/metrics", headers=headers).text)
    refused = frozenset({("method", "POST"), ("route", "/v1/models"), ("status", "422")})
    assert found["perennial_http_request_seconds_count", refused] == 1
    end = time.monotonic() + 5
    while time.monotonic() < end:
        lines = [json.loads(text) for text in running.log.read_text().splitlines() if text.startswith("{")]
        if any(line.get("status") == 422 and line.get("path") == "/v1/models" for line in lines):
            return
        time.sleep(0.05)
    raise AssertionError("no line tells of the refusal")
