"""Edits of a model through HTTP: each ends as a model that was sent the corrected batches."""

import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from perennial.errors import Conflict, Invalid
from tests.e2e.edited import (
    METHODS,
    create_corrected_model,
    create_learned_model,
    describe_newest_version,
    edit_model,
    make_model_name,
    unpack_archive,
)
from tests.e2e.holder import Holder
from tests.e2e.small import WEEKS, create_small_model, learn_batches, pack_zip
from tests.live_files import list_live_files
from tests.rest import Json, Rest
from tools.service import RunningService

pytestmark = pytest.mark.slow

OPERATIONS: dict[str, list[Json]] = {
    "relabel": [
        {"relabel": {"task": 1, "image": 3, "label": "1"}},
        {"relabel": {"task": 2, "image": 40, "label": "2"}},
        {"relabel": {"task": 1, "part": "held_out", "image": 2, "label": "1"}},
    ],
    "relabel to a new class": [{"relabel": {"task": 1, "image": 5, "label": "odd"}}],
    "relabel to a class of another task": [{"relabel": {"task": 1, "image": 5, "label": "3"}}],
    "remove": [
        {"remove": {"task": 2, "image": 0}},
        {"remove": {"task": 2, "part": "held_out", "image": 1}},
    ],
    "rename": [{"rename": {"from": "2", "to": "two"}}],
    "merge": [{"merge": {"from": ["1", "2"], "into": "1"}}],
    "drop": [{"drop": {"class": "0"}}],
    "remove a task": [{"remove": {"task": 2}}],
    "remove the last task and relabel": [
        {"remove": {"task": 3}},
        {"relabel": {"task": 1, "image": 3, "label": "1"}},
    ],
    "several at once": [
        {"drop": {"class": "0"}},
        {"remove": {"task": 2}},
        {"merge": {"from": ["4", "5"], "into": "4"}},
        {"relabel": {"task": 3, "image": 5, "label": "1"}},
    ],
}


IN_EACH_BUILD = ("auto", "several at once")
"""One edit that takes each path of the engine for sums. The campaign takes each operation alone, with each
method; `test_a_later_task_is_edited_after_an_edit_that_learned_it_again` learns tasks again, and
`tests/core/edits/` shows what each operation does to labels, data and sums.
"""
CASES = [
    pytest.param(
        method, name, marks=() if (method, name) == IN_EACH_BUILD else pytest.mark.campaign
    )
    for method in METHODS
    for name in OPERATIONS
]


@pytest.mark.parametrize(("method", "operation"), CASES)
def test_the_version_is_that_of_a_model_that_was_sent_the_corrected_batches(
    client: Rest, method: str, operation: str
) -> None:
    model = create_learned_model(client, METHODS[method])
    made = edit_model(client, model, OPERATIONS[operation])
    assert made["way"] == ("recompute" if "analytic" in str(METHODS[method]) else "relearn")
    other = create_corrected_model(client, model, METHODS[method])
    assert describe_newest_version(client, model) == describe_newest_version(client, other)
    # Both go on alike: what later updates read is equal, too. Without the data of task 1 all parts are
    # read again, and a removed task is not learned from its parts either.
    for each in (model, other):
        if made["way"] == "recompute":
            client.call("DELETE", f"/v1/models/{each}/tasks/1/data")
        learn_batches(client, each, WEEKS[3])
    assert describe_newest_version(client, model) == describe_newest_version(client, other)


def test_an_edit_stores_nothing_of_tasks_whose_classes_have_other_numbers_alone(
    client: Rest,
) -> None:
    model = create_learned_model(client, METHODS["auto"])
    edit_model(client, model, OPERATIONS["merge"])
    parts = client.read_versions(model)[-1]["manifest"]["parts"]
    # The classes of task 3 are numbers 3 and 4 now, and were 4 and 5.
    stored = {part["name"] for part in parts if part["type"] in ("statistics", "features")}
    assert stored == {"statistics.2", "features.2"}
    memory = client.get(f"/v1/models/{model}/memory")["parts"]
    (features,) = (part for part in memory if part["type"] == "features")
    assert features["per_task"][2]["per_class"].keys() == {"4", "5"}


@pytest.mark.campaign  # test_former_edits.py reads and moves such numbers of a former edit
def test_what_an_edit_left_where_it_was_is_read_by_later_edits_and_updates(client: Rest) -> None:
    model = create_learned_model(client, METHODS["auto"])
    edit_model(client, model, OPERATIONS["merge"])
    # The next edit reads the features of task 3, and the update after it the sums.
    edit_model(
        client, model, [{"relabel": {"task": 3, "image": 0, "label": "5"}}, *OPERATIONS["drop"]]
    )
    other = create_corrected_model(client, model, METHODS["auto"])
    assert describe_newest_version(client, model) == describe_newest_version(client, other)
    for each in (model, other):
        # The totals have features of the deleted task, so that all parts are read again.
        client.call("DELETE", f"/v1/models/{each}/tasks/2/data")
        learn_batches(client, each, WEEKS[3])
    assert describe_newest_version(client, model) == describe_newest_version(client, other)


def test_a_temperature_is_not_taken_from_held_out_images_that_were_removed(client: Rest) -> None:
    model = create_learned_model(client, METHODS["ncm"], weeks=2)
    assert describe_newest_version(client, model)["temperature"]["source"] == "held-out"
    edit_model(client, model, [{"remove": {"task": 2}}])
    # The 16 images of task 1 are too few to fit one to, as they were when it was learned.
    assert describe_newest_version(client, model)["temperature"] == {"value": 1.0, "source": "none"}


@pytest.mark.campaign  # the model without images or features, below, is renamed in the same way
def test_sums_go_on_after_their_classes_got_other_names_alone(client: Rest) -> None:
    method = {**METHODS["auto"], "keep": "sums"}
    names = [make_model_name() for _ in range(2)]
    for name in names:
        create_small_model(client, name, method, training_data_days=0)
        learn_batches(client, name, WEEKS[0])
    made = edit_model(client, names[0], [{"rename": {"from": "0", "to": "zero"}}])
    assert made["way"] == "rename"
    for name in names:
        learn_batches(client, name, WEEKS[1])
    renamed, other = (describe_newest_version(client, name) for name in names)
    assert renamed["parts"] == other["parts"]
    assert renamed["classes"] == ["zero", *other["classes"][1:]]


def draw_operations(client: Rest, model: str, random: Random) -> list[Json]:
    """Draw one to three operations that fit a model as it is."""
    tasks = client.items(f"/v1/models/{model}/tasks")
    known = sorted({name for task in tasks for name in task["classes"]})
    task = random.choice(tasks)
    part, size = random.choice([("train", task["n_train"]), ("held_out", task["n_held_out"])])
    image = {"task": task["number"], "part": part, "image": random.randrange(size)}
    # A batch needs training images of each class that it has held-out images of.
    labels = sorted(task["classes"]) if part == "held_out" else [*known, f"new {random.random()}"]
    first, second = random.sample(known, 2)
    return random.choice(
        [
            [{"relabel": {**image, "label": random.choice(labels)}}],
            [{"remove": image}],
            [{"rename": {"from": first, "to": f"named {random.random()}"}}],
            [{"merge": {"from": [first], "into": second}}] if len(known) > 3 else [],
            [{"drop": {"class": first}}] if len(known) > 4 else [],
        ]
    )


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(200))
def test_five_drawn_edits_end_as_the_corrected_batches(client: Rest, seed: int) -> None:
    random = Random(seed)
    method = METHODS[random.choice(["ridge", "lda", "ncm", "auto"])]
    model = create_learned_model(client, method)
    made = 0
    while made < 5:
        operations = draw_operations(client, model, random)
        try:
            made += bool(operations) and edit_model(client, model, operations)["version"] > 0
        except (Invalid, AssertionError) as error:
            # A task would lose its last training image, or nothing would change.
            assert "no training image left" in str(error) or "change no image" in str(error)
    other = create_corrected_model(client, model, method)
    assert describe_newest_version(client, model) == describe_newest_version(client, other)


def test_an_edit_is_previewed_measured_and_undone(client: Rest) -> None:
    model = create_learned_model(client, METHODS["auto"], weeks=2)
    path, task = f"/v1/models/{model}/edits", f"/v1/models/{model}/tasks/2"
    before = read_accuracies(client, model)
    operations = [
        {"rename": {"from": "2", "to": "two"}},
        {"relabel": {"task": 2, "part": "held_out", "image": 0, "label": "3"}},
    ]
    plan = client.call("POST", f"{path}?validate=only", json={"operations": operations}).json()
    assert plan == {
        "parent": 2,
        "way": "recompute",
        "approximation": None,
        "tasks": [2],
        "learned_again": [2],
        "classes_before": 4,
        "classes_after": 4,
        "operations": 2,
        "can_undo": True,
    }
    assert client.get(path)["items"] == []
    made = edit_model(client, model, operations, reason="typing errors")
    assert made["images"] == {"relabelled": 1, "removed": 0} and made["version"] == 3
    assert client.get(task)["classes"] == {"3": 33, "two": 31}
    former = client.get(f"/v1/models/{model}/class-aliases")["items"]
    assert [(one["name"], one["to"]) for one in former] == [("2", "two")]
    # Older versions are counted by the new labels: an answer of the former name is right, and one
    # image has another label.
    after = read_accuracies(client, model)
    assert abs(after[2][2] - before[2][2]) in (0, 1 / 16) and after[3][2] > 0.5
    # Its cell says so, and the task still names the version that learned it.
    marks = client.get(f"/v1/models/{model}/metrics")["marks"]
    assert marks == [{"version": 2, "task": 2, "mark": "labels edited", "counted_again": True}]
    edited = client.get(task)
    assert edited["version"] == 2 and edited["accuracy_when_learned"] == after[2][2]
    report = edited["report"]["data"]
    assert report["balance"] == {
        "3": {"images": 33, "held_out": 9},
        "two": {"images": 31, "held_out": 7},
    }
    assert report["imbalance_ratio"] == 1.06 and edited["report"]["classes"]["new"] == ["two", "3"]
    undone = client.call("POST", f"{path}/1/undo", json={"reason": "they were right"}).json()
    assert undone["undone_at"] is not None
    assert client.call("POST", f"{path}/1/undo").json() == undone
    assert client.get(task)["classes"] == {"2": 32, "3": 32}
    assert client.get(f"/v1/models/{model}/class-aliases")["items"] == []
    assert client.get(f"/v1/models/{model}/metrics")["marks"] == []
    assert client.get(task)["report"]["data"]["balance"].keys() == {"2", "3"}
    assert {version: read_accuracies(client, model)[version] for version in before} == before
    shown = client.get(f"/v1/models/{model}")
    assert (shown["aliases"]["production"], shown["production_follows"]) == (2, True)
    # The lineage continues from the version before, as if nothing had been.
    other = create_learned_model(client, METHODS["auto"], weeks=2)
    for each in (model, other):
        learn_batches(client, each, WEEKS[2])
    assert describe_newest_version(client, model) == describe_newest_version(client, other)


def read_accuracies(client: Rest, model: str) -> dict[int, dict[int, float]]:
    """Return the accuracy by version and task."""
    found = client.get(f"/v1/models/{model}/metrics")
    tasks = [column["task"] for column in found["columns"]]
    rows = zip(found["rows"], found["accuracy_matrix"], strict=True)
    return {row["version"]: dict(zip(tasks, cells, strict=True)) for row, cells in rows}


def test_a_class_gets_another_name_though_neither_images_nor_features_are_kept(
    client: Rest,
) -> None:
    name = make_model_name()
    create_small_model(client, name, METHODS["er"], training_data_days=0)
    learn_batches(client, name, *WEEKS[:2])
    newest = client.read_versions(name)[-1]["manifest"]
    made = edit_model(client, name, [{"rename": {"from": "0", "to": "zero"}}])
    assert (made["way"], made["version"], made["parent"]) == ("rename", 3, 2)
    renamed = client.read_versions(name)[-1]["manifest"]
    assert renamed["classes"] == ["zero", "1", "2", "3"]
    assert renamed["parts"] == newest["parts"]
    found = read_accuracies(client, name)
    assert found[3] == found[2]
    assert client.get(f"/v1/models/{name}/tasks/1")["classes"] == {"1": 32, "zero": 32}
    assert client.get(f"/v1/models/{name}/metrics")["marks"] == []  # other names count alike
    # The next batch may use either name, and the next version is measured on the renamed class.
    learn_batches(client, name, WEEKS[2])
    assert read_accuracies(client, name)[4].keys() == {1, 2, 3}


@pytest.mark.parametrize(
    "method",
    [
        # tests/e2e/test_forgetting.py looks for what is left of images that `auto` has purged.
        pytest.param("auto", marks=pytest.mark.campaign),
        "er",
    ],
)
def test_older_versions_lose_what_they_hold_of_removed_images_on_request(
    client: Rest, method: str, running: RunningService
) -> None:
    # No other model has these batches, so that nothing else keeps their files.
    model = create_learned_model(client, METHODS[method], weeks=0)
    for batch in WEEKS[:2]:
        names = list(files := unpack_archive(batch))
        learn_batches(
            client, model, pack_zip({n: files[n] for n in names if n != names[len(method)]})
        )
    task = client.get(f"/v1/models/{model}/tasks/1/images?split=train&limit=200")
    paths = [image["path"] for image in task["items"] if image["label"] == "0"]
    made = edit_model(client, model, [{"remove": {"name": path}} for path in paths[:2]])
    assert made["images"] == {"relabelled": 0, "removed": 2}
    assert (
        made["undo_until"] is None and made["still_in_versions"] == [1, 2][: 1 + (method == "er")]
    )
    before = describe_newest_version(client, model)
    path = f"/v1/models/{model}/edits/1"
    purged = client.call("POST", f"{path}/purge").json()
    assert purged["still_in_versions"] == []
    assert client.call("POST", f"{path}/purge").json() == purged
    assert describe_newest_version(client, model) == before
    # Its files were replaced, and the former ones are gone.
    (files,) = made["files"]
    stored = {file.name for file in list_live_files(running.data_dir / "store")}
    assert files["after"]["train"] in stored and files["before"]["train"] not in stored
    learn_batches(client, model, WEEKS[2])


def test_a_later_task_is_edited_after_an_edit_that_learned_it_again(client: Rest) -> None:
    model = create_learned_model(client, METHODS["er"], weeks=2)
    first = edit_model(client, model, [{"relabel": {"task": 1, "image": 0, "label": "odd"}}])
    second = edit_model(client, model, [{"relabel": {"task": 2, "image": 0, "label": "3"}}])
    # No version has the edited task 1 alone, so it is learned again as well.
    assert (first["way"], second["way"]) == ("relearn", "relearn")
    # All that a later update reads is in parts whose digests are compared.
    other = create_corrected_model(client, model, METHODS["er"])
    assert describe_newest_version(client, model) == describe_newest_version(client, other)


def test_a_repeated_removal_is_done_once_and_a_later_one_needs_its_version(client: Rest) -> None:
    model = create_learned_model(client, METHODS["auto"], weeks=1)
    path = f"/v1/models/{model}/edits"
    body = {"operations": [{"remove": {"task": 1, "image": 0}}], "parent": 1}
    headers = {"Idempotency-Key": "once"}
    first = client.call("POST", path, json=body, headers=headers).json()
    assert client.wait(first["job"]).state == "succeeded"
    again = client.call("POST", path, json=body, headers=headers)
    assert again.json() == first and again.headers["Idempotency-Replayed"] == "true"
    with pytest.raises(Conflict, match="continues from version 2 now"):
        client.call("POST", path, json=body)
    assert client.get(f"/v1/models/{model}/tasks/1")["n_train"] == 47
    with pytest.raises(Conflict, match="An edit is not retried"):
        client.call("POST", f"/v1/jobs/{first['job']}/retry")


def delete_task_data(client: Rest, model: str) -> None:
    """Delete the images of a task that the edit changes."""
    client.call("DELETE", f"/v1/models/{model}/tasks/1/data")


def roll_production_back(client: Rest, model: str) -> None:
    """Move the lineage back to a version that was not taught a task of the edit."""
    client.call("POST", f"/v1/models/{model}/aliases/production/rollback", json={"version": 1})


@pytest.mark.parametrize(
    "happens",
    [
        # The next test deletes data that no other model has.
        pytest.param(delete_task_data, marks=pytest.mark.campaign),
        roll_production_back,
    ],
)
def test_an_edit_whose_data_or_line_changes_meanwhile_fails_and_changes_nothing(
    client: Rest, holder: Holder, happens: Callable[[Rest, str], None]
) -> None:
    model = create_learned_model(client, METHODS["auto"], weeks=2)
    path = f"/v1/models/{model}/edits"
    operations = [{"relabel": {"task": number, "image": 0, "label": "1"}} for number in (1, 2)]
    holder.arm("edit-finished")
    sent = client.call("POST", path, json={"operations": operations}).json()
    holder.wait()
    with pytest.raises(Conflict, match="Edit 1 is running"):
        client.call("POST", path, json={"operations": operations})
    classes = [task["classes"] for task in client.items(f"/v1/models/{model}/tasks")]
    happens(client, model)
    holder.release()
    end = client.wait(sent["job"])
    assert end.state == "failed" and end.error is not None and end.error.kind == "data"
    assert [task["classes"] for task in client.items(f"/v1/models/{model}/tasks")] == classes
    assert len(client.read_versions(model)) == 3
    assert client.get(f"{path}/1")["version"] is None


def keep_images(batch: bytes, without: str) -> bytes:
    """Return a batch without images that end in a text, which no other test sends."""
    return pack_zip(
        {name: data for name, data in unpack_archive(batch).items() if not name.endswith(without)}
    )


def test_an_edit_fails_at_once_if_data_is_deleted_that_no_other_model_has(
    client: Rest, holder: Holder
) -> None:
    model = create_learned_model(client, METHODS["auto"], weeks=0)
    learn_batches(client, model, *(keep_images(batch, "3.png") for batch in WEEKS[:2]))
    holder.arm("edit-finished")
    operations = [{"relabel": {"task": number, "image": 0, "label": "1"}} for number in (1, 2)]
    body = {"operations": operations}
    sent = client.call("POST", f"/v1/models/{model}/edits", json=body).json()
    holder.wait()
    delete_task_data(client, model)
    holder.release()
    end = client.wait(sent["job"], 60)
    assert end.state == "failed" and end.error is not None and end.error.kind == "data"
    assert "deleted" in str(end.error)


def test_files_of_an_edit_that_were_deleted_meanwhile_are_stored_again(
    client: Rest, holder: Holder, running: RunningService
) -> None:
    model = create_learned_model(client, METHODS["auto"], weeks=0)
    learn_batches(client, model, keep_images(WEEKS[0], "4.png"))
    store = running.data_dir / "store"
    before = set(list_live_files(store))
    holder.arm("edit-finished")
    # No other test makes the same files, which would be there already.
    body = {"operations": [{"relabel": {"task": 1, "image": 3, "label": "1"}}]}
    sent = client.call("POST", f"/v1/models/{model}/edits", json=body).json()
    holder.wait()
    # As another model's edit does that replaces the same files.
    new = set(list_live_files(store)) - before
    for path in new:
        path.unlink()
    holder.release()
    assert client.wait(sent["job"], 60).state == "succeeded"
    (files,) = client.get(f"/v1/models/{model}/edits/1")["files"]
    assert {*files["after"].values()} & {path.name for path in new}
    assert all(path.exists() for path in new)


def test_a_batch_that_is_learned_again_keeps_its_report(client: Rest) -> None:
    model = create_learned_model(client, METHODS["er"], weeks=2)
    reports = [client.get(f"/v1/models/{model}/tasks/{n}")["report"] for n in (1, 2)]
    assert "balance" in reports[1]["data"]
    edit_model(client, model, [{"relabel": {"task": 1, "image": 0, "label": "1"}}])
    edited = client.get(f"/v1/models/{model}/tasks/1")["report"]["data"]["balance"]
    assert [edited[name]["images"] for name in "01"] == [31, 33]
    # Task 2 is learned again from the same images.
    assert client.get(f"/v1/models/{model}/tasks/2")["report"] == reports[1]


def test_a_batch_that_waits_is_learned_after_the_edit(client: Rest, holder: Holder) -> None:
    model = create_learned_model(client, METHODS["auto"], weeks=1)
    holder.arm("edit-prepared")
    body = {"operations": OPERATIONS["relabel to a new class"]}
    sent = client.call("POST", f"/v1/models/{model}/edits", json=body).json()
    holder.wait()
    job = client.submit(model, WEEKS[2])
    holder.release()
    edited, learned = client.wait(sent["job"]), client.wait(job)
    assert [(one.state, one.version) for one in (edited, learned)] == [
        ("succeeded", 2),
        ("succeeded", 3),
    ]
    manifest = client.read_versions(model)[-1]["manifest"]
    assert (manifest["tasks"], manifest["classes"]) == ([1, 2], ["0", "1", "odd", "4", "5"])


DEATHS = [
    "edit-prepared",
    "edit-learned",
    "edit-finished",
    "part-stored",
    "publish-stored",
    "publish-uncommitted",
    "publish-committed",
    "publish-cleaned",
]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(
            point,
            # tests/faults/test_worker_deaths.py shows the other points of jobs that learn.
            marks=() if point == "publish-uncommitted" else pytest.mark.campaign,
        )
        for point in DEATHS
    ],
)
@pytest.mark.parametrize("method", ["auto", pytest.param("er", marks=pytest.mark.campaign)])
def test_a_worker_that_dies_in_an_edit_loses_nothing_and_edits_nothing_twice(
    client: Rest, kill_points: Path, method: str, point: str
) -> None:
    model, undisturbed = (create_learned_model(client, METHODS[method], weeks=1) for _ in range(2))
    operations = [OPERATIONS["relabel"][0], OPERATIONS["relabel"][2]]
    edit_model(client, undisturbed, operations)
    (kill_points / point).write_text(str(int(signal.SIGKILL)))
    edit_model(client, model, operations)
    assert not (kill_points / point).exists(), "the worker died there"
    assert describe_newest_version(client, model) == describe_newest_version(client, undisturbed)
    tasks = [client.items(f"/v1/models/{each}/tasks") for each in (model, undisturbed)]
    classes = [[task["classes"] for task in each] for each in tasks]
    assert classes[0] == classes[1] and len(client.items(f"/v1/models/{model}/edits")) == 1
