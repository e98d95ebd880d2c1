"""Order of the actions for a held version: the one that mends it first, promotion last."""

from types import SimpleNamespace
from typing import Any

import pytest

from core.models.held_actions import (
    GENTLE,
    PLAIN,
    SLOW,
    WITH_IMAGES,
    HeldVersionFacts,
    list_held_version_requests,
)
from tests.learning_catalogue import copy_catalogue

HERE: dict[str, Any] = {
    "report": None,
    "train_sha256": "a",
    "train_deleted_at": None,
    "data_deleted_at": None,
    "archive_key": None,
}
GONE = {**HERE, "data_deleted_at": 1.0}

WRONG: Any = {"kind": "suspects", "holds": True, "text": "Are the labels wrong?"}
DOUBTED: Any = {
    "data": {"mislabelled": [{"images": 3}, {"images": 2}], "examined": 10, "findings": [WRONG]}
}


def make_task(number: int, **more: Any) -> Any:
    return SimpleNamespace(number=number, **{**HERE, **more})


def list_actions(
    failed: str, lost: list[int] | None = None, others: Any = None, learned: Any = (), **job: Any
) -> list[tuple[str, Any]]:
    """Return (last word of the path, body) of each action for a version that failed one check."""
    check = {"name": failed, "passed": False, "tasks": lost or []}
    recipe = {
        "method": {"name": job.pop("method", "finetune")},
        "epochs": 4,
        "depth": job.pop("depth", 5),
    }
    held = HeldVersionFacts(
        SimpleNamespace(
            id="mdl_1", scenario=job.pop("scenario", "class"), allow_lost_classes=False
        ),  # type: ignore[arg-type]
        job.pop("task", make_task(3)),
        SimpleNamespace(number=4, gate={"checks": [check]}),  # type: ignore[arg-type]
        SimpleNamespace(id="job_1", recipe=recipe, recipe_override=job.pop("override", {})),  # type: ignore[arg-type]
        learned,
        others or {},
    )
    found = list_held_version_requests(held)
    return [(one["path"].split("/")[-1], one["body"]) for one in found]


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"failed": "class_lost"}, ("retry", {"recipe": GENTLE})),
        ({"failed": "forgotten", "method": "er"}, ("retry", {"recipe": SLOW})),
        ({"failed": "forgotten", "method": "er", "scenario": "task"}, ("retry", {})),
        ({"failed": "forgotten", "override": {"epochs": 9}}, ("retry", {"recipe": {}})),
        (
            {"failed": "forgotten", "override": {"data_report": "warn"}},
            ("retry", {"recipe": {"data_report": "warn", **GENTLE}}),
        ),
        ({"failed": "min_new_task"}, ("retry", {"recipe": {"epochs": 20}})),
        ({"failed": "parent_rolled_back"}, ("retry", {})),
        ({"failed": "forgotten", "depth": 1}, ("retry", {})),
        ({"failed": "forgotten", "method": "analytic"}, ("retry", {})),
        ({"failed": "lost_tasks", "lost": [2], "others": {2: make_task(2)}}, ("relearn", {})),
        (
            {"failed": "lost_tasks", "lost": [2], "others": {2: make_task(2, **GONE)}},
            ("discard", {"reason": "…"}),
        ),
        ({"failed": "lost_tasks", "lost": [2], "learned": {2}}, ("retry", {})),
        ({"failed": "forgotten", "task": make_task(3, **GONE)}, ("discard", {"reason": "…"})),
        (
            {"failed": "learned_nothing", "task": make_task(3, report=DOUBTED)},
            ("discard", {"reason": "…"}),
        ),
    ],
)
def test_what_mends_it_is_first_and_production_last(
    given: dict[str, Any], first: tuple[str, Any]
) -> None:
    found = list_actions(**given)
    assert found[0] == first
    assert found[-1] == ("production", {"version": 4, "reason": "…"})
    assert len([one for one in found if one[0] == "retry"]) <= 1


def test_the_methods_are_those_of_the_catalogue_that_train_a_plain_network() -> None:
    methods = copy_catalogue()["methods"]
    for name in (*PLAIN, *WITH_IMAGES):
        assert (
            methods[name].get("family", "plain") == "plain"
            and methods[name].get("inference") is None
        ), name
