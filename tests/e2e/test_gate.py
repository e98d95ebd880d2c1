"""The default gate of a new model, over HTTP: held versions, and the messages for users."""

import io
from typing import Any

import pytest
from PIL import Image

from perennial import words
from tests.client.small_batches import reduce_batch
from tests.e2e import small
from tests.rest import Json, Rest
from tools import digits

pytestmark = pytest.mark.slow

LEARNS = {"method": "finetune", "epochs": 20, "batch_size": 8}
CHECKS = ("forgotten", "confused", "class_lost", "drifted", "learned_nothing", "features_collapsed")


def create_gated_model(client: Rest, name: str, **fields: Any) -> str:
    """Create a small model with the gate that new models have by default."""
    return client.models.create(name, "class", **{**small.MODEL, **fields}).id


def select_production_checks(version: Json) -> dict[str, Json]:
    """Return the checks that compare a version with production, by name."""
    return {check["name"]: check for check in version["gate"]["checks"] if check["name"] in CHECKS}


@pytest.fixture(scope="module")
def held(client: Rest) -> Json:
    """Return a held version of a model with default settings.

    It was trained on a second batch of new classes alone.
    """
    create_gated_model(client, "forgetful", recipe=LEARNS)
    small.learn_batches(client, "forgetful", *small.WEEKS[:2])
    return client.get("/v1/models/forgetful/versions/2")


def test_training_on_a_second_batch_alone_is_held_and_the_classes_are_named(
    client: Rest, held: Json
) -> None:
    model = client.get("/v1/models/forgetful")
    assert held["status"] == "held" and model["aliases"]["production"] == 1
    failed = {
        name: check for name, check in select_production_checks(held).items() if not check["passed"]
    }
    assert set(failed["class_lost"]["classes"]) == {"0", "1"}
    detail = model["attention"][0]["detail"]
    assert "0 (0 of 8 right" in detail and "1 (0 of 8 right" in detail


def test_the_pictures_of_a_failed_check_are_held_out_images_of_the_named_classes(
    client: Rest, held: Json
) -> None:
    shown = [
        picture
        for check in select_production_checks(held).values()
        for picture in check.get("pictures", [])
    ]
    assert shown and {one["label"] for one in shown} == {"0", "1"}
    assert all(one["before"] == one["label"] != one["now"] for one in shown)
    listed = {
        one["index"]: one["label"] for one in client.items("/v1/models/forgetful/tasks/1/images")
    }
    for one in shown:
        assert listed[one["index"]] == one["label"]
        assert Image.open(io.BytesIO(client.call("GET", one["image"]).content)).size == (8, 8)


def test_the_command_line_names_the_classes_and_links_pictures(client: Rest, held: Json) -> None:
    version = client.versions.retrieve("forgetful", 2)
    model, url = client.models.retrieve("forgetful"), client.connection.url
    text = words.describe_held_version(model, version, None, "job_1", url)
    assert "0 (0 of 8 right" in text and f"{url}/ui/models/forgetful/compare?a=1&b=2" in text


@pytest.mark.campaign  # test_wrong_labels.py learns by the default; core/publishing/test_losses.py
def test_a_stream_by_the_default_method_is_published_and_says_what_could_be_seen(
    client: Rest,
) -> None:
    client.models.create("steady", "class", image={"size": 32, "channels": 1})
    batches = [reduce_batch(archive) for _, archive in digits.build_digit_archives()[:2]]
    ends = small.learn_batches(client, "steady", *batches)
    assert client.get("/v1/models/steady")["aliases"]["production"] == 2
    last = client.get("/v1/models/steady/versions/2")
    assert {
        name: check["passed"] for name, check in select_production_checks(last).items()
    } == dict.fromkeys(CHECKS, True)
    visible = last["gate"]["visible"]
    assert visible["images"] == 16 and visible["detail"].startswith(
        "The gate compared 16 held-out images of earlier tasks"
    )
    assert visible["detail"] in " ".join(
        line["message"] for line in client.items(f"/v1/jobs/{ends[-1].id}/logs")
    )


# tests/core/learning/evaluation/test_feature_collapse.py and tests/core/publishing/test_collapsed.py have the parts
@pytest.mark.campaign
def test_a_rate_that_wrecks_the_features_is_held_and_the_last_good_version_named(
    client: Rest,
) -> None:
    replay = {"method": {"name": "er", "buffer": 100}, "epochs": 20, "batch_size": 8}
    create_gated_model(client, "wrecked", recipe=replay)
    small.learn_batches(client, "wrecked", *small.WEEKS[:2])
    before = select_production_checks(client.get("/v1/models/wrecked/versions/2"))[
        "features_collapsed"
    ]
    assert before["passed"]
    absurd = {"method": "finetune", "optimizer": {"lr": 300.0, "clip": 1.0}}
    small.learn_batches(client, "wrecked", small.WEEKS[2], recipe=absurd)
    held = client.get("/v1/models/wrecked/versions/3")
    check = select_production_checks(held)["features_collapsed"]
    assert held["status"] == "held" and not check["passed"] and check["against"] == 2
    model = client.get("/v1/models/wrecked")
    assert model["aliases"]["production"] == 2
    assert "its features have collapsed" in model["attention"][0]["detail"]
    (warning,) = [text for text in held["warnings"] if "have collapsed" in text]
    assert "version 2, the last good version" in warning
    assert '"base": {"model": "wrecked", "version": 2}' in warning


@pytest.mark.campaign  # tests/core/lineage/test_checks.py shows it
def test_what_ten_images_of_a_new_class_showed_is_not_measured_in_words(client: Rest) -> None:
    create_gated_model(
        client, "unmeasured", recipe={"method": {"name": "analytic", "projection": 50}}
    )
    images = [small.take_first_image(small.WEEKS[2], "4")] * 10
    rows = small.pack_zip({f"train/4/{n}.png": data for n, data in enumerate(images)})
    small.learn_batches(client, "unmeasured", small.WEEKS[0], rows)
    version = client.get("/v1/models/unmeasured/versions/2")
    assert version["status"] == "published"
    check = select_production_checks(version)["learned_nothing"]
    assert (check["value"], check["not_measured"]) == (
        None,
        "the batch has 2 held-out images of new classes, 10 are needed",
    )


def test_a_first_batch_of_one_class_is_published_and_not_promoted(client: Rest) -> None:
    create_gated_model(client, "single", recipe={"method": {"name": "analytic", "projection": 50}})
    one = small.pick_class(small.WEEKS[0], "0")
    checked = client.tasks.check("single", one)
    assert any("has one class" in text for text in checked.warnings)
    (end,) = small.learn_batches(client, "single", one)
    assert (
        end.outcome == "published" and client.get("/v1/models/single")["aliases"]["production"] == 0
    )
    assert "knows one class" in " ".join(client.get("/v1/models/single/versions/1")["warnings"])
    small.learn_batches(client, "single", small.pick_class(small.WEEKS[0], "1"))
    assert client.get("/v1/models/single")["aliases"]["production"] == 2
