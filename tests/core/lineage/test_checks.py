"""The checks beside production, each from counts, and the words that a person reads."""

from typing import Any

import pytest

from core.contract.features import AncestorFeatureComparison
from core.contract.gate import GateCheck
from core.contract.losses import GateClassComparison, GateComparison, GateComparisons
from core.lineage.checks import ALL_OFF, CHECKS, NEW_GATE, check_losses_against_gate_limits

PICTURE = {"task": 1, "index": 7, "label": "cat", "before": "cat", "now": "hat"}


def count(images: int = 0, negative: int = 0, positive: int = 0, **more: Any) -> GateComparison:
    """Counts of a comparison with version 3."""
    base = {"against": 3, "images": images, "negative": negative, "positive": positive}
    lists = {"classes": [], "pictures": [PICTURE], "missing": None}
    return {**base, **lists, **more}  # type: ignore[typeddict-item]


def of_class(
    label: str, images: int, before: int, negative: int = 0, positive: int = 0
) -> GateClassComparison:
    counts = {"images": images, "before": before, "negative": negative, "positive": positive}
    return {"label": label, "task": None, **counts}  # type: ignore[typeddict-item]


def drift(*tasks: tuple[int, int, int]) -> Any:
    """Counts by task (images, negative, positive), the least probable first, beside version 2."""
    rows = [
        {"task": number, "against": 2, "images": images, "negative": negative, "positive": positive}
        for number, (images, negative, positive) in enumerate(tasks, 1)
    ]
    return {**count(sum(one["images"] for one in rows)), "tasks": rows, "compared": len(rows)}


def losses(**some: Any) -> GateComparisons:
    """Counts in which nothing was lost, but for some of them."""
    calm = {
        "forgotten": count(100),
        "confused": count(100),
        "class_lost": count(100, classes=[of_class("cat", 10, 9)]),
        "drifted": drift((100, 0, 0)),
        "new": count(20, positive=18),
        "known": count(missing="production does not answer the batch's images"),
        "visible": {"images": 100, "loss": 0.19, "more": 210, "then": 0.096},
    }
    return {**calm, **some}  # type: ignore[typeddict-item]


def features(right: int, before: int, images: int = 100) -> AncestorFeatureComparison:
    """Counts beside version 2."""
    counts = {"images": images, "right": right, "images_before": images, "right_before": before}
    return {"ancestors": [{"version": 2, "is_good": True, **counts}], "missing": None}  # type: ignore[typeddict-item]


def judged(name: str, **some: Any) -> GateCheck:
    """One check by the gate of a new model."""
    (check,) = (
        one
        for one in check_losses_against_gate_limits(NEW_GATE, losses(**some), "mdl_1")
        if one["name"] == name
    )
    return check


@pytest.mark.parametrize(
    ("name", "some", "passed", "value"),
    [
        ("forgotten", {"forgotten": count(100, 12, 0)}, False, 0.12),
        ("forgotten", {"forgotten": count(1000, 12, 0)}, True, 0.012),  # significant and small
        ("forgotten", {"forgotten": count(30, 6, 0)}, True, 0.2),  # large and perhaps chance
        ("forgotten", {"forgotten": count(100, 12, 12)}, True, 0.0),
        ("confused", {"confused": count(40, 30, 1)}, False, 0.75),
        ("confused", {"confused": count(8, 6, 0)}, True, 0.75),
        ("class_lost", {"class_lost": count(10, classes=[of_class("cat", 10, 5, 4)])}, False, 0.1),
        ("class_lost", {"class_lost": count(10, classes=[of_class("cat", 10, 5, 3)])}, True, 0.2),
        ("drifted", {"drifted": drift((50, 20, 1), (50, 0, 0))}, False, 0.38),
        (
            "drifted",
            {"drifted": drift(*[(40, 7, 0)] * 2)},
            True,
            0.175,
        ),  # p < .01 of one task, not of two
        ("learned_nothing", {"new": count(20, positive=2)}, False, 0.1),
        ("learned_nothing", {"new": count(20, positive=3)}, True, 0.15),
        ("learned_nothing", {"known": count(40, 9, 0)}, False, 0.9),
        ("learned_nothing", {"known": count(40, 6, 0)}, True, 0.9),
    ],
)
def test_a_check_holds_what_is_large_and_significant(
    name: str, some: Any, passed: bool, value: float
) -> None:
    check = judged(name, **some)
    assert check["passed"] is passed and check["value"] == pytest.approx(value)
    assert ("pictures" in check) is not passed and "not_measured" not in check


@pytest.mark.parametrize(
    ("name", "some", "why"),
    [
        ("forgotten", {"forgotten": count(missing="no images")}, "no images"),
        ("confused", {"confused": count(missing="no new class")}, "no new class"),
        ("class_lost", {"class_lost": count(4, classes=[of_class("cat", 4, 4, 4)])}, "no class of "
            "earlier tasks has 5"),
        ("class_lost", {"class_lost": count(9, classes=[of_class("cat", 9, 4, 4)])}, "half were "
            "right"),
        ("drifted", {"drifted": {**drift(), "missing": "no images"}}, "no images"),
        ("learned_nothing", {"new": count(9, positive=0)}, "9 held-out images of new classes, 10 "
            "are needed"),
        ("learned_nothing", {"new": count(missing="no images")}, "no images"),
    ],
)  # fmt: skip
def test_without_images_a_check_passes_and_says_why_nothing_was_measured(
    name: str, some: Any, why: str
) -> None:
    check = judged(name, **some)
    assert check["passed"] and check["value"] is None and why in check["not_measured"]
    assert check["detail"].startswith("Not measured: ")


def known(images: int, right: int, before: int, label: str = "cat") -> dict[str, Any]:
    """Counts of a batch of one known class, `right` of whose images are right now, and of 20 images
    of it in earlier tasks, of which production gets `before` right."""
    batch = count(images, 0, right, classes=[of_class(label, images, 0, 0, right)])
    return {"known": batch, "class_lost": count(20, classes=[of_class("cat", 20, before)])}


@pytest.mark.parametrize(
    ("some", "passed"),
    [
        (known(20, 2, 14), False),
        (known(20, 3, 14), True),  # it learned some of them
        (known(20, 0, 13), True),  # production is weak there
        (known(9, 0, 20), True),  # few images
        (known(20, 0, 20, "dog"), True),  # no earlier images of the class
    ],
)
def test_a_batch_of_known_classes_whose_labels_contradict_what_was_learned_is_held(
    some: Any, passed: bool
) -> None:
    check = judged("learned_nothing", new=count(missing="no new class"), **some)
    assert check["passed"] is passed and check["value"] == (None if passed else 0.1)
    assert ("are the labels swapped or wrong?" in check["detail"]) is not passed


@pytest.mark.parametrize("new", [count(20, positive=18), count(missing="no new class")])
def test_a_doubt_about_the_labels_of_a_batch_holds_its_version(new: GateComparison) -> None:
    checks = check_losses_against_gate_limits(
        NEW_GATE, losses(new=new), "mdl_1", None, "Are the labels wrong?"
    )
    (check,) = [one for one in checks if not one["passed"]]
    assert (check["name"], check["detail"]) == ("learned_nothing", "Are the labels wrong?")
    assert "not_measured" not in check


def test_a_doubt_holds_a_version_whose_losses_were_not_counted() -> None:
    checks = check_losses_against_gate_limits(
        NEW_GATE, None, "mdl_1", None, "Are the labels wrong?"
    )
    assert [one["name"] for one in checks if not one["passed"]] == ["learned_nothing"]


def test_a_gate_without_the_check_on_learning_ignores_a_doubt() -> None:
    checks = check_losses_against_gate_limits(
        {**NEW_GATE, "learned_nothing": None}, losses(), "mdl_1", None, "Are the labels wrong?"
    )
    assert all(check["passed"] for check in checks)


def test_a_held_batch_of_known_classes_names_both_counts() -> None:
    check = judged("learned_nothing", new=count(missing="no new class"), **known(20, 0, 18))
    assert (
        "it gets 0 of them right, though version 3 gets 18 of 20 held-out images of these"
        in check["detail"]
    )
    assert check["classes"] == ["cat"]


def test_a_version_that_was_not_compared_passes_and_says_so() -> None:
    checks = check_losses_against_gate_limits(NEW_GATE, None, "mdl_1", None)
    assert [check["name"] for check in checks] == list(CHECKS)
    assert all(check["passed"] and check["not_measured"] for check in checks)


@pytest.mark.parametrize(
    ("right", "before", "limit", "passed"),
    [
        (32, 71, 0.1, False),
        (70, 75, 0.1, True),
        (32, 71, 0.5, True),
        (60, 90, 0.3, True),
        (59, 90, 0.3, False),
    ],
)
def test_features_that_lost_more_than_the_limit_are_held(
    right: int, before: int, limit: float, passed: bool
) -> None:
    (check,) = check_losses_against_gate_limits(
        {"features_collapsed": limit}, losses(), "mdl_1", features(right, before)
    )
    assert check["passed"] is passed and check["value"] == pytest.approx((before - right) / 100)
    assert (check["against"], check["images"]) == (2, 100) and "pictures" not in check
    assert f"{right} % of 100" in check["detail"] and f"{before} % of 100" in check["detail"]
    assert ("version 2, the last good version" in check["detail"]) is not passed


def test_features_that_were_not_compared_pass_and_say_why() -> None:
    missing: AncestorFeatureComparison = {
        "ancestors": [],
        "missing": "it is the first version of its line",
    }
    (check,) = check_losses_against_gate_limits(
        {"features_collapsed": 0.1}, losses(), "mdl_1", missing
    )
    assert check["passed"] and check["not_measured"] == "it is the first version of its line"


def test_each_check_can_be_switched_off() -> None:
    for name in CHECKS:
        checks = check_losses_against_gate_limits({**NEW_GATE, name: None}, losses(), "mdl_1")
        assert [check["name"] for check in checks] == [one for one in CHECKS if one != name]
    assert (
        check_losses_against_gate_limits(ALL_OFF, losses(), "mdl_1")
        == check_losses_against_gate_limits({}, losses(), "mdl_1")
        == []
    )


def test_a_failed_check_names_classes_and_links_pictures() -> None:
    classes = [
        of_class("cat", 12, 11, 11),
        of_class("dog", 8, 7, 1, 1),
        of_class("owl", 12, 12, 12),
    ]
    check = judged("class_lost", class_lost=count(32, classes=classes))
    assert check["classes"] == ["cat", "owl"]
    assert (
        "cat (0 of 12 right, 11 by version 3) and owl (0 of 12 right, 12 by version 3)"
        in check["detail"]
    )
    assert check["pictures"] == [
        {**PICTURE, "image": "/v1/models/mdl_1/tasks/1/images/held_out/7.png"}
    ]
