"""The download of a job that is not over yet: the format of a version's, and typed answers where
there is none.
"""

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from starlette.testclient import TestClient

from core.database.jobs import change_job_state, lock_job
from core.database.states import JobAction
from core.database.tables import Job
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.publishing import anytime
from core.scheduling import claim
from tests.api.conftest import KeyOf, Make

MODEL = {
    "name": "birds",
    "scenario": "class",
    "architecture": {"name": "mlp", "hidden": [6]},
    "image": {"size": 8, "channels": 3},
    "recipe": {"preset": "fast"},
}


class Running:
    """A job that a worker holds, and the states that it registers."""

    def __init__(self, client: TestClient, archive: Make, folder: Path) -> None:
        assert client.post("/v1/models", json=MODEL).status_code == 201
        self._app: Any = client.app
        self._folder = folder
        self.id: str = client.post("/v1/models/birds/tasks", content=archive(a=3, b=3)).json()[
            "job"
        ]["id"]
        self.url = f"/v1/jobs/{self.id}/anytime/download"

    @property
    def db(self) -> Any:
        return self._app.state.database

    def start(self) -> None:
        found = claim.claim_job(self.db, "w", 60.0)
        assert found is not None and found.job_id == self.id
        self._claim = found

    def better(self, correct: int, step: int = 12) -> Network:
        """Register a state with `correct` of 20 validated right; the network in it."""
        image, heads = ImageSpec(8, 3), HeadSpec(("a", "b"))
        network = build_network(MODEL["architecture"], image, "class", heads, seed=correct)
        folder = self._folder / f"state-{correct}"
        (folder / "parts").mkdir(parents=True)
        parts = []
        for name, tensors in network.copy_parts_to_cpu().items():
            save_file(tensors, folder / "parts" / f"{name}.safetensors")
            parts.append(
                {"name": name, "type": name.partition(".")[0], "file": f"parts/{name}.safetensors"}
            )
        document = {
            "parts": parts,
            "classes": ["a", "b"],
            "heads": [],
            "network": None,
            "method": {"name": "finetune", "hyper": {}, "state": {}},
            "normalise": {"mean": [0.5] * 3, "std": [0.25] * 3},
            "environment": {"torch": "2", "cpu_capability": "x", "threads": 1, "device": "cpu"},
            "steps": step,
            "validation": {"correct": correct, "total": 20},
        }
        (folder / "result.json").write_text(json.dumps(document))
        anytime.upload_and_register_best_state(self.db, self._app.state.store, self._claim, folder)
        return network

    def end(self, action: JobAction, **values: Any) -> None:
        with self.db.write() as session:
            row = lock_job(session, self.id)
            if row.state == "validating":
                change_job_state(session, row, JobAction.START, 1.0)
            change_job_state(session, row, action, 1.0)
            for name, value in values.items():
                setattr(row, name, value)


@pytest.fixture
def started(job: Running) -> Running:
    """One that has registered a state."""
    job.start()
    job.better(15)
    return job


@pytest.fixture
def job(client: TestClient, archive: Make, tmp_path: Path) -> Running:
    return Running(client, archive, tmp_path)


def test_it_is_loaded_by_its_own_model_card(
    client: TestClient, job: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.start()
    network = job.better(15, step=34).eval()
    answer = client.get(job.url)
    assert answer.status_code == 200, answer.text
    assert answer.headers["etag"] == f'"{hashlib.sha256(answer.content).hexdigest()}"'
    assert f"birds-{job.id}-step-34.zip" in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as file:
        first, rest = file.namelist()[:3], file.namelist()[3:]
        assert first == ["model.safetensors", "config.json", "README.md"]
        assert rest and all(name.startswith("image_file") for name in rest)
        file.extractall(tmp_path / "unpacked")
    card = (tmp_path / "unpacked" / "README.md").read_text()
    monkeypatch.chdir(tmp_path / "unpacked")
    scope: dict[str, Any] = {}
    exec(
        compile(re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0], "README.md", "exec"), scope
    )
    x = torch.randn(3, 3, 8, 8)
    with torch.inference_mode():
        assert torch.allclose(scope["network"](x), network(x), atol=1e-6)


def test_the_card_says_that_it_is_an_unfinished_state_and_how_good(
    client: TestClient, job: Running
) -> None:
    job.start()
    job.better(15, step=34)
    with zipfile.ZipFile(io.BytesIO(client.get(job.url).content)) as file:
        card, config = file.read("README.md").decode(), json.loads(file.read("config.json"))
    plain = card.replace("\\", "")
    assert f"An unfinished state of {job.id}" in plain and "after step 34" in plain
    assert "validation accuracy of 0.7500 (15 of 20 images" in plain
    assert config["version"] is None and config["classes"] == ["a", "b"]
    assert config["anytime"] == {
        "job": job.id,
        "step": 34,
        "validation": {"correct": 15, "total": 20},
    }


def test_it_is_made_once_and_answers_conditions_and_ranges(
    client: TestClient, started: Running
) -> None:
    whole = client.get(started.url)
    tag = whole.headers["etag"]
    assert client.get(started.url, headers={"If-None-Match": tag}).status_code == 304
    part = client.get(started.url, headers={"Range": "bytes=10-19", "If-Range": tag})
    assert (part.status_code, part.content) == (206, whole.content[10:20])
    assert client.get(started.url, headers={"Range": "bytes=99999999-"}).status_code == 416
    head = client.head(started.url)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)
    assert head.headers["content-length"] == str(len(whole.content))
    state: Any = client.app.state  # type: ignore[attr-defined]
    assert len([i for i in state.store.list("anytime/") if i.key.endswith(".zip")]) == 1
    assert not list((state.settings.data_dir / "spool").iterdir())


def test_a_better_state_is_another_file_and_the_first_is_gone(
    client: TestClient, started: Running
) -> None:
    first = client.get(started.url)
    started.better(16)
    second = client.get(started.url, headers={"If-None-Match": first.headers["etag"]})
    assert second.status_code == 200 and second.headers["etag"] != first.headers["etag"]
    store: Any = client.app.state.store  # type: ignore[attr-defined]
    assert len([i for i in store.list("anytime/") if i.key.endswith(".zip")]) == 1


def test_before_there_is_a_state_the_answer_is_to_ask_again(
    client: TestClient, job: Running
) -> None:
    for _ in ("queued", "running"):
        answer = client.get(job.url)
        assert answer.status_code == 409 and answer.headers["retry-after"]
        assert answer.json()["type"] == "/problems/anytime-unavailable"
        if answer.json()["state"] == "queued":
            job.start()
    assert answer.json()["state"] == "validating"


@pytest.mark.parametrize(
    ("action", "values", "said"),
    [
        (JobAction.PUBLISH, {"version": 1}, "download version 1 instead"),
        (JobAction.REJECT, {}, "nothing of it was kept"),
        (JobAction.FAIL, {"anytime": None}, "retry it"),
    ],
)
def test_a_job_that_is_over_says_what_to_do_instead(
    client: TestClient, started: Running, action: JobAction, values: dict[str, Any], said: str
) -> None:
    if action is JobAction.REJECT:
        with started.db.write() as session:
            change_job_state(session, lock_job(session, started.id), action, 1.0)
    else:
        started.end(action, **values)
    answer = client.get(started.url)
    assert answer.status_code == 409 and said in answer.json()["detail"]


def test_what_a_failed_job_had_reached_can_still_be_had_until_it_is_tried_again(
    client: TestClient, started: Running
) -> None:
    started.end(JobAction.FAIL)
    assert client.get(started.url).status_code == 200
    assert client.post(f"/v1/jobs/{started.id}/retry").status_code == 202
    assert client.get(started.url).status_code == 409


def test_a_recipe_without_anytime_is_told_to_ask_for_it(client: TestClient, job: Running) -> None:
    with job.db.write() as session:
        row = session.get_one(Job, job.id)
        row.recipe = {**row.recipe, "anytime": False}
    answer = client.get(job.url)
    assert answer.status_code == 409 and "`anytime` true" in answer.json()["detail"]


def test_a_state_that_was_replaced_meanwhile_is_a_503(client: TestClient, started: Running) -> None:
    store: Any = client.app.state.store  # type: ignore[attr-defined]
    for info in list(store.list("anytime/")):
        store.delete(info.key)
    answer = client.get(started.url)
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"


def test_a_damaged_part_is_a_typed_500_and_leaves_nothing(
    client: TestClient, started: Running
) -> None:
    state: Any = client.app.state  # type: ignore[attr-defined]
    key = next(i.key for i in state.store.list("anytime/") if i.key.endswith("head.safetensors"))
    state.store.put_bytes(key, b"damaged")
    answer = client.get(started.url)
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/store-corrupt")
    assert not list((state.settings.data_dir / "spool").iterdir())


def test_another_owner_finds_no_such_job(
    client: TestClient, started: Running, key_of: KeyOf
) -> None:
    assert client.get(started.url, headers=key_of("stranger", "read")).status_code == 404


def test_a_deleted_model_takes_the_states_of_its_failed_jobs_with_it(
    client: TestClient, started: Running
) -> None:
    started.end(JobAction.FAIL)
    assert client.delete("/v1/models/birds").status_code < 300
    answer = client.get(started.url)
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")


def test_anytime_without_a_validation_part_is_a_422_that_says_what_to_do(
    client: TestClient,
) -> None:
    answer = client.post("/v1/models", json={**MODEL, "recipe": {"anytime": True}})
    assert answer.status_code == 422
    said = "must be above 0 with anytime, which deploys the best validated state: 0.05, for example"
    assert answer.json()["errors"] == [{"field": "recipe.validation", "message": said}]
