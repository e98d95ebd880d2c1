"""A data directory from before models had a line: the present service starts on it, and every model
goes on.

What `tests/data/before-line.tar.gz` holds, and how it was made, is said in
`tests/data/make_before_line.py`. Each test that changes something has a model of its own.
"""

import re
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial import types
from tests.e2e import small
from tests.rest import Json, Rest
from tools import service

pytestmark = pytest.mark.slow
BEFORE = Path(__file__).parents[1] / "data" / "before-line.tar.gz"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    """The present service on the old data directory, which the launcher migrates."""
    data = tmp_path_factory.mktemp("before") / "data"
    data.mkdir()
    with tarfile.open(BEFORE) as archive:
        archive.extractall(data, filter="data")
    _as_if_of_today(data / "perennial.db")
    with service.running(data, {"PERENNIAL_THREADS": "1"}) as found:
        yield found


@pytest.fixture(scope="module")
def client(admin: Rest) -> Rest:
    return admin


def _as_if_of_today(database: Path) -> None:
    """Let the jobs have ended a moment ago: what a failed or cancelled one leaves is swept after
    some days.
    """
    connection = sqlite3.connect(database)
    with connection:
        connection.execute(
            "UPDATE jobs SET finished_at = ? WHERE finished_at IS NOT NULL", (time.time(),)
        )
    connection.close()


def standings(client: Rest, model: str) -> list[str]:
    return [task["standing"] for task in client.items(f"/v1/models/{model}/tasks")]


def submit(client: Rest, model: str, number: int) -> Json:
    """The answer to a batch of digits 2·number − 2 and 2·number − 1."""
    name = f"digits-{2 * number - 2}-{2 * number - 1}"
    path = f"/v1/models/{model}/tasks"
    answer: Json = client.call(
        "POST", path, content=small.WEEKS[number - 1], params={"name": name}
    ).json()
    return answer


def learn(client: Rest, model: str, number: int) -> types.Job:
    """The job of a batch, at its end."""
    end = client.wait(submit(client, model, number)["job"]["id"])
    assert end.state == "succeeded", end
    return end


def refused(client: Rest, method: str, path: str, body: Json) -> Json:
    """The problem of a request that cannot be granted now."""
    answer = client.http.request(method, path, json=body)
    assert answer.status_code == 409, answer.text
    problem: Json = answer.json()
    return problem


def entries(client: Rest, model: str) -> list[tuple[str, int, list[str]]]:
    """(kind, task, titles of the actions) of what waits for a person in a model."""
    found = client.get(f"/v1/models/{model}")["attention"]
    return [
        (one["kind"], one["task"], [action["title"] for action in one["actions"]]) for one in found
    ]


def test_every_task_stands_where_it_would_stand_now(client: Rest) -> None:
    assert {m["name"] for m in client.items("/v1/models")} == {
        "cancelled", "child", "failed", "held", "held-and-on", "overruled", "retrying", "rolled", "rolled-and-on",
        "seasons", "waiting",
    }  # fmt: skip
    assert standings(client, "rolled") == ["learned", "learned", "rolled_back"]
    assert standings(client, "rolled-and-on") == ["learned", "learned", "rolled_back", "learned"]
    assert standings(client, "held") == ["learned", "held"]
    assert standings(client, "held-and-on") == ["learned", "skipped", "learned"]
    assert standings(client, "overruled") == ["learned", "learned", "learned"]
    assert standings(client, "failed") == ["learned", "failed", "learned"]
    assert standings(client, "cancelled") == ["learned", "cancelled"]
    assert standings(client, "seasons") == ["learned", "learned"]
    assert standings(client, "child") == ["learned"]


@pytest.mark.parametrize(
    ("model", "head", "follows"),
    [
        ("rolled", 2, False),
        ("rolled-and-on", 4, True),
        ("held", 1, True),
        ("held-and-on", 3, True),
        ("failed", 2, True),
    ],
)
def test_a_line_goes_on_from_the_version_that_production_named(
    client: Rest, model: str, head: int, follows: bool
) -> None:
    answer = client.get(f"/v1/models/{model}")
    assert (answer["line_head"], answer["production_follows"]) == (head, follows)
    assert answer["aliases"]["production"] == head
    assert (
        any("Production stays on version 2" in text for text in answer["warnings"]) is not follows
    )


def test_what_waits_for_a_person_is_said_with_what_can_be_done(client: Rest) -> None:
    back = [
        "Put version 3 back in production",
        "Discard task 3",
    ]  # its images went when it was published
    assert entries(client, "rolled") == [("rolled_back", 3, back)]
    assert entries(client, "rolled-and-on") == [("rolled_back", 3, back)]
    settles = [
        "Learn task 2 again in 5 times as many epochs",
        "Discard task 2",
        "Go on without task 2",
        "Put version 2 in production all the same",
    ]
    assert entries(client, "held") == [("held", 2, settles)]
    assert entries(client, "failed") == [
        ("failed", 2, ["Learn task 2 again, perhaps with another recipe", "Discard task 2"])
    ]
    for model in ("held-and-on", "overruled", "cancelled", "seasons", "child"):
        assert entries(client, model) == []
    (held,) = client.get("/v1/models/held")["attention"]
    assert "Version 2 is held by its gate: mean accuracy over all tasks is" in held["detail"]


def test_every_version_names_the_tasks_that_it_was_taught(client: Rest) -> None:
    taught = {
        model: [client.get(f"/v1/models/{model}/versions/{n}")["manifest"]["tasks"] for n in range(1, last + 1)]
        for model, last in (("rolled-and-on", 4), ("held-and-on", 3), ("failed", 2), ("child", 1))
    }  # fmt: skip
    assert taught == {
        "rolled-and-on": [[1], [1, 2], [1, 2, 3], [1, 2, 4]],
        "held-and-on": [[1], [1, 2], [1, 3]],
        "failed": [[1], [1, 3]],
        "child": [[1]],
    }


def test_old_versions_are_downloaded_and_answer(client: Rest, tmp_path: Path) -> None:
    small.unpack_version(client, "rolled", 3, tmp_path)
    assert {"model.safetensors", "config.json", "README.md"} <= {
        path.name for path in tmp_path.iterdir()
    }
    path = "/v1/models/rolled/versions/production/predict"
    answer = client.call(
        "POST", path, files={"image": small.take_first_image(small.WEEKS[0])}
    ).json()
    (prediction,) = answer["predictions"]
    assert set(prediction["probabilities"]) == {"0", "1", "2", "3"}


def test_a_batch_that_had_not_begun_is_learned(client: Rest) -> None:
    job = client.get("/v1/models/waiting/tasks/2")["job"]
    end = client.wait(job)
    assert (end.state, end.outcome, end.version) == ("succeeded", "published", 2)
    assert client.get("/v1/models/waiting")["aliases"]["production"] == 2


def test_a_retry_that_was_asked_for_comes_before_the_batches_after_its_task(client: Rest) -> None:
    again, next_ = (client.get(f"/v1/models/retrying/tasks/{n}")["job"] for n in (2, 3))
    assert [client.wait(job).version for job in (again, next_)] == [3, 4]
    assert standings(client, "retrying") == ["learned", "learned", "learned"]
    assert client.get("/v1/models/retrying/versions/4")["manifest"]["tasks"] == [1, 2, 3]


def test_a_model_that_was_rolled_back_loses_nothing_silently_and_goes_on(client: Rest) -> None:
    problem = refused(client, "POST", "/v1/models/rolled/tasks/3/relearn", {})
    went = client.get("/v1/models/rolled/tasks/3")
    assert went["can_relearn"] is False
    assert re.search(r"training data of task 3 went on \d{4}-\d\d-\d\d: upload", problem["detail"])

    answer = submit(client, "rolled", 4)
    (missing,) = answer["job"]["warnings"]
    assert (
        "will not contain task 3 (“digits-4-5”, classes 4 and 5), which was rolled back" in missing
    )
    assert "It cannot be learned again" in missing and missing in answer["task"]["warnings"]
    end = client.wait(answer["job"]["id"])
    assert (end.state, end.outcome) == ("succeeded", "held")
    gate = client.get("/v1/models/rolled/versions/4")["gate"]
    (failed,) = [check for check in gate["checks"] if not check["passed"]]
    assert (failed["name"], failed["tasks"], failed["classes"]) == ("lost_tasks", [3], ["4", "5"])

    waits = submit(client, "rolled", 5)["job"]
    assert waits["waiting_for"]["kind"] == "held" and waits["waiting_for"]["task"] == 4
    client.call("POST", "/v1/models/rolled/tasks/3/discard", json={"reason": "was wrong"})
    assert client.wait(waits["id"]).outcome == "published"
    assert standings(client, "rolled") == ["learned", "learned", "discarded", "learned", "learned"]
    assert client.get("/v1/models/rolled/versions/5")["manifest"]["tasks"] == [1, 2, 4, 5]
    assert client.get("/v1/models/rolled")["aliases"]["production"] == 2  # where a person put it

    moved = client.call("POST", "/v1/models/rolled/aliases/production/follow").json()
    assert (moved["version"], moved["follows"]) == (5, True)
    assert entries(client, "rolled") == []


@pytest.mark.campaign  # tests/core/line/test_decisions.py shows what a promotion settles
def test_what_was_lost_before_is_named_now_and_a_promotion_settles_it(client: Rest) -> None:
    end = learn(client, "rolled-and-on", 5)
    assert end.outcome == "held"
    kinds = [(kind, task) for kind, task, _ in entries(client, "rolled-and-on")]
    assert kinds == [("held", 5), ("rolled_back", 3)]
    body = {"version": end.version, "reason": "the week of task 3 was a mistake"}
    client.call("PUT", "/v1/models/rolled-and-on/aliases/production", json=body)
    assert standings(client, "rolled-and-on") == [
        "learned",
        "learned",
        "skipped",
        "learned",
        "learned",
    ]
    assert entries(client, "rolled-and-on") == []
    end = learn(client, "rolled-and-on", 3)  # uploaded again
    assert end.outcome == "published"
    assert client.get("/v1/models/rolled-and-on/versions/production")["manifest"]["tasks"] == [
        1,
        2,
        4,
        5,
        6,
    ]


@pytest.mark.campaign  # test_lifecycle.py settles a held version of today
def test_a_version_that_was_held_stops_the_line_until_it_is_settled(client: Rest) -> None:
    waits = submit(client, "held", 3)["job"]
    assert waits["waiting_for"]["task"] == 2
    client.call(
        "POST", "/v1/models/held/tasks/2/continue", json={"reason": "the next one is better"}
    )
    assert client.wait(waits["id"]).outcome == "published"
    assert standings(client, "held") == ["learned", "skipped", "learned"]
    assert entries(client, "held") == []


def test_a_task_that_was_passed_over_is_learned_again_while_its_images_are_kept(
    client: Rest,
) -> None:
    assert client.get("/v1/models/held-and-on/tasks/2")["can_relearn"] is True
    job = client.call("POST", "/v1/models/held-and-on/tasks/2/relearn", json={}).json()
    end = client.wait(job["id"])
    assert end.outcome == "published"
    assert client.get("/v1/models/held-and-on/versions/production")["manifest"]["tasks"] == [
        1,
        3,
        2,
    ]


def test_a_failed_task_is_tried_again(client: Rest) -> None:
    job = client.get("/v1/models/failed/tasks/2")["job"]
    client.call("POST", f"/v1/jobs/{job}/retry", json={"recipe": {}})
    assert client.wait(job).outcome == "published"
    assert client.get("/v1/models/failed/versions/production")["manifest"]["tasks"] == [1, 3, 2]
    assert entries(client, "failed") == []


@pytest.mark.campaign  # tests/core/line/test_decisions.py shows it
def test_a_cancelled_task_is_in_nobodys_way_and_can_be_learned_after_all(client: Rest) -> None:
    assert learn(client, "cancelled", 3).outcome == "published"
    job = client.get("/v1/models/cancelled/tasks/2")["job"]
    client.call("POST", f"/v1/jobs/{job}/retry", json={"recipe": {}})
    assert client.wait(job).outcome == "published"
    assert client.get("/v1/models/cancelled/versions/production")["manifest"]["tasks"] == [1, 3, 2]


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        pytest.param("seasons", 1, marks=pytest.mark.campaign),
        pytest.param("overruled", 4, marks=pytest.mark.campaign),
        pytest.param("child", 5, marks=pytest.mark.campaign),
    ],
)
def test_other_models_go_on_as_before(client: Rest, model: str, batch: int) -> None:
    end = learn(client, model, batch)
    assert end.outcome == "published"
    assert client.get(f"/v1/models/{model}")["aliases"]["production"] == end.version


def test_a_model_that_started_from_anothers_version_owes_nothing_of_it_and_outlives_it(
    client: Rest,
) -> None:
    small.create(client, "grandchild", "finetune", base={"model": "overruled", "version": 3})
    assert client.get("/v1/models/grandchild/versions/0")["manifest"]["tasks"] == []
    client.models.delete("overruled")
    end = learn(client, "grandchild", 5)
    assert end.outcome == "published"
    version = client.get("/v1/models/grandchild/versions/production")
    assert version["manifest"]["tasks"] == [1] and version["manifest"]["classes"] == ["8", "9"]
