"""Options of reading a batch: what a check and a submit ask for, and what the job does with the
answer.
"""

import io
import zipfile
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.database.session import Database
from core.database.tables import Task
from tests.api.conftest import Make, create_model
from worker.loop import Worker

TASKS = "/v1/models/birds/tasks"


@pytest.fixture(autouse=True)
def model(client: TestClient) -> None:
    create_model(client, recipe={"method": "finetune", "epochs": 1})


def move_classes(content: bytes, *tops: str, **others: str) -> bytes:
    """Move each class of an archive, named c0, c1 …, into the folder of that number in `tops`, and
    add other files.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            _, label, file = name.split("/")
            new.writestr(f"{tops[int(label[1:])]}/{file}", old.read(name))
        for name, text in others.items():
            new.writestr(name.replace("_", "."), text)
    return out.getvalue()


def build_nested_archive(archive: Make) -> bytes:
    return move_classes(archive(c0=8, c1=8, c2=8), "cat/indoor", "cat/outdoor", "dog/indoor")


@pytest.mark.parametrize("validate", ["", "?validate=only", "?validate=full"])
def test_check_and_submit_stop_with_the_same_sentence_and_the_options_that_settle_it(
    client: TestClient, archive: Make, validate: str
) -> None:
    body = move_classes(archive(c0=8), "images", labels_json="{}")
    answer = client.post(TASKS + validate, content=body)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["detail"].startswith(
        "The batch has no labels that are sure: 8 images lie in one folder “images”; “labels.json” "
        "looks like a FiftyOne export. Put the images of each class in a folder of its name"
    )
    assert problem["remedies"] == [
        {"option": "one_class", "value": "true", "does": "Read all 8 images as one class “images”"}
    ]


@pytest.mark.parametrize(
    ("query", "classes"),
    [
        ("classes=level:1", {"cat": 16, "dog": 8}),
        ("classes=level:2", {"indoor": 16, "outdoor": 8}),
    ],
)
def test_the_job_reads_the_batch_as_the_submit_was_asked_to(
    client: TestClient, worker: Worker, archive: Make, query: str, classes: dict[str, int]
) -> None:
    checked = client.post(f"{TASKS}?validate=only&{query}", content=build_nested_archive(archive))
    assert checked.json()["classes"] == classes
    made = client.post(f"{TASKS}?validate=full&{query}", content=build_nested_archive(archive))
    worker.run_jobs(lambda: False)
    job = client.get(f"/v1/jobs/{made.json()['id']}").json()
    assert job["report"]["valid"] is True and job["report"]["classes"] == classes
    assert job["report"]["report"]["reading"] == {
        "options": {"classes": query.partition("=")[2]},
        "known": [],
    }


def test_the_classes_that_the_model_knows_settle_it_for_its_job_too(
    client: TestClient, db: Database, worker: Worker, archive: Make
) -> None:
    assert client.post(TASKS, content=build_nested_archive(archive)).status_code == 422
    assert client.post(TASKS, content=archive(cat=8, bird=8)).status_code == 202
    made = client.post(f"{TASKS}?validate=full", content=build_nested_archive(archive))
    assert made.status_code == 202, made.text
    with db.write() as session:  # what decided is kept with the batch: the model's batches may go
        session.query(Task).one().classes = {"other": 8}
    worker.run_jobs(lambda: False)
    job = client.get(f"/v1/jobs/{made.json()['id']}").json()
    assert job["report"]["valid"] is True and job["report"]["classes"] == {"cat": 16, "dog": 8}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("classes=2", None),
        ("classes=upper", "classes is “upper”; possible are level:1"),
        ("max_bad=lots", "max_bad is “lots”"),
        ("layout=flat", "layout"),
    ],
)
def test_an_option_that_is_none_is_refused(
    client: TestClient, archive: Make, query: str, said: str | None
) -> None:
    answer = client.post(f"{TASKS}?validate=only&{query}", content=archive(cat=3, dog=3))
    if said is None:
        assert answer.status_code == 422 and "1 level below" in answer.json()["detail"]
    else:
        assert answer.status_code == 422 and said in answer.text


def test_a_batch_of_one_class_is_warned_about_and_taken(client: TestClient, archive: Make) -> None:
    body = archive(cat=8)
    found: dict[str, Any] = client.post(f"{TASKS}?validate=only", content=body).json()
    (warning,) = [text for text in found["warnings"] if "has one class, “cat”" in text]
    sent = client.post(TASKS, content=body)
    assert sent.status_code == 202 and warning in sent.json()["task"]["warnings"]
