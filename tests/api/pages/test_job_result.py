"""The result of a job on its page: accuracies with their images, the gate, and labels to look at."""

import html
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from core.contract.gate import GateCheck
from core.database.job_log import add_job_log_line
from core.database.session import Database
from core.database.tables import Model, Task
from core.ids import new_id
from tests.api.pages.test_model import SEEN, write_verdict
from tests.core.rows import make_job_row

Text = Callable[[str], str]
Publish = Callable[..., int]
SUSPECT = {"index": 4, "path": "train/cat/4.png", "label": "cat", "suggested": "dog", "score": 9.0}
REPORT = {
    "data": {"suspects": [SUSPECT], "suspects_count": 1, "examined": 40},
    "classes": {"new": ["dgo"], "known": ["dog"], "look_alike": [{"label": "dgo", "like": "dog"}]},
}
CALM: GateCheck = {
    "name": "forgotten",
    "limit": 0.04,
    "value": 0.0,
    "passed": True,
    "detail": "Of 42 images 0 turned wrong.",
}


@pytest.fixture
def job(logged_in: TestClient, model: str, publish: Publish) -> str:
    """The path of the page of a job that made version 2."""
    publish(model, cells={1: (9, 10)})
    publish(model, cells={1: (8, 10), 2: (19, 20)})
    write_verdict(logged_in, 2, CALM, visible=True)
    db: Database = logged_in.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        first, task = session.scalars(select(Task).order_by(Task.number)).all()
        first.n_held_out, task.n_held_out = 10, 20
        task.report = REPORT  # type: ignore[assignment]
        owner = session.get_one(Model, task.model_id).owner_id
        row = make_job_row(new_id("job"), task.model_id, owner, task.id, 2)
        row.recipe = {"method": {"name": "er"}}
        row.state, row.version = "succeeded", 2
        session.add(row)
        return f"/ui/jobs/{row.id}"


def test_accuracies_stand_with_the_images_that_they_rest_on(
    logged_in: TestClient, job: str, text: Text
) -> None:
    said = text(logged_in.get(job).text)
    assert "task 1 80.0 % (10 images) , task 2 95.0 % (20 images)" in said


def test_a_job_says_how_small_a_loss_its_gate_could_have_seen(
    logged_in: TestClient, job: str, text: Text
) -> None:
    assert f"Of 42 images 0 turned wrong. {SEEN}" in text(logged_in.get(job).text)


def test_a_suspect_label_is_shown_with_the_result(
    logged_in: TestClient, job: str, text: Text
) -> None:
    said = text(logged_in.get(job).text)
    assert "1 of 40 training images looks like another class than the label says." in said
    assert "cat – looks like dog train/cat/4.png" in said
    assert said.index("It made version 2") < said.index("Labels to look at") < said.index("Sent")


@pytest.mark.parametrize("page", ["job", "task"])
def test_a_class_that_a_slip_of_the_pen_split_is_merged_by_a_link(
    page: str, logged_in: TestClient, model: str, job: str, text: Text
) -> None:
    answer = logged_in.get(job if page == "job" else f"/ui/models/{model}/tasks/2").text
    assert "Names that look alike: “dgo” and “dog”." in text(answer)
    link = html.unescape(answer[: answer.index(">Merge dgo into dog…")].rpartition('href="')[2])
    query = parse_qs(urlsplit(link.rstrip('"')).query)
    assert query == {"what": ["merge"], "names": ['["dgo", "dog"]'], "to": ["dog"]}


def test_the_log_names_buttons_in_place_of_requests(
    logged_in: TestClient, job: str, text: Text
) -> None:
    db: Database = logged_in.app.state.database  # type: ignore[attr-defined]
    message = "Task 1 was rolled back: POST /v1/models/birds/tasks/1/relearn learns it again."
    with db.write() as session:
        add_job_log_line(session, job.rpartition("/")[2], ("warning", message), 1.0)
    said = text(logged_in.get(job).text)
    assert "Task 1 was rolled back: “Learn task 1 again…” learns it again." in said
    assert "POST /v1" not in said
