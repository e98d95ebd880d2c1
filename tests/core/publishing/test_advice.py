"""Advice of a line that goes wrong slowly: each condition on its borders, and that it is
said once.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from core.database.tables import Job, Model, Task, Version
from core.learning.evaluation import stored_predictions
from core.packaged import imagenet_base
from core.publishing.advice import (
    ModelOnLargerBase,
    VersionAccuracyOverTasks,
    is_accuracy_falling,
    is_far_below_larger_base,
)
from core.publishing.publish import publish_or_hold_job_result
from core.recipe.catalogue import load_recipe_catalogue
from core.requests.resources import UseCaseResources
from core.tasks import task_decisions
from tests.core.desk import Desk
from tests.core.publishing.test_confused_pairs import make_confused_predictions

REBASE = 'rebase {"base": "perennial/efficientnet-lite0"}'
CALM = {(0, 0): 10, (1, 1): 10}
CONFUSED = {(0, 0): 12, (0, 1): 8, (1, 1): 11, (1, 0): 9}


@pytest.fixture(autouse=True)
def with_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenet_base, "explain_missing_imagenet_base", lambda: "")


def publish_next_version(
    desk: Desk, model: str, right: int, pairs: Any = CALM, images: int = 200, **more: Any
) -> list[str]:
    """Publish a version that gets `right` of its images right, and return its warnings."""
    job, claim = desk.begin(model)
    return publish_running_job(desk, model, job, claim, right, pairs, images, **more)


def publish_running_job(
    desk: Desk,
    model: str,
    job: str,
    claim: Any,
    right: int,
    pairs: Any = CALM,
    images: int = 200,
    **more: Any,
) -> list[str]:
    """Publish a version of a job that is running, and return its warnings."""
    desk.change(Job, job, started_at=desk.now() - 16.0)
    task = claim.task_number or 0
    cells = [("new", task, right, images)]
    folder: Path = desk.result({"head": f"h{task}"}, cells, classes=["1a", "1b", "1c"], **more)
    files = [
        file.to_json()
        for file in stored_predictions.write_prediction_file(
            folder, {("new", task): make_confused_predictions(pairs)}
        )
    ]
    document = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**document, "answers": files}))
    published = publish_or_hold_job_result(desk.db, desk.store, claim, folder)
    (row,) = desk.all(Version, model_id=model, number=published.number)
    warnings: list[str] = row.warnings
    return warnings


@pytest.mark.parametrize(
    ("last", "falling"),
    [
        ([180, 160, 140], True),
        ([180, 160], False),
        ([180, 160, 160], False),
        ([160, 180, 140], False),
        ([180, 179, 178], False),  # chance
        ([100, 180, 160, 140], True),
    ],
)
def test_accuracy_falls_where_it_fell_twice_and_by_more_than_chance(
    last: list[int], falling: bool
) -> None:
    assert (
        is_accuracy_falling(
            [VersionAccuracyOverTasks(n, right, 200) for n, right in enumerate(last, 1)]
        )
        is falling
    )


@pytest.mark.parametrize(
    ("own", "larger", "images", "far"),
    [(700, 800, 1000, False), (699, 800, 1000, True), (14, 18, 20, False), (900, 800, 1000, False)],
)
def test_far_below_is_more_than_ten_points_and_chance(
    own: int, larger: int, images: int, far: bool
) -> None:
    assert (
        is_far_below_larger_base(
            VersionAccuracyOverTasks(3, own, images), ModelOnLargerBase("big", 2, larger, images)
        )
        is far
    )


def test_a_falling_line_is_advised_once_to_move_to_the_larger_base(desk: Desk) -> None:
    model = desk.model()
    name = desk.all(Model, id=model)[0].name
    assert [publish_next_version(desk, model, right) for right in (190, 170)] == [[], []]
    (text,) = publish_next_version(desk, model, 140)
    assert text.startswith(
        "Accuracy over all tasks so far has fallen over the last three versions: 95 % (version 1), "
        "85 % (version 2) and 70 % (version 3)."
    )
    assert (
        f"POST /v1/models/{name}/{REBASE}. A pass over the 30 images of its tasks takes about 1 s"
        in text
    )
    assert publish_next_version(desk, model, 110) == []
    assert publish_next_version(desk, model, 180) == []  # it holds no more
    assert publish_next_version(desk, model, 160) == []


def test_what_holds_again_after_it_did_not_is_advised_again(desk: Desk) -> None:
    model = desk.model()
    said = [
        bool(publish_next_version(desk, model, right))
        for right in (190, 170, 140, 110, 180, 160, 130, 100)
    ]
    assert said == [False, False, True, False, False, False, True, False]


def test_a_branch_is_advised_although_another_was(desk: Desk) -> None:
    model = desk.model()
    assert [bool(publish_next_version(desk, model, right)) for right in (190, 170, 140)] == [
        False,
        False,
        True,
    ]
    desk.roll_back(model, to=2)
    assert any("has fallen" in text for text in publish_next_version(desk, model, 120))


def test_a_batch_that_is_learned_again_is_advised_on_no_second_time(desk: Desk) -> None:
    model = desk.model()
    assert [bool(publish_next_version(desk, model, right)) for right in (190, 170, 140)] == [
        False,
        False,
        True,
    ]
    desk.roll_back(model, to=2)
    resources = UseCaseResources(desk.db, desk.blobs, load_recipe_catalogue(desk.settings))
    task_decisions.relearn_task(resources, desk.actor, model, 3, None)
    claim = desk.claim()
    assert not any(
        "has fallen" in text for text in publish_running_job(desk, model, claim.job_id, claim, 120)
    )


def test_where_the_base_is_the_larger_one_images_of_the_worst_class_are_asked_for(
    desk: Desk,
) -> None:
    model = desk.model(base=imagenet_base.NAME)
    texts = [publish_next_version(desk, model, right) for right in (190, 170, 140)]
    assert (
        REBASE not in texts[2][0]
        and "Of its classes x is worst, with 140 of 200 right." in texts[2][0]
    )


def test_a_confused_pair_is_named_once_with_images_and_seconds(desk: Desk) -> None:
    model = desk.model()
    (text,) = publish_next_version(desk, model, 150, CONFUSED)
    assert text.startswith(
        "Version 1 takes 1a and 1b for each other: it answers 8 of 20 held-out images of 1a with "
        "1b, and 9 of 20 the other way round. Send as many more images as it has learned, 4 of 1a "
        "and 4 of 1b: POST /v1/models/"
    )
    assert "learning them takes about 16 s. If both are one thing" in text
    assert publish_next_version(desk, model, 150, CONFUSED) == []
    assert publish_next_version(desk, model, 150) == []
    assert len(publish_next_version(desk, model, 150, CONFUSED)) == 1


def test_one_piece_of_advice_is_given_at_a_time(desk: Desk) -> None:
    model = desk.model()
    publish_next_version(desk, model, 190)
    publish_next_version(desk, model, 170)
    (first,) = publish_next_version(desk, model, 140, CONFUSED)
    (second,) = publish_next_version(desk, model, 110, CONFUSED)
    assert "has fallen" in first and "for each other" in second
    assert publish_next_version(desk, model, 90, CONFUSED) == []


def test_beside_a_warning_that_says_what_to_do_nothing_is_added(desk: Desk) -> None:
    model = desk.model()
    biased = {"all": [180, 200], "own": [100, 200], "tasks": {}}
    (text,) = publish_next_version(desk, model, 150, CONFUSED, baseline_ncm=biased)
    assert text.startswith("The features of version 1 tell the classes apart better")
    assert len(publish_next_version(desk, model, 150, CONFUSED)) == 1  # it was not said yet


def test_another_model_on_the_larger_base_that_learned_the_same_is_compared(desk: Desk) -> None:
    larger = desk.model(base=imagenet_base.NAME, name="photos-large")
    figure = {"all": [185, 200], "own": [185, 200], "tasks": {"1": [185, 200]}}
    assert publish_next_version(desk, larger, 185, baseline_lda=figure) == []
    model = desk.model()
    (text,) = publish_next_version(desk, model, 140)
    assert text.startswith(
        "Version 1 gets 140 of 200 held-out images of all tasks right; a linear discriminant on "
        "the features of model photos-large, which learned the same batches on a larger base, gets "
        "185 of 200. Move the model"
    )
    assert publish_next_version(desk, model, 141) == []


def test_where_the_move_has_begun_it_is_to_be_compared_and_finished(desk: Desk) -> None:
    model = desk.model()
    desk.change(Model, desk.model(base=imagenet_base.NAME, name="photos-large"), rebased_from=model)
    (text,) = [publish_next_version(desk, model, right) for right in (190, 170, 140)][2]
    assert (
        "begun with model photos-large" in text and "/rebase/finish." in text and REBASE not in text
    )


def test_a_model_on_the_larger_base_that_learned_something_else_says_nothing(desk: Desk) -> None:
    larger = desk.model(base=imagenet_base.NAME)
    figure = {"all": [185, 200], "own": [185, 200], "tasks": {"1": [185, 200]}}
    publish_next_version(desk, larger, 185, baseline_lda=figure)
    desk.change(Task, desk.all(Task, model_id=larger)[0].id, sha256="f" * 64)
    assert publish_next_version(desk, desk.model(), 140) == []


def test_a_model_of_another_owner_says_nothing(desk: Desk) -> None:
    larger = desk.model(base=imagenet_base.NAME)
    figure = {"all": [185, 200], "own": [185, 200], "tasks": {"1": [185, 200]}}
    publish_next_version(desk, larger, 185, baseline_lda=figure)
    desk.new_owner("others")
    assert publish_next_version(desk, desk.model(), 140) == []


def test_without_the_package_of_the_base_no_move_is_advised(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        imagenet_base, "explain_missing_imagenet_base", lambda: "the package is not installed"
    )
    model = desk.model()
    texts = [publish_next_version(desk, model, right) for right in (190, 170, 140)]
    assert REBASE not in texts[2][0] and "is worst" in texts[2][0]
