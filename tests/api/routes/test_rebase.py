"""A model moves to another base over HTTP: what is learned again by itself, what must be sent, and
how both compare.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sqlalchemy import true
from starlette.testclient import TestClient

from core.database.tables import Alias, Job, Model, OwnerEvent, Task, VersionTaskResult
from core.ingest.dataset import write_image_dataset_file
from core.ingest.findings.traces import ImageFingerprints, write_image_fingerprints
from core.packaged import imagenet_base, packaged_base
from core.rebase import rebase_finish
from core.settings import Settings
from core.usage import usage_sums
from tests.api.conftest import create_api_key, create_model, serve_api
from tests.api.routes.conftest import Publish
from tests.openapi import check_schema

CLASSES, OTHER_ORDER = ["cat", "dog"], ["dog", "cat"]
TRUTH = ["cat", "dog"] * 6
LABELS = np.array([0, 1] * 6, np.int64)
RIGHT = {"cat": [6, 6], "dog": [6, 6]}
SMALL = packaged_base.PACKAGED
PHOTOS = imagenet_base.NAME


def get_database(client: Any) -> Any:
    return client.app.state.database


def store_task_files(client: Any, tmp_path: Path, seed: int) -> dict[str, Any]:
    """Put a task's files with 12 images in each part into the store, and return the columns that
    name them.
    """
    blobs = client.app.state.blobs
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 32, 32, 3), np.uint8)
    found = {}
    for part in ("train", "held_out"):
        write_image_dataset_file(
            tmp_path / part, LABELS, pixels.shape[1:], [pixels if part == "train" else pixels[::-1]]
        )
        found[f"{part}_sha256"] = blobs.put_file(tmp_path / part)[0]
    hashes = np.full((12, 2), seed, np.uint64)
    names = [f"{part}/{row}.png" for part in ("train", "test") for row in range(12)]
    write_image_fingerprints(tmp_path / "traces", ImageFingerprints(hashes, hashes, names))
    found["traces_sha256"], found["traces_bytes"] = blobs.put_file(tmp_path / "traces")
    return {**found, "n_train": 12, "n_held_out": 12, "classes": {"cat": 12, "dog": 12}}


def change_task(client: Any, model: str, number: int, **fields: Any) -> None:
    with get_database(client).write() as session:
        row = session.query(Model).filter_by(name=model).one()
        task = session.query(Task).filter_by(model_id=row.id, number=number).one()
        for name, value in fields.items():
            setattr(task, name, value)


def store_production_predictions(
    client: Any,
    tmp_path: Path,
    model: str,
    task: int,
    said: list[str],
    rows: list[str],
    truth: list[str],
    *,
    is_old: bool = False,
) -> None:
    """Put predictions of a model's production on a task into the store and into its cell, as a
    job does.

    Args:
        is_old: leave out the true rows and rankings, as before they were kept.
    """
    numbers = np.array([rows.index(label) for label in said], np.int32)
    tensors = {
        "rows": numbers,
        "probabilities": np.full(len(said), 0.9, np.float16),
        "targets": np.array([rows.index(label) for label in truth], np.int32),
        "leaders": numbers,
        "leader_counts": np.ones(len(said), np.int32),
    }
    kept = {name: tensors[name] for name in ("rows", "probabilities")} if is_old else tensors
    save_file(kept, tmp_path / "answers")
    sha256, size = client.app.state.blobs.put_file(tmp_path / "answers")
    with get_database(client).write() as session:
        row = session.query(Model).filter_by(name=model).one()
        production = session.get_one(Alias, (row.id, "production")).version
        cell = (
            session.query(VersionTaskResult)
            .filter_by(model_id=row.id, version=production, task=task)
            .one()
        )
        cell.answers, cell.answers_bytes = sha256, size


@pytest.fixture
def old(client: TestClient, model: str, publish: Publish, tmp_path: Path) -> str:
    """`birds`, which has learned two batches and keeps their images."""
    for number in (1, 2):
        cells = {task: (10, 12) for task in range(1, number + 1)}
        publish(
            model, cells=cells, per_class={task: {"cat": [5, 6], "dog": [5, 6]} for task in cells}
        )
        change_task(
            client,
            model,
            number,
            sha256=f"{number}" * 64,
            name=f"week-{number}",
            **store_task_files(client, tmp_path, number),
        )
    for task in (1, 2):
        store_production_predictions(
            client, tmp_path, model, task, ["dog", "cat", *TRUTH[2:]], CLASSES, TRUTH
        )
    return model


@pytest.fixture
def prepared_old(client: TestClient, old: str, settings: Settings) -> Path:
    """The data folder of the service that has `birds`."""
    return settings.data_dir


Arrive = Callable[..., None]


@pytest.fixture
def arrive(client: TestClient, publish: Publish, tmp_path: Path) -> Arrive:
    """Lets batches of `birds` arrive in its new model, whose head has the classes in
    another order.
    """

    def publish_learned_tasks(
        model: str, *tasks: int, said: list[str] = TRUTH, truth: list[str] = TRUTH
    ) -> None:
        for number in tasks:
            learned = len(client.get(f"/v1/models/{model}/tasks").json()["items"])
            cells = dict.fromkeys(range(1, learned + 2), (12, 12))
            publish(
                model,
                cells=cells,
                per_class=dict.fromkeys(cells, RIGHT),
                manifest={"classes": OTHER_ORDER},
            )
            files = store_task_files(client, tmp_path, number)
            change_task(client, model, learned + 1, sha256=f"{number}" * 64, **files)
        learned = len(client.get(f"/v1/models/{model}/tasks").json()["items"])
        for task in range(1, learned + 1):
            store_production_predictions(client, tmp_path, model, task, said, OTHER_ORDER, truth)

    return publish_learned_tasks


def begin_rebase(client: Any, model: str = "birds", base: Any = SMALL, **more: Any) -> Any:
    return client.post(f"/v1/models/{model}/rebase", json={"base": base, **more})


def begin_rebase_without_images(client: Any, model: str = "birds") -> Any:
    """Begin a rebase where no training images are kept any more, so that every batch must be sent."""
    for number in (1, 2):
        change_task(client, model, number, train_deleted_at=1.0)
    return begin_rebase(client, model).json()


def read_rebase(client: Any, model: str = "birds-rebased") -> Any:
    found = client.get(f"/v1/models/{model}/rebase")
    assert found.status_code == 200, found.text
    check_schema(client, "RebaseOut", found.json())
    return found.json()


def finish_rebase(client: Any, model: str, **body: Any) -> Any:
    return client.post(f"/v1/models/{model}/rebase/finish", json=body)


@pytest.mark.slow
def test_tasks_whose_images_are_kept_are_learned_from_the_same_blobs(
    client: TestClient, old: str
) -> None:
    made = begin_rebase(client, old)
    assert made.status_code == 201, made.text
    check_schema(client, "RebaseOut", made.json())
    assert made.headers["Location"] == f"/v1/models/{made.json()['new']['id']}/rebase"
    assert [
        (one["task"], one["arrival"], one["new_task"], one["standing"])
        for one in made.json()["tasks"]
    ] == [
        (1, "relearned", 1, "queued"),
        (2, "relearned", 2, "queued"),
    ]
    with get_database(client).read() as session:
        rows = session.query(Task).order_by(Task.number, Task.id).all()
        digests = [(one.train_sha256, one.held_out_sha256, one.traces_sha256) for one in rows]
        jobs = session.query(Job).filter_by(model_id=made.json()["new"]["id"]).all()
    assert digests[::2] == digests[1::2] and digests[0] != digests[2]
    assert [(one.kind, one.state, one.task_number) for one in jobs] == [
        ("learn", "queued", 1),
        ("learn", "queued", 2),
    ]


def remove_decoding(client: Any, model: str) -> None:
    """Remove how files are decoded from a model, as if it was made before this was recorded."""
    with get_database(client).write() as session:
        row = session.query(Model).filter_by(name=model).one()
        row.image = {key: value for key, value in row.image.items() if key != "decoding"}


@pytest.mark.parametrize("base", [SMALL, PHOTOS, {"model": "source", "version": 0}], ids=str)
def test_a_rebased_model_decodes_files_as_the_old_one_does(
    client: TestClient, old: str, base: Any
) -> None:
    if isinstance(base, dict):
        client.post("/v1/models", json={"name": "source", "scenario": "class"})
    made = begin_rebase(client, old, base, name="today").json()["new"]
    assert made["image"]["decoding"] == 2
    client.delete("/v1/models/today")
    remove_decoding(client, old)
    made = begin_rebase(client, old, base).json()
    assert "decoding" not in made["new"]["image"]
    same_pixels = made["new"]["image"]["size"] == 32
    assert {one["arrival"] for one in made["tasks"]} == {
        "relearned" if same_pixels else "send_again"
    }


def test_a_new_model_on_a_version_of_an_older_one_decodes_files_as_today(
    client: TestClient, old: str
) -> None:
    remove_decoding(client, old)
    given = {"name": "heir", "scenario": "class", "base": {"model": old, "version": 1}}
    given["architecture"] = client.get(f"/v1/models/{old}").json()["architecture"]
    made = client.post("/v1/models", json=given).json()
    assert made["image"] == {"size": 32, "channels": 3, "decoding": 2}
    version = client.get("/v1/models/heir/versions/0").json()
    assert version["manifest"]["image"]["decoding"] == 2


def test_shared_images_count_in_both_models(client: TestClient, old: str) -> None:
    made = begin_rebase(client, old).json()
    with get_database(client).read() as session:
        sizes = {
            one: of["bytes"]["datasets"]
            for one, of in usage_sums.sum_usage_by_model(session, true()).items()
        }
    before, after = sizes[made["old"]["id"]], sizes[made["new"]["id"]]
    assert after >= 2 * 24 * 32 * 32 * 3
    assert 0 <= before - after < 4000, "the old one has its answers too"


def test_images_that_would_exceed_the_quota_are_refused(
    settings: Settings, prepared_old: Path
) -> None:
    limited = settings.model_copy(update={"max_owner_bytes": 200_000, "data_dir": prepared_old})
    with serve_api(limited) as client:
        refused = begin_rebase(client)
        assert refused.status_code == 429 and refused.json()["type"] == "/problems/storage-full", (
            refused.text
        )
        assert client.get("/v1/models?q=rebased").json()["items"] == []


def test_batches_are_sent_again_where_the_base_reads_other_images(
    client: TestClient, old: str
) -> None:
    change_task(client, old, 2, report={"duplicates_policy": "drop"})
    made = begin_rebase(client, old, PHOTOS).json()
    assert made["new"]["base"] == PHOTOS and made["new"]["image"]["size"] == 224
    assert [
        (one["name"], one["arrival"], one["sha256"], one["duplicates_policy"])
        for one in made["tasks"]
    ] == [
        ("week-1", "send_again", "1" * 64, "keep"),
        ("week-2", "send_again", "2" * 64, "drop"),
    ]
    assert made["ready"] is False and "brings the weights" in made["missing"][0]["detail"]
    assert "week-1" in made["missing"][1]["detail"]
    assert client.get("/v1/models/birds-rebased").json()["state"] == "fetching"


def test_the_new_model_is_as_the_old_one_but_for_its_base(client: TestClient, old: str) -> None:
    settings = {
        "recipe": {"method": "icarl", "seed": 7},
        "gate": {"forgotten": None, "max_forgetting": 0.1},
    }
    settings |= {"answers": {"precision": 0.9}, "on_failed": "stop", "training_data_days": 3.0}
    settings |= {"description": "Birds of the garden", "tags": ["garden"]}
    assert client.patch(f"/v1/models/{old}", json=settings).status_code == 200
    assert begin_rebase(client, old, name="better").status_code == 201
    before, after = (client.get(f"/v1/models/{name}").json() for name in (old, "better"))
    same = (
        "scenario",
        "gate",
        "answers",
        "keep_training_data",
        "held_out",
        "on_held",
        "on_rejected",
        "on_failed",
    )
    for field in (*same, "training_data_days", "allow_lost_classes", "description", "tags"):
        assert after[field] == before[field], field
    assert (after["recipe"]["method"]["name"], after["recipe"]["seed"]) == ("icarl", 7)
    assert (
        after["base"] == SMALL
        and after["rebased_from"] == before["id"]
        and before["rebased_from"] is None
    )


def test_a_recipe_that_the_base_does_not_take_gives_way_to_the_default_with_its_seed(
    client: TestClient, old: str
) -> None:
    with get_database(client).write() as session:
        session.query(Model).update({"recipe": {"method": {"name": "dlcft"}, "seed": 5}})
    made = begin_rebase(client, old, PHOTOS).json()
    assert any(
        "The recipe of birds does not work on this base" in text for text in made["warnings"]
    )
    recipe = client.get("/v1/models/birds-rebased").json()["recipe"]
    assert (recipe["method"]["name"], recipe["seed"]) == ("analytic", 5)


@pytest.mark.parametrize(
    ("base", "status", "said"),
    [
        ("perennial/resnet200", 422, "There is no base"),
        ("bas_0123456789abcdefghjkmnpqrs", 422, "There is no base"),
        ("random", 422, "is no base to move to"),
        ("pretrained", 422, "is no base to move to"),
        ({"model": "nobody", "version": 1}, 404, "There is no model"),
        ({"model": "birds", "version": 9}, 422, "has no version 9"),
    ],
)
def test_a_base_that_is_not_there_is_refused(
    client: TestClient, old: str, base: Any, status: int, said: str
) -> None:
    refused = begin_rebase(client, old, base)
    assert refused.status_code == status and said in refused.json()["detail"], refused.text
    assert client.get("/v1/models?q=rebased").json()["items"] == []


def test_the_base_that_the_model_has_is_refused(client: TestClient, old: str) -> None:
    with get_database(client).write() as session:
        session.query(Model).update({"base": SMALL})
    refused = begin_rebase(client, old)
    assert (
        refused.status_code == 422 and "starts from this base already" in refused.json()["detail"]
    )


def test_a_model_that_has_learned_nothing_is_refused(client: TestClient, model: str) -> None:
    refused = begin_rebase(client, model)
    assert refused.status_code == 409 and "learned no batch yet" in refused.json()["detail"]
    assert client.get(f"/v1/models/{model}/rebase").status_code == 404


def test_of_a_model_one_rebase_is_open(client: TestClient, old: str) -> None:
    made = begin_rebase(client, old).json()
    refused = begin_rebase(client, old)
    assert refused.status_code == 409 and refused.json()["new"] == made["new"]["id"]
    assert client.delete("/v1/models/birds-rebased").status_code == 204
    assert begin_rebase(client, old).status_code == 201


def test_a_name_that_is_taken_is_refused_and_the_default_is_free(
    client: TestClient, old: str
) -> None:
    create_model(client, "birds-rebased")
    assert begin_rebase(client, old, name="birds-rebased").json()["type"] == "/problems/name-taken"
    assert begin_rebase(client, old).json()["new"]["name"] == "birds-rebased-2"


def test_the_same_key_makes_one_new_model(client: TestClient, old: str) -> None:
    headers = {"Idempotency-Key": "once"}
    first, again = (
        client.post(f"/v1/models/{old}/rebase", json={"base": SMALL}, headers=headers) for _ in "ab"
    )
    assert first.json() == again.json() and again.headers["Idempotency-Replayed"] == "true"
    assert len(client.get("/v1/models?q=rebased").json()["items"]) == 1


def test_both_are_compared_on_the_same_images_whatever_their_rows(
    client: TestClient, old: str, arrive: Arrive
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 2, 1, said=[*TRUTH[:-1], "cat"])
    found = read_rebase(client)
    assert [(one["task"], one["arrival"], one["new_task"]) for one in found["tasks"]] == [
        (1, "sent", 2),
        (2, "sent", 1),
    ]
    for one in found["tasks"]:
        flips = one["flips"]
        assert (flips["n"], flips["both_right"], flips["negative"], flips["positive"]) == (
            12,
            9,
            1,
            2,
        )
    totals = found["totals"]
    assert (totals["old"]["correct"], totals["new"]["correct"], totals["flips"]["n"]) == (
        20,
        22,
        24,
    )
    low, high = totals["new"]["interval"]
    assert low < totals["new"]["accuracy"] == 22 / 24 < high
    assert totals["flips"]["mcnemar_p"] == pytest.approx(0.6875)
    assert found["ready"] is True and found["missing"] == [] and "rebase/finish" in found["next"]
    assert read_rebase(client, "birds") == found, "the old model's name shows the same"


def test_answers_from_before_true_rows_were_kept_are_compared_too(
    client: TestClient, old: str, arrive: Arrive, tmp_path: Path
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1, 2)
    for task in (1, 2):
        store_production_predictions(
            client, tmp_path, old, task, [*TRUTH[:-1], "cat"], CLASSES, TRUTH, is_old=True
        )
    found = read_rebase(client)
    assert found["ready"] and [one["flips"]["positive"] for one in found["tasks"]] == [1, 1]


def test_production_moves_by_name_once_everything_is_compared(
    client: TestClient, old: str, arrive: Arrive
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1, 2)
    before, after = (
        client.get(f"/v1/models/{name}").json()["id"] for name in (old, "birds-rebased")
    )
    ends = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    page = {
        "name": "page",
        "scope": "predict",
        "model": old,
        "alias": "production",
        "expires_at": ends,
    }
    assert client.post("/v1/keys", json=page).json()["bound"]["model_id"] == before
    moved = finish_rebase(client, "birds-rebased", reason="it knows photos")
    assert moved.status_code == 200, moved.text
    found = moved.json()
    assert (found["state"], found["new"]["name"], found["old"]["name"]) == (
        "finished",
        "birds",
        "birds-before-rebase",
    )
    assert found["totals"]["flips"]["n"] == 24
    assert client.get("/v1/models/birds").json()["id"] == after
    assert client.get("/v1/models/birds-before-rebase").json()["id"] == before
    bound = client.get("/v1/keys").json()["items"][-1]["bound"]
    assert (bound["model"], bound["model_id"]) == ("birds", after), (
        "a page that asks by the name goes on"
    )
    [row] = client.get("/v1/audit?action=model.finish-rebase").json()["items"]
    assert (row["model"], row["data"]["model"], row["data"]["reason"]) == (
        after,
        before,
        "it knows photos",
    )
    with get_database(client).read() as session:
        event = session.query(OwnerEvent).order_by(OwnerEvent.id.desc()).first()
        assert (event.model_id, event.type, event.data["cause"]) == (after, "alias", "rebase")
    assert finish_rebase(client, after).status_code == 409, "it is there already"


def test_production_does_not_move_while_something_is_missing(
    client: TestClient, old: str, arrive: Arrive
) -> None:
    begin_rebase_without_images(client)
    refused = finish_rebase(client, "birds-rebased", missing="allow")
    assert (
        refused.status_code == 409
        and "nothing in production that could answer" in refused.json()["detail"]
    )
    arrive("birds-rebased", 1)
    refused = finish_rebase(client, "birds-rebased")
    assert refused.status_code == 409 and [one["task"] for one in refused.json()["missing"]] == [2]
    assert "week-2" in refused.json()["detail"]
    assert client.get("/v1/models/birds").json()["rebased_from"] is None
    assert finish_rebase(client, "birds-rebased", missing="allow").json()["state"] == "finished"


def test_the_old_models_name_does_not_finish_it(
    client: TestClient, old: str, arrive: Arrive
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1, 2)
    refused = finish_rebase(client, old)
    assert refused.status_code == 409 and "birds-rebased/rebase/finish" in refused.json()["detail"]


def test_images_with_other_labels_are_not_compared(
    client: TestClient, old: str, arrive: Arrive
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1, 2, truth=[*TRUTH[2:], "dog", "cat"])
    found = read_rebase(client)
    assert found["totals"]["flips"]["n"] == 0 and not found["ready"]
    assert all("other labels" in one["detail"] and one["flips"] is None for one in found["tasks"])
    assert finish_rebase(client, "birds-rebased").status_code == 409


def test_images_of_other_paths_are_not_compared(
    client: TestClient, old: str, arrive: Arrive, tmp_path: Path
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1, 2)
    hashes = np.zeros((12, 2), np.uint64)
    write_image_fingerprints(
        tmp_path / "other",
        ImageFingerprints(hashes, hashes, [f"elsewhere/{row}.png" for row in range(24)]),
    )
    change_task(
        client,
        "birds-rebased",
        1,
        traces_sha256=client.app.state.blobs.put_file(tmp_path / "other")[0],
    )
    found = read_rebase(client)
    assert (
        "Other images are held out" in found["tasks"][0]["detail"]
        and found["totals"]["flips"]["n"] == 12
    )
    assert not found["ready"]


def test_models_that_keep_counts_alone_are_compared_by_them(
    client: TestClient, old: str, arrive: Arrive
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1, 2)
    with get_database(client).write() as session:
        session.query(VersionTaskResult).update({"answers": None, "answers_bytes": None})
    found = read_rebase(client)
    assert found["ready"] and found["totals"]["flips"]["n"] == 0
    assert [
        (one["old"]["correct"], one["new"]["correct"], one["flips"]) for one in found["tasks"]
    ] == [(10, 12, None)] * 2


def test_an_archive_that_was_sent_twice_counts_once(
    client: TestClient, old: str, arrive: Arrive
) -> None:
    change_task(client, old, 2, sha256="1" * 64)
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1)
    found = read_rebase(client)
    assert found["ready"] and found["totals"]["flips"]["n"] == 12
    assert found["tasks"][1]["detail"] == "Its archive is that of task 1: it is counted there."


def test_what_clients_meet_and_batches_of_other_archives_are_named(
    client: TestClient, old: str, arrive: Arrive
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 2)
    change_task(client, "birds-rebased", 1, sha256="9" * 64)
    client.put("/v1/models/birds/aliases/stable", json={"version": 1})
    said = " ".join(read_rebase(client)["warnings"])
    assert "birds-rebased has no alias stable, as birds has" in said
    assert "Task 1 of birds-rebased came from other archives than birds has learned" in said
    change_task(client, "birds-rebased", 1, sha256="2" * 64)
    with get_database(client).write() as session:
        session.query(Model).update({"scenario": "task"})
        session.query(VersionTaskResult).update({"answers": None, "answers_bytes": None})
    said = " ".join(read_rebase(client)["warnings"])
    assert (
        "Tasks have other numbers in birds-rebased, by which clients ask for their heads: 2 is 1."
        in said
    )
    assert "other archives" not in said


def test_production_that_moves_while_both_are_compared_is_not_replaced(
    client: TestClient, old: str, arrive: Arrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1, 2)
    real = rebase_finish.compare_rebased_models

    def compare_after_promotion(*arguments: Any) -> Any:
        found = real(*arguments)
        assert (
            client.put("/v1/models/birds/aliases/production", json={"version": 1}).status_code
            == 200
        )
        return found

    monkeypatch.setattr(rebase_finish, "compare_rebased_models", compare_after_promotion)
    refused = finish_rebase(client, "birds-rebased", missing="allow")
    assert refused.status_code == 409 and "look at the comparison again" in refused.json()["detail"]
    assert client.get("/v1/models/birds-rebased").status_code == 200


def test_the_old_model_takes_its_place_back(client: TestClient, old: str, arrive: Arrive) -> None:
    begin_rebase_without_images(client)
    arrive("birds-rebased", 1, 2)
    before = client.get("/v1/models/birds").json()["id"]
    finish_rebase(client, "birds-rebased")
    back = finish_rebase(client, "birds-before-rebase", reason="too slow")
    assert back.status_code == 200, back.text
    assert (back.json()["state"], back.json()["new"]["name"]) == ("open", "birds-rebased")
    assert client.get("/v1/models/birds").json()["id"] == before
    assert finish_rebase(client, before).status_code == 409, "the same again changes nothing"
    assert finish_rebase(client, "birds-rebased").json()["state"] == "finished"


def test_without_the_old_model_the_new_one_goes_on_and_may_take_the_name(
    client: TestClient, old: str
) -> None:
    begin_rebase(client, old)
    assert client.delete(f"/v1/models/{old}").status_code == 204
    with get_database(client).read() as session:
        new = session.query(Model).filter_by(name="birds-rebased").one()
        tasks = session.query(Task).filter_by(model_id=new.id).all()
    blobs = client.app.state.blobs
    assert all(blobs.has(one.train_sha256) and blobs.has(one.held_out_sha256) for one in tasks)
    found = read_rebase(client)
    assert found["old"]["deleted"] and "was deleted" in found["next"] and found["tasks"] == []
    assert finish_rebase(client, "birds-rebased").status_code == 409


def test_without_the_new_model_the_old_one_keeps_its_images(client: TestClient, old: str) -> None:
    begin_rebase(client, old)
    assert client.delete("/v1/models/birds-rebased").status_code == 204
    with get_database(client).read() as session:
        tasks = (
            session.query(Task)
            .join(Model, Model.id == Task.model_id)
            .filter(Model.name == "birds")
            .all()
        )
    blobs = client.app.state.blobs
    assert len(tasks) == 2 and all(
        blobs.has(one.train_sha256) and blobs.has(one.held_out_sha256) for one in tasks
    )
    assert client.get(f"/v1/models/{old}/rebase").status_code == 404


def test_images_that_are_deleted_in_one_model_stay_in_the_other(
    client: TestClient, old: str
) -> None:
    begin_rebase(client, old)
    with get_database(client).read() as session:
        digest = session.query(Task).filter_by(number=1).first().train_sha256
    blobs = client.app.state.blobs
    assert client.delete(f"/v1/models/{old}/tasks/1/data").status_code == 204
    assert blobs.has(digest)
    assert client.delete("/v1/models/birds-rebased").status_code == 204
    assert not blobs.has(digest)


def test_another_owner_sees_nothing_of_it(client: TestClient, old: str) -> None:
    begin_rebase(client, old)
    stranger = create_api_key(client, "stranger")
    for answered in (
        client.get("/v1/models/birds-rebased/rebase", headers=stranger),
        client.post("/v1/models/birds/rebase", json={"base": SMALL}, headers=stranger),
        client.post("/v1/models/birds-rebased/rebase/finish", json={}, headers=stranger),
    ):
        assert answered.status_code == 404
