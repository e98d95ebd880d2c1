"""Two versions compared over HTTP: labels by each version's own rows, and what is said where
answers are not kept.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from core.database.tables import Model, VersionTaskResult
from tests.api.routes.test_images import change_first_task, store_dataset
from tests.openapi import check_schema

OLD, NEW = ["cat", "dog"], ["cow", "dog", "cat"]
"""The classes of the versions, in the order of their rows."""
TRUTH = ["cat", "dog"] * 6


def store_predictions(
    client: Any, tmp_path: Path, version: int, labels: list[str], known: list[str], task: int = 1
) -> None:
    """Put predictions of a version into the store and into its cell of the matrix."""
    path = tmp_path / f"answers-{version}"
    rows = np.array([known.index(label) for label in labels], np.int32)
    save_file(
        {"rows": rows, "probabilities": np.linspace(0.5, 1, len(rows)).astype(np.float16)}, path
    )
    sha256, size = client.app.state.blobs.put_file(path)
    with client.app.state.database.write() as session:
        cell = session.query(VersionTaskResult).filter_by(version=version, task=task).one()
        cell.answers, cell.answers_bytes = sha256, size


@pytest.fixture
def url(client: Any, model: str, publish: Any, tmp_path: Path) -> str:
    """A model with two versions, the second of which knows the classes in another order and one
    more.
    """
    cells = {1: (10, 12)}
    publish(model, cells=cells, manifest={"classes": OLD})
    publish(model, cells=cells, manifest={"classes": NEW})
    change_first_task(client, held_out_sha256=store_dataset(client, tmp_path))
    store_predictions(client, tmp_path, 1, ["cat", "dog"] * 5 + ["dog", "cat"], OLD)
    store_predictions(client, tmp_path, 2, ["cow", "dog"] * 2 + ["cat", "dog"] * 4, NEW)
    return f"/v1/models/{model}/compare"


def test_versions_are_compared_by_label_whatever_their_rows(client: Any, url: str) -> None:
    found = client.get(f"{url}?a=1&b=2").json()
    check_schema(client, "CompareOut", found)
    totals = {
        k: found["totals"][k] for k in ("n", "both_right", "negative", "positive", "both_wrong")
    }
    assert totals == {"n": 12, "both_right": 8, "negative": 2, "positive": 2, "both_wrong": 0}
    assert found["totals"]["nfr"] == 2 / 12 and found["totals"]["mcnemar_p"] == 1.0
    by_class = {one["label"]: (one["negative"], one["positive"]) for one in found["classes"]}
    assert by_class == {"cat": (2, 1), "dog": (0, 1)}
    assert found["confusion"]["labels"] == ["cat", "cow", "dog"]
    assert found["confusion"]["b"] == [[4, 2, 0], [0, 0, 0], [0, 0, 6]]
    assert found["pairs"][0] == {"task": None, "label": "cat", "answer": "cow", "a": 0, "b": 2}
    assert {"path": "classes", "a": OLD, "b": NEW} in found["manifest"]


def test_the_other_way_round_flips_change_their_sign(client: Any, url: str) -> None:
    there, back = (client.get(f"{url}?a={a}&b={b}").json()["totals"] for a, b in ((1, 2), (2, 1)))
    assert (there["negative"], there["positive"]) == (back["positive"], back["negative"])
    same = client.get(f"{url}?a=2&b=production").json()
    assert same["totals"]["negative"] == same["totals"]["positive"] == 0 and same["recipe"] == []


def test_images_come_in_pages_with_both_answers_and_their_picture(client: Any, url: str) -> None:
    first = client.get(f"{url}/images?a=1&b=2&kind=negative&limit=1").json()
    check_schema(client, "ComparedImagePage", first)
    rest = client.get(
        f"{url}/images?a=1&b=2&kind=negative&limit=1&cursor={first['next_cursor']}"
    ).json()
    found = first["items"] + rest["items"]
    assert [one["index"] for one in found] == [0, 2] and rest["next_cursor"] is None
    assert {(one["a"]["label"], one["b"]["label"]) for one in found} == {("cat", "cow")}
    assert found[0]["a"]["probability"] == 0.5
    assert client.get(found[0]["image"]).headers["content-type"] == "image/png"
    dogs = client.get(f"{url}/images?a=1&b=2&kind=positive&class=dog").json()
    assert dogs["total"] == 1 and dogs["items"][0]["index"] == 11
    assert client.get(f"{url}/images?a=1&b=2&class=cow").status_code == 422
    assert client.get(f"{url}/images?a=1&b=2&cursor=WyIxLi0xIl0").status_code == 422


def test_a_version_from_before_says_what_it_lacks_and_what_to_do(client: Any, url: str) -> None:
    with client.app.state.database.write() as session:
        session.query(VersionTaskResult).update({"answers": None, "answers_bytes": None})
    answer = client.get(f"{url}?a=1&b=2")
    problem = answer.json()
    assert answer.status_code == 409 and problem["type"] == "/problems/answers-missing"
    assert problem["missing"] == [{"version": 1, "task": 1}, {"version": 2, "task": 1}]
    said = "Version 1 has no predictions on task 1: it was measured before predictions were stored."
    assert said in problem["detail"]
    assert "The next job makes and stores them" in problem["detail"]  # of version 2, the head
    assert client.get(f"{url}/images?a=1&b=2").status_code == 409


def test_what_is_not_there_is_404_and_what_is_not_kept_410(client: Any, url: str) -> None:
    assert client.get(f"{url}?a=1&b=9").status_code == 404
    assert client.get(f"{url}?a=1&b=2&task=7").status_code == 404
    assert client.get(f"{url}?a=1").status_code == 422
    change_first_task(client, held_out_deleted_at=1.0)
    with client.app.state.database.write() as session:
        session.query(Model).update({"held_out": "counts"})
    assert client.get(f"{url}?a=1&b=2&task=1").status_code == 410
    assert client.get(f"{url}?a=1&b=2").json()["left_out"][0]["reason"] == "counts_only"


def test_damaged_answers_are_named(client: Any, url: str) -> None:
    with client.app.state.database.write() as session:
        cell = session.query(VersionTaskResult).filter_by(version=2).one()
        cell.answers = "0" * 64
    answer = client.get(f"{url}?a=1&b=2")
    assert answer.status_code == 500
    assert "What version 2 answered on task 1 is damaged" in answer.json()["detail"]
