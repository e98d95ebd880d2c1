"""Realistic batches of users: new class names, copies and lists, each with its answer.

The images are scikit-learn's digits, in classes with these names. The batches differ in how they
are packed.
"""

from typing import Any

import pytest

from tests.before_after.batches import encode_png, read_digit_images
from tests.e2e import small
from tests.rest import Json, Rest

pytestmark = pytest.mark.slow


def make_digit_png(of: int, number: int) -> bytes:
    """Make a PNG of a real image of a digit."""
    return encode_png(read_digit_images(of, number, 1)[0])


def make_digit_files(folder: str, of: int, count: int = 20, first: int = 0) -> dict[str, bytes]:
    return {f"{folder}/{i}.png": make_digit_png(of, i) for i in range(first, first + count)}


def pack_files(*files: dict[str, bytes]) -> bytes:
    return small.pack_zip({name: data for part in files for name, data in part.items()})


def check_batch(client: Rest, model: str, archive: bytes, query: str = "") -> Json:
    path = f"/v1/models/{model}/tasks?validate=only{query}"
    return dict(client.call("POST", path, content=archive).json())


def learn_and_get_task(client: Rest, model: str, archive: bytes, query: str = "") -> Json:
    """Submit a batch, and return its task once its job has succeeded."""
    answer = client.call("POST", f"/v1/models/{model}/tasks{query}", content=archive).json()
    end = client.wait(answer["job"]["id"])
    assert end.state == "succeeded", end
    return client.get(f"/v1/models/{model}/tasks/{answer['task']['number']}")


def create_replay_model(client: Rest, name: str, **fields: Any) -> str:
    small.create_small_model(client, name, {"name": "er", "buffer": 20}, **fields)
    return name


@pytest.mark.campaign  # tests/core/tasks/test_batch_report.py shows it
def test_new_known_and_look_alike_classes_are_named_before_anything_is_learned(
    client: Rest,
) -> None:
    model = create_replay_model(client, "names")
    learn_and_get_task(
        client, model, pack_files(make_digit_files("t-shirt", 0), make_digit_files("pants", 1))
    )
    batch = pack_files(
        make_digit_files("tshirt", 2),
        make_digit_files("pant", 3),
        make_digit_files("pants", 1, 20, 20),
        make_digit_files("hat", 4),
        make_digit_files("Hat", 5),
    )
    answer = check_batch(client, model, batch)
    assert answer["report"]["classes"] == {
        "new": ["Hat", "hat", "pant", "tshirt"],
        "known": ["pants"],
        "look_alike": [
            {"label": "hat", "like": "Hat"},
            {"label": "pant", "like": "pants"},
            {"label": "tshirt", "like": "t-shirt"},
        ],
    }
    said = (
        "The class “tshirt” is new, and looks like “t-shirt”, which the model knows: if they are "
        "one class, give them one name."
    )
    assert any(text.startswith(said) for text in answer["warnings"])
    task = learn_and_get_task(client, model, batch)
    assert task["report"]["classes"] == answer["report"]["classes"]
    assert set(answer["warnings"]) <= set(task["warnings"])


def test_copies_and_contradictions_are_named_by_path_and_copies_dropped_if_asked(
    client: Rest,
) -> None:
    model = create_replay_model(client, "copies")
    same = {"zero/copy.png": make_digit_png(0, 3), "one/wrong.png": make_digit_png(0, 4)}
    batch = pack_files(make_digit_files("zero", 0), make_digit_files("one", 1), same)
    refused = client.wait(client.submit(model, batch))
    assert refused.state == "rejected" and refused.error is not None
    assert "“zero/4.png” is “zero” and “one/wrong.png” is “one”" in refused.error.detail
    assert "?conflicts=keep" in refused.error.detail
    kept = learn_and_get_task(client, model, batch, "?conflicts=keep")
    report = kept["report"]
    assert (report["duplicates"], report["duplicates_policy"], report["checked"]) == (
        2,
        "keep",
        "images",
    )
    assert report["duplicate_paths"] == [
        {"path": "zero/copy.png", "same_as": "zero/3.png"},
        {"path": "one/wrong.png", "same_as": "zero/4.png"},
    ]
    (conflict,) = report["conflicts"]
    assert conflict["paths"] == ["zero/4.png", "one/wrong.png"] and conflict["labels"] == [
        "zero",
        "one",
    ]
    assert conflict["picture"].startswith("data:image/jpeg;base64,")
    assert any(
        "The same image has two classes: “zero/4.png” is “zero”" in text
        for text in kept["warnings"]
    )
    dropped = learn_and_get_task(client, model, batch, "?duplicates_policy=drop&conflicts=keep")
    assert kept["classes"] == {"one": 21, "zero": 21} and dropped["classes"] == {
        "one": 21,
        "zero": 20,
    }
    assert (dropped["report"]["duplicates_policy"], dropped["report"]["duplicates_dropped"]) == (
        "drop",
        1,
    )


@pytest.mark.campaign  # tests/core/statistics/test_matrix.py shows it
def test_what_is_not_measured_is_listed_and_figures_outlive_a_deletion(client: Rest) -> None:
    model = create_replay_model(client, "measures")
    learn_and_get_task(
        client, model, pack_files(make_digit_files("zero", 0), make_digit_files("one", 1))
    )
    learn_and_get_task(
        client, model, pack_files(make_digit_files("two", 2, 1))
    )  # one image: none can be held out
    summary = client.get(f"/v1/models/{model}/metrics")["summary"]
    assert summary["unmeasured_classes"] == [{"task": 2, "class": "two"}]
    before = client.get(f"/v1/models/{model}/tasks/1")["accuracy_now"]
    assert before is not None
    client.tasks.delete_data(model, 1)
    assert client.get(f"/v1/models/{model}/tasks/1")["accuracy_now"] == before
    learn_and_get_task(client, model, pack_files(make_digit_files("three", 3)))
    task = client.get(f"/v1/models/{model}/tasks/1")
    assert task["accuracy_now"] is None and task["accuracy_when_learned"] is not None


def test_a_list_of_labels_as_a_spreadsheet_saves_it_is_learned(client: Rest) -> None:
    model = create_replay_model(client, "list")
    rows = [f"{of}/{i}.png,{name}," for of, name in ((0, "zero"), (1, "one")) for i in range(20)]
    text = "\ufeff" + "\r\n".join(["Path,Label,Split", *rows]) + "\r\n"
    task = learn_and_get_task(
        client,
        model,
        pack_files(
            make_digit_files("0", 0), make_digit_files("1", 1), {"labels.csv": text.encode()}
        ),
    )
    assert task["classes"] == {"one": 20, "zero": 20}
