"""Training images in a model's memory, over HTTP: counts and deletion."""

import numpy as np
import pytest
from sqlalchemy import select

from core.contract.part_types import PRIVATE_TYPES
from core.database.tables import AuditEntry, VersionPart
from core.models import memory
from tests import openapi


def build_buffer_tensors(tasks, labels, **more):
    """Return the tensors of a buffer."""
    n = len(labels)
    numbers = {"labels": np.array(labels, np.int64), "tasks": np.array(tasks, np.int64)}
    return {"images": np.full((n, 8, 8, 3), 7, np.uint8), **numbers, **more}


@pytest.fixture
def remembering(model, publish):
    """Create two versions with buffers; the second also has a part of the method's own."""
    weights = {
        "head": {"head.weight": np.ones((2, 5), np.float32), "head.bias": np.zeros(2, np.float32)}
    }
    publish(
        model,
        {**weights, "buffer": build_buffer_tensors([1, 1], [0, 1])},
        types={"buffer": "buffer"},
    )
    own = {"means": np.zeros((2, 5), np.float32)}
    buffer = build_buffer_tensors([1, 2, 2], [0, 1, 1], logits=np.zeros((3, 2), np.float32))
    publish(model, {**weights, "buffer": buffer, "own": own})
    return model


def find_stored_part_types(client, model, version):
    blobs = client.app.state.blobs
    with client.app.state.database.read() as session:
        parts = client.get(f"/v1/models/{model}/versions/{version}").json()["parts"]
        rows = [
            session.scalars(select(VersionPart).where(VersionPart.sha256 == p["sha256"])).first()
            for p in parts
        ]
    return {row.type: blobs.has(row.sha256) for row in rows if row is not None}


def test_the_memory_is_counted_by_task_and_class(client, remembering):
    found = client.get(f"/v1/models/{remembering}/memory").json()
    assert (found["version"], found["items"]) == (2, 3)
    buffer, own = found["parts"]
    assert (buffer["type"], buffer["items"], buffer["deleted_at"]) == ("buffer", 3, None)
    assert buffer["per_class"] == {"cat": 1, "dog": 2}
    assert buffer["per_task"] == [
        {"task": 1, "items": 1, "per_class": {"cat": 1}},
        {"task": 2, "items": 2, "per_class": {"dog": 2}},
    ]
    assert (own["type"], own["items"]) == ("own", None)
    assert found["bytes"] == buffer["bytes"] + own["bytes"] > 3 * 8 * 8 * 3
    openapi.check_schema(client, "MemoryOut", found)


@pytest.fixture
def sharing(model, publish):
    """Create two versions whose images are in packs.

    The second one shares the packs of the first, and remembers one row of them.
    """
    first, second = (np.full((n, 8, 8, 3), n, np.uint8) for n in (2, 1))
    packs = {"buffer.images.1": {"images": first}}
    types = {"buffer.images.1": "buffer", "buffer.images.2": "buffer"}
    whole = {"labels": np.array([0, 1]), "tasks": np.array([1, 1]), "rows": np.array([0, 1])}
    publish(model, {"buffer": whole, **packs}, types=types)
    rest = {"labels": np.array([1, 1]), "tasks": np.array([2, 1]), "rows": np.array([0, 1])}
    publish(model, {"buffer": rest, **packs, "buffer.images.2": {"images": second}}, types=types)
    return model


def test_packs_of_images_are_counted_with_the_memory_that_names_them(client, sharing):
    found = client.get(f"/v1/models/{sharing}/memory").json()
    (buffer,) = found["parts"]
    assert (buffer["type"], buffer["items"], buffer["per_class"]) == ("buffer", 2, {"dog": 2})
    assert [(one["task"], one["items"]) for one in buffer["per_task"]] == [(1, 1), (2, 1)]
    parts = client.get(f"/v1/models/{sharing}/versions/2").json()["parts"]
    assert found["bytes"] == buffer["bytes"] == sum(part["bytes"] for part in parts)
    shared = {part["name"]: part["shared_with"] for part in parts if part["name"] != "buffer"}
    assert shared == {"buffer.images.1": 1, "buffer.images.2": None}


def test_packs_of_images_cannot_be_downloaded(client, sharing):
    refused = client.get(f"/v1/models/{sharing}/versions/2/files/buffer.images.1")
    assert refused.status_code == 422 and "images of the training data" in refused.json()["detail"]
    assert client.get(f"/v1/models/{sharing}/versions/2/files").json()["items"] == []


def test_deleting_the_memory_takes_its_packs_out_of_the_store(client, sharing):
    client.delete(f"/v1/models/{sharing}/memory")
    with client.app.state.database.read() as session:
        parts = session.scalars(select(VersionPart).where(VersionPart.type == "buffer")).all()
    assert len(parts) == 5 and all(part.deleted_at is not None for part in parts)
    assert not any(client.app.state.blobs.has(part.sha256) for part in parts)


def test_a_head_per_task_names_its_own_classes(client, publish):
    client.post(
        "/v1/models", json={"name": "heads", "scenario": "task", "architecture": "small-cnn"}
    )
    heads = [{"task": 1, "classes": ["cat", "dog"]}, {"task": 2, "classes": ["ant", "dog"]}]
    # A buffer has rows of the task's head, exemplars have classes counted through all heads.
    parts = {
        "buffer": build_buffer_tensors([1, 2, 2], [1, 0, 1]),
        "exemplars": build_buffer_tensors([1, 2, 2], [1, 2, 3]),
    }
    publish("heads", parts, manifest={"classes": [], "heads": heads})
    for part in client.get("/v1/models/heads/memory").json()["parts"]:
        assert part["per_class"] == {"ant": 1, "dog": 2}
        assert part["per_task"][1] == {"task": 2, "items": 2, "per_class": {"ant": 1, "dog": 1}}


@pytest.fixture
def with_features(model, publish):
    """Create two versions that keep the features of their own task.

    The features of the first version that no job reads are stored separately.
    """

    def build_feature_rows(name, labels):
        features = np.zeros((len(labels), 5), np.float32)
        keys = np.zeros((len(labels), 2), np.int64)
        return {
            f"{name}.features": features,
            f"{name}.classes": np.array(labels),
            f"{name}.keys": keys,
        }

    publish(
        model,
        {
            "features.1": build_feature_rows("1", [0, 1]),
            "features.1.rest": build_feature_rows("1.rest", [1]),
        },
    )
    publish(model, {"features.2": build_feature_rows("2", [0])})
    return model


def test_features_are_counted_for_all_tasks_that_a_version_has_learned(client, with_features):
    found = client.get(f"/v1/models/{with_features}/memory").json()
    (features,) = found["parts"]
    assert (features["type"], features["items"], found["items"]) == ("features", 4, 0)
    assert features["per_class"] == {"cat": 2, "dog": 2}
    assert [(one["task"], one["items"]) for one in features["per_task"]] == [(1, 3), (2, 1)]
    parts = [client.get(f"/v1/models/{with_features}/versions/{n}").json()["parts"] for n in (1, 2)]
    assert found["bytes"] == sum(part["bytes"] for each in parts for part in each)


def test_features_deleted_with_their_task_do_not_count(client, with_features):
    assert client.delete(f"/v1/models/{with_features}/tasks/1/data").status_code == 204
    (features,) = client.get(f"/v1/models/{with_features}/memory").json()["parts"]
    assert (features["items"], features["deleted_at"]) == (1, None)
    client.delete(f"/v1/models/{with_features}/memory")
    (features,) = client.get(f"/v1/models/{with_features}/memory").json()["parts"]
    assert (features["items"], features["bytes"]) == (0, 0) and features["deleted_at"] is not None


def test_a_model_without_memory_has_none(client, model, publish):
    publish(model)
    none = {"version": 1, "bytes": 0, "items": 0, "parts": []}
    assert client.get(f"/v1/models/{model}/memory").json() == none


def test_deleting_takes_the_images_of_all_versions_out_of_the_store(client, remembering):
    assert client.delete(f"/v1/models/{remembering}/memory").status_code == 204
    for version in (1, 2):
        kept = find_stored_part_types(client, remembering, version)
        assert not kept.pop("buffer") and all(kept.values())
    found = client.get(f"/v1/models/{remembering}/memory").json()
    buffer, own = found["parts"]
    assert (buffer["bytes"], buffer["items"], buffer["per_class"]) == (0, 0, {})
    assert buffer["deleted_at"] is not None and own["deleted_at"] is None and own["bytes"] > 0


def test_versions_stay_and_say_what_was_deleted(client, remembering):
    before = client.get(f"/v1/models/{remembering}/versions/2").json()
    client.delete(f"/v1/models/{remembering}/memory")
    after = client.get(f"/v1/models/{remembering}/versions/2").json()
    gone = {part["name"]: part.pop("deleted_at") is not None for part in after["parts"]}
    assert gone == {"head": False, "buffer": True, "own": False}
    for part in before["parts"]:
        del part["deleted_at"]
    assert after == before
    assert client.get(f"/v1/models/{remembering}/versions/2/download").status_code == 200


def test_a_second_deletion_changes_nothing(client, remembering):
    client.delete(f"/v1/models/{remembering}/memory")
    first = client.get(f"/v1/models/{remembering}/memory").json()
    assert client.delete(f"/v1/models/{remembering}/memory").status_code == 204
    assert client.get(f"/v1/models/{remembering}/memory").json() == first
    with client.app.state.database.read() as session:
        rows = session.scalars(select(AuditEntry).where(AuditEntry.action == "memory.delete")).all()
    assert [row.data["versions"] for row in rows] == [[1, 2]] and rows[0].data["bytes"] > 0


def test_bytes_that_another_model_stores_as_well_stay(client, remembering, publish):
    client.post(
        "/v1/models", json={"name": "twin", "scenario": "class", "architecture": "small-cnn"}
    )
    publish("twin", {"buffer": build_buffer_tensors([1, 1], [0, 1])})
    client.delete(f"/v1/models/{remembering}/memory")
    assert find_stored_part_types(client, "twin", 1) == {"buffer": True}
    assert client.get("/v1/models/twin/memory").json()["items"] == 2


def test_deleted_bytes_no_longer_count_as_used(client, remembering):
    before = client.get("/v1/usage").json()["items"][0]["bytes"]["versions"]
    versions = [
        client.get(f"/v1/models/{remembering}/versions/{number}").json() for number in (1, 2)
    ]
    parts = [part for version in versions for part in version["parts"]]
    sizes = [part["bytes"] for part in parts if part["type"] in PRIVATE_TYPES]
    client.delete(f"/v1/models/{remembering}/memory")
    assert client.get("/v1/usage").json()["items"][0]["bytes"]["versions"] == before - sum(sizes)


def test_another_owner_sees_and_deletes_nothing(client, remembering, key_of):
    stranger = key_of("stranger", "write")
    assert client.get(f"/v1/models/{remembering}/memory", headers=stranger).status_code == 404
    assert client.delete(f"/v1/models/{remembering}/memory", headers=stranger).status_code == 404
    assert client.get(f"/v1/models/{remembering}/memory").json()["items"] == 3


def test_deleting_needs_a_key_that_may_write(client, remembering, key_of):
    reader = key_of("admin", "read")
    assert client.get(f"/v1/models/{remembering}/memory", headers=reader).status_code == 200
    assert client.delete(f"/v1/models/{remembering}/memory", headers=reader).status_code == 403


def test_images_of_a_version_that_was_held_go_too(client, model, publish):
    publish(model)
    held = publish(model, {"buffer": build_buffer_tensors([1], [0])}, passed=False)
    assert client.delete(f"/v1/models/{model}/memory").status_code == 204
    assert find_stored_part_types(client, model, held) == {"buffer": False}


def test_a_deletion_while_the_memory_is_being_read_is_no_error(client, remembering, monkeypatch):
    counts = memory._count_images_in_replay_part

    def count_after_deletion(blobs, part):
        monkeypatch.setattr(memory, "_count_images_in_replay_part", counts)
        client.delete(f"/v1/models/{remembering}/memory")
        return counts(blobs, part)

    monkeypatch.setattr(memory, "_count_images_in_replay_part", count_after_deletion)
    answer = client.get(f"/v1/models/{remembering}/memory")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["items"], answer.json()["parts"][0]["bytes"]) == (0, 0)


def test_a_damaged_memory_is_a_problem_and_not_a_count(client, remembering):
    parts = client.get(f"/v1/models/{remembering}/versions/2").json()["parts"]
    client.app.state.blobs.delete(
        next(part["sha256"] for part in parts if part["type"] == "buffer")
    )
    answer = client.get(f"/v1/models/{remembering}/memory")
    assert answer.status_code == 500
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_stored_images_are_never_given_out_before_or_after_the_deletion(client, remembering):
    for _ in range(2):
        answer = client.get(f"/v1/models/{remembering}/versions/2/files/buffer")
        assert answer.status_code == 422 and "cannot be downloaded" in answer.json()["detail"]
        client.delete(f"/v1/models/{remembering}/memory")


def test_the_memory_of_a_deleted_model_is_not_found(client, remembering):
    assert client.delete(f"/v1/models/{remembering}").status_code == 204
    for call in (client.get, client.delete):
        answer = call(f"/v1/models/{remembering}/memory")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")


def test_the_documentation_tells_the_shape_and_the_problems(shared):
    found = shared.get("/openapi.json").json()["paths"]["/v1/models/{model}/memory"]
    shape = found["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert shape["$ref"].endswith("/MemoryOut")
    for call in ("get", "delete"):
        assert {"401", "403", "404"} <= found[call]["responses"].keys()
    assert "204" in found["delete"]["responses"] and "200" not in found["delete"]["responses"]
