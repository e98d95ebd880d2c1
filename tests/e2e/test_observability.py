"""Metrics and logs of a running service: figures of all its processes, and lines that can
be followed.
"""

import json
from collections import Counter

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from perennial import Invalid
from tests.e2e import small
from tests.rest import Json, Rest
from tools import service

pytestmark = pytest.mark.slow

EPOCHS = 3
JOB_LABELS = frozenset({("outcome", "published"), ("cause", "")})
Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Name and labels → value."""


@pytest.fixture(scope="module")
def before(admin: Rest) -> Figures:
    """Figures from before the batch, once no job of another test runs."""
    small.wait_until(lambda: not admin.get("/v1/jobs?state=running")["items"])
    return parse_samples(admin.call("GET", "/metrics").text)


@pytest.fixture(scope="module")
def learned(client: Rest, before: Figures) -> dict[str, str]:
    """Learn one batch; the ids of its request, job and model."""
    model = small.create_small_model(client, "watched", "finetune", recipe={"epochs": EPOCHS}).id
    headers = {"Content-Type": "application/zip", "X-Request-Id": "first-batch"}
    path = "/v1/models/watched/tasks"
    job = client.call("POST", path, content=small.WEEKS[0], headers=headers).json()["job"]["id"]
    assert client.wait(job).state == "succeeded"
    return {"request": "first-batch", "job": job, "model": model}


def read_log_lines(running: service.RunningService) -> list[Json]:
    """Read what API and worker have logged so far."""
    return [
        json.loads(line) for line in running.log.read_text().splitlines() if line.startswith("{")
    ]


def parse_samples(page: str) -> Figures:
    """Return every figure of a page, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def count_growth(admin: Rest, before: Figures) -> Counter[tuple[str, frozenset[tuple[str, str]]]]:
    """Return by how much every figure has grown."""
    found = Counter(parse_samples(admin.call("GET", "/metrics").text))
    found.subtract(before)
    return found


def test_the_api_shows_what_its_worker_counted(
    admin: Rest, metrics_port: int, before: Figures, learned: dict[str, str]
) -> None:
    task = admin.get(f"/v1/models/{learned['model']}/tasks/1")
    found = count_growth(admin, before)
    assert found["perennial_attempts_total", JOB_LABELS] == 1
    assert (
        found["perennial_ingest_images_total", frozenset()] == task["n_train"] + task["n_held_out"]
    )
    assert found["perennial_ingest_seconds_count", frozenset()] == 1
    assert found["perennial_training_images_total", frozenset()] == EPOCHS * task["n_train"]
    assert found["perennial_training_seconds_total", frozenset()] > 0
    assert found["perennial_job_wait_seconds_count", frozenset()] == 1
    assert found["perennial_store_seconds_count", frozenset({("operation", "put")})] > 3
    submit = frozenset(
        {("method", "POST"), ("route", "/v1/models/{model}/tasks"), ("status", "202")}
    )
    assert found["perennial_http_request_seconds_count", submit] == 1
    assert found["perennial_queue_depth", frozenset()] == 0
    # A worker at scale has a page of its own; here the same figures stand on it.
    images = "perennial_training_images_total", frozenset[tuple[str, str]]()
    own = parse_samples(httpx2.get(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60).text)
    assert own[images] == parse_samples(admin.call("GET", "/metrics").text)[images]


def test_the_lines_of_a_batch_can_be_followed_from_its_request_to_its_version(
    running: service.RunningService, learned: dict[str, str]
) -> None:
    lines = read_log_lines(running)
    of_request = [line for line in lines if line.get("request") == learned["request"]]
    accepted = next(line for line in of_request if line["event"] == "task accepted")
    said = {key: accepted[key] for key in ("service", "job", "model")}
    assert said == {"service": "api", "job": learned["job"], "model": learned["model"]}
    told = next(line for line in of_request if line["event"] == "request")
    assert (told["method"], told["status"]) == ("POST", 202) and told["ms"] > 0 and told["key"]
    of_job = [
        line for line in lines if line.get("job") == learned["job"] and line["service"] == "worker"
    ]
    assert [line["event"] for line in of_job][::3] == ["attempt", "published"]
    assert {line["model"] for line in of_job} == {learned["model"]}


def test_a_refused_request_is_counted_and_logged(
    admin: Rest, client: Rest, running: service.RunningService
) -> None:
    before = parse_samples(admin.call("GET", "/metrics").text)
    with pytest.raises(Invalid, match="unknown method"):
        small.create_small_model(client, "watched-again", "no-such")
    refused = frozenset({("method", "POST"), ("route", "/v1/models"), ("status", "422")})
    assert count_growth(admin, before)["perennial_http_request_seconds_count", refused] == 1
    wanted = (422, "/v1/models")
    small.wait_until(
        lambda: (
            wanted in [(line.get("status"), line.get("path")) for line in read_log_lines(running)]
        )
    )
