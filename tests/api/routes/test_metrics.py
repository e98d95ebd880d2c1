"""The accuracy matrix over HTTP."""

import pytest

from core.database.tables import Job, Model, Task, Version
from core.ids import new_id


def test_rows_columns_cells_and_summary_fit_together(client, model, publish):
    publish(model, cells={1: (9, 10)})
    publish(model, cells={1: (7, 10), 2: (8, 10)})
    found = client.get(f"/v1/models/{model}/metrics").json()
    assert found["version"] == 2
    assert [r["version"] for r in found["rows"]] == [0, 1, 2]
    columns = [(c["task"], c["name"], c["classes"]) for c in found["columns"]]
    assert columns == [(1, "week 1", ["cat", "dog"]), (2, "week 2", ["cat", "dog"])]
    assert found["accuracy_matrix"] == [[None, None], [0.9, None], [0.7, 0.8]]
    assert found["summary"]["acc"] == pytest.approx(0.75)
    assert found["summary"]["bwt"] == pytest.approx(-0.2)
    assert found["summary"]["forgetting"] == pytest.approx(0.2)


def test_figures_that_are_not_defined_are_null(client, model):
    found = client.get(f"/v1/models/{model}/metrics").json()
    assert found["columns"] == [] and found["accuracy_matrix"] == [[]]
    assert found["summary"]["acc"] is None and found["summary"]["bwt"] is None


def test_the_summary_follows_the_asked_version(client, model, publish):
    publish(model, cells={1: (9, 10)})
    publish(model, cells={1: (7, 10), 2: (8, 10)})
    assert client.get(f"/v1/models/{model}/metrics?version=1").json()["summary"][
        "acc"
    ] == pytest.approx(0.9)
    assert client.get(f"/v1/models/{model}/metrics?version=7").status_code == 404


def test_every_figure_is_defined_in_words(client, model):
    found = client.get(f"/v1/models/{model}/metrics").json()
    assert set(found["summary"]) | {"accuracy_matrix"} == set(found["definitions"])


def test_what_the_jobs_measured_is_told_along_the_ancestors(client, model, publish):
    publish(model, manifest={"update_norm": {"backbone": 1.5}, "drift": 1.5})
    probe = {
        "all": [3, 4],
        "tasks": {"1": [2, 2], "2": [1, 2]},
        "before": {"base": [1, 4], "parent": [3, 4]},
    }
    changes = {
        task: {"regressed": worse, "improved": 1, "total": 10}
        for task, worse in (("1", 3), ("2", 0))
    }
    publish(model, manifest={"drift": 2.5, "knn_probe": probe, "changes": changes})
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert summary["update_norm"] == [1.5, None] and summary["drift"] == [1.5, 2.5]
    assert summary["regression_rate"] == pytest.approx(0.15)
    assert summary["improvement_rate"] == pytest.approx(0.10)
    per_task = [{"task": 1, "accuracy": 1.0}, {"task": 2, "accuracy": 0.5}]
    assert summary["knn_probe"] == {"accuracy": 0.75, "per_task": per_task}
    assert summary["fwt_probe"] == pytest.approx(0.5)


def test_versions_from_before_a_figure_was_measured_have_null(client, model, publish):
    publish(model)
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert summary["knn_probe"] is summary["regression_rate"] is summary["fwt_probe"] is None
    assert summary["drift"] == [None]


def test_classes_that_cannot_be_measured_are_listed(client, model, publish):
    publish(model, cells={1: (9, 10)}, per_class={1: {"cat": [9, 10]}})
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert summary["unmeasured_classes"] == [{"task": 1, "class": "dog"}]
    assert summary["macro"] == pytest.approx(0.9) and summary["degenerate"] == []


def test_classes_of_a_task_without_a_held_out_image_are_listed(client, model, publish):
    publish(model, cells={1: (9, 10)}, per_class={1: {"cat": [9, 10]}})
    publish(model, cells={1: (8, 10)}, per_class={1: {"cat": [8, 10]}})
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert summary["unmeasured_classes"] == [{"task": 1, "class": "dog"}]
    of_two = client.app.state.database
    with of_two.write() as session:
        session.query(Task).filter_by(number=2).one().classes = {"cow": 1}
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert summary["unmeasured_classes"] == [
        {"task": 1, "class": "dog"},
        {"task": 2, "class": "cow"},
    ]


def test_the_norms_of_a_step_are_told_of_backbone_head_and_relative(client, model, publish):
    publish(model, manifest={"update_norm": {"backbone": 1.5, "head": 0.5, "relative": 0.1}})
    publish(model, manifest={"update_norm": {"backbone": 1.0, "head": 0.2, "relative": None}})
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert summary["update_norm"] == [1.5, 1.0]
    assert summary["update_norm_head"] == [0.5, 0.2]
    assert summary["update_norm_relative"] == [0.1, None]


def test_forecasts_are_told_beside_what_was_measured(client, model, publish):
    publish(model)
    rises = {"2": {"predicted": None, "before": 1.0, "after": 1.5}}
    publish(model, manifest={"forecast": {"predicted": 0.25, "measured": 0.5, "tasks": rises}})
    publish(model, manifest={"forecast": {"predicted": 0.125, "measured": None, "tasks": {}}})
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert summary["predicted_loss_rise"] == [None, 0.25, 0.125]
    assert summary["measured_loss_rise"] == [None, 0.5, None]
    of_one = client.get(f"/v1/models/{model}/metrics?version=1").json()["summary"]
    assert of_one["predicted_loss_rise"] == of_one["measured_loss_rise"] == [None]


def test_anytime_performance_is_told_per_version_and_task(client, model, publish):
    publish(model)
    publish(model, manifest={"adp": {"mean": {"10": 0.75, "2": 0.5}, "curve": []}})
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert summary["adp_mean"] == [
        None,
        [{"task": 2, "accuracy": 0.5}, {"task": 10, "accuracy": 0.75}],
    ]


def test_each_step_has_its_bytes_and_seconds(client, model, publish):
    publish(model)
    publish(model)
    with client.app.state.database.write() as session:
        version = session.query(Version).filter_by(number=2).one()
        task = session.query(Task).filter_by(number=2).one()
        job = Job(
            id=new_id("job"), model_id=task.model_id,
            owner_id=session.get_one(Model, task.model_id).owner_id, task_id=task.id, task_number=2,
            place=1, state="succeeded", recipe_override={}, recipe={}, progress={}, created_at=0.0,
            started_at=10.0, finished_at=12.5,
        )  # fmt: skip
        session.add(job)
        session.flush()
        version.job_id = job.id
    summary = client.get(f"/v1/models/{model}/metrics").json()["summary"]
    sizes = [client.get(f"/v1/models/{model}/versions/{n}").json()["bytes"] for n in (1, 2)]
    assert summary["seconds"] == [None, 2.5]
    assert summary["bytes"] == sizes


def test_a_window_shows_some_rows_and_columns_and_the_whole_summary(client, model, publish):
    for task in range(1, 5):
        publish(model, cells={number: (number, 10) for number in range(1, task + 1)})
    whole = client.get(f"/v1/models/{model}/metrics").json()
    part = client.get(f"/v1/models/{model}/metrics?from=2&to=3&tasks=2,4").json()
    assert [row["version"] for row in part["rows"]] == [2, 3]
    assert [column["task"] for column in part["columns"]] == [2, 3, 4]
    assert part["accuracy_matrix"] == [[0.2, None, None], [0.2, 0.3, None]]
    assert (part["version"], part["summary"]) == (4, whole["summary"])


@pytest.mark.parametrize(
    "window", ["from=3&to=2", "tasks=3,2", "tasks=3", "tasks=a,b", "from=-1", "to=x"]
)
def test_a_window_that_is_none_is_refused_with_what_to_send(client, model, window):
    answer = client.get(f"/v1/models/{model}/metrics?{window}")
    assert (
        answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"
    )
    assert window.partition("=")[0] in answer.text


def test_metrics_that_did_not_change_are_answered_by_their_tag_alone(client, model, publish):
    publish(model, cells={1: (9, 10)})
    url = f"/v1/models/{model}/metrics"
    tag = client.get(url).headers["etag"]
    again = client.get(url, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    publish(model, cells={1: (9, 10), 2: (8, 10)})
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 200
