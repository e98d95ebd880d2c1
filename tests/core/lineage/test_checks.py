"""The checks beside production, each from counts, and the words that a person reads."""

from typing import Any

import pytest

from core.contract.features import AncestorFeatureComparison
from core.contract.gate import GateCheck
from core.contract.losses import GateClassComparison, GateComparison, GateComparisons
from core.lineage.checks import ALL_OFF, CHECKS, NEW_GATE, build_version_comparison_gate_checks

PICTURE = {"task": 1, "index": 7, "label": "cat", "before": "cat", "now": "hat"}


def make_gate_comparison(
    images: int = 0, negative: int = 0, positive: int = 0, **more: Any
) -> GateComparison:
    """Return the counts of a comparison with version 3."""
    base = {"against": 3, "images": images, "negative": negative, "positive": positive}
    lists = {"classes": [], "pictures": [PICTURE], "missing": None}
    return {**base, **lists, **more}  # type: ignore[typeddict-item]


def make_class_comparison(
    label: str, images: int, before: int, negative: int = 0, positive: int = 0
) -> GateClassComparison:
    counts = {"images": images, "before": before, "negative": negative, "positive": positive}
    return {"label": label, "task": None, **counts}  # type: ignore[typeddict-item]


def make_drift_comparison(*tasks: tuple[int, int, int]) -> Any:
    """Return counts by task (images, negative, positive) beside version 2.
    The least probable task comes first.
    """
    rows = [
        {"task": number, "against": 2, "images": images, "negative": negative, "positive": positive}
        for number, (images, negative, positive) in enumerate(tasks, 1)
    ]
    return {
        **make_gate_comparison(sum(one["images"] for one in rows)),
        "tasks": rows,
        "compared": len(rows),
    }


def make_comparisons(**some: Any) -> GateComparisons:
    """Return counts in which nothing was lost, except those given."""
    calm = {
        "forgotten": make_gate_comparison(100),
        "confused": make_gate_comparison(100),
        "class_lost": make_gate_comparison(100, classes=[make_class_comparison("cat", 10, 9)]),
        "drifted": make_drift_comparison((100, 0, 0)),
        "new": make_gate_comparison(20, positive=18),
        "known": make_gate_comparison(missing="production does not answer the batch's images"),
        "visible": {"images": 100, "loss": 0.19, "more": 210, "then": 0.096},
    }
    return {**calm, **some}  # type: ignore[typeddict-item]


def make_feature_comparison(
    right: int, before: int, images: int = 100
) -> AncestorFeatureComparison:
    """Return counts beside version 2."""
    counts = {"images": images, "right": right, "images_before": images, "right_before": before}
    return {"ancestors": [{"version": 2, "is_good": True, **counts}], "missing": None}  # type: ignore[typeddict-item]


def check_comparison(name: str, **some: Any) -> GateCheck:
    """Return one check by the gate of a new model."""
    (check,) = (
        one
        for one in build_version_comparison_gate_checks(NEW_GATE, make_comparisons(**some), "mdl_1")
        if one["name"] == name
    )
    return check


@pytest.mark.parametrize(
    ("name", "some", "passed", "value"),
    [
        ("forgotten", {"forgotten": make_gate_comparison(100, 12, 0)}, False, 0.12),
        (
            "forgotten",
            {"forgotten": make_gate_comparison(1000, 12, 0)},
            True,
            0.012,
        ),  # significant and small
        (
            "forgotten",
            {"forgotten": make_gate_comparison(30, 6, 0)},
            True,
            0.2,
        ),  # large and perhaps chance
        ("forgotten", {"forgotten": make_gate_comparison(100, 12, 12)}, True, 0.0),
        ("confused", {"confused": make_gate_comparison(40, 30, 1)}, False, 0.75),
        ("confused", {"confused": make_gate_comparison(8, 6, 0)}, True, 0.75),
        (
            "class_lost",
            {
                "class_lost": make_gate_comparison(
                    10, classes=[make_class_comparison("cat", 10, 5, 4)]
                )
            },
            False,
            0.1,
        ),
        (
            "class_lost",
            {
                "class_lost": make_gate_comparison(
                    10, classes=[make_class_comparison("cat", 10, 5, 3)]
                )
            },
            True,
            0.2,
        ),
        ("drifted", {"drifted": make_drift_comparison((50, 20, 1), (50, 0, 0))}, False, 0.38),
        (
            "drifted",
            {"drifted": make_drift_comparison(*[(40, 7, 0)] * 2)},
            True,
            0.175,
        ),  # p < .01 of one task, not of two
        ("learned_nothing", {"new": make_gate_comparison(20, positive=2)}, False, 0.1),
        ("learned_nothing", {"new": make_gate_comparison(20, positive=3)}, True, 0.15),
        ("learned_nothing", {"known": make_gate_comparison(40, 9, 0)}, False, 0.9),
        ("learned_nothing", {"known": make_gate_comparison(40, 6, 0)}, True, 0.9),
    ],
)
def test_a_check_holds_what_is_large_and_significant(
    name: str, some: Any, passed: bool, value: float
) -> None:
    check = check_comparison(name, **some)
    assert check["passed"] is passed and check["value"] == pytest.approx(value)
    assert ("pictures" in check) is not passed and "not_measured" not in check


@pytest.mark.parametrize(
    ("name", "some", "why"),
    [
        ("forgotten", {"forgotten": make_gate_comparison(missing="no images")}, "no images"),
        ("confused", {"confused": make_gate_comparison(missing="no new class")}, "no new class"),
        ("class_lost", {"class_lost": make_gate_comparison(4,
            classes=[make_class_comparison("cat", 4, 4, 4)])}, "no class of "
            "earlier tasks has 5"),
        ("class_lost", {"class_lost": make_gate_comparison(9,
            classes=[make_class_comparison("cat", 9, 4, 4)])}, "half were "
            "right"),
        ("drifted", {"drifted": {**make_drift_comparison(), "missing": "no images"}}, "no images"),
        ("learned_nothing", {"new": make_gate_comparison(9, positive=0)}, "9 held-out images of new classes, 10 "
            "are needed"),
        ("learned_nothing", {"new": make_gate_comparison(missing="no images")}, "no images"),
    ],
)  # fmt: skip
def test_without_images_a_check_passes_and_says_why_nothing_was_measured(
    name: str, some: Any, why: str
) -> None:
    check = check_comparison(name, **some)
    assert check["passed"] and check["value"] is None and why in check["not_measured"]
    assert check["detail"].startswith("Not measured: ")


def make_known_class_counts(
    images: int, right: int, before: int, label: str = "cat"
) -> dict[str, Any]:
    """Return the counts of a batch of one known class.
    `right` of its images are right now. Of 20 images of the class in earlier tasks,
    production gets `before` right.
    """
    batch = make_gate_comparison(
        images, 0, right, classes=[make_class_comparison(label, images, 0, 0, right)]
    )
    return {
        "known": batch,
        "class_lost": make_gate_comparison(20, classes=[make_class_comparison("cat", 20, before)]),
    }


@pytest.mark.parametrize(
    ("some", "passed"),
    [
        (make_known_class_counts(20, 2, 14), False),
        (make_known_class_counts(20, 3, 14), True),  # it learned some of them
        (make_known_class_counts(20, 0, 13), True),  # production is weak there
        (make_known_class_counts(9, 0, 20), True),  # few images
        (make_known_class_counts(20, 0, 20, "dog"), True),  # no earlier images of the class
    ],
)
def test_a_batch_of_known_classes_whose_labels_contradict_what_was_learned_is_held(
    some: Any, passed: bool
) -> None:
    check = check_comparison(
        "learned_nothing", new=make_gate_comparison(missing="no new class"), **some
    )
    assert check["passed"] is passed and check["value"] == (None if passed else 0.1)
    assert ("are the labels swapped or wrong?" in check["detail"]) is not passed


@pytest.mark.parametrize(
    "new", [make_gate_comparison(20, positive=18), make_gate_comparison(missing="no new class")]
)
def test_a_doubt_about_the_labels_of_a_batch_holds_its_version(new: GateComparison) -> None:
    checks = build_version_comparison_gate_checks(
        NEW_GATE, make_comparisons(new=new), "mdl_1", None, "Are the labels wrong?"
    )
    (check,) = [one for one in checks if not one["passed"]]
    assert (check["name"], check["detail"]) == ("learned_nothing", "Are the labels wrong?")
    assert "not_measured" not in check


def test_a_doubt_holds_a_version_whose_losses_were_not_counted() -> None:
    checks = build_version_comparison_gate_checks(
        NEW_GATE, None, "mdl_1", None, "Are the labels wrong?"
    )
    assert [one["name"] for one in checks if not one["passed"]] == ["learned_nothing"]


def test_a_gate_without_the_check_on_learning_ignores_a_doubt() -> None:
    checks = build_version_comparison_gate_checks(
        {**NEW_GATE, "learned_nothing": None},
        make_comparisons(),
        "mdl_1",
        None,
        "Are the labels wrong?",
    )
    assert all(check["passed"] for check in checks)


def test_a_held_batch_of_known_classes_names_both_counts() -> None:
    check = check_comparison(
        "learned_nothing",
        new=make_gate_comparison(missing="no new class"),
        **make_known_class_counts(20, 0, 18),
    )
    assert (
        "it gets 0 of them right, though version 3 gets 18 of 20 held-out images of these"
        in check["detail"]
    )
    assert check["classes"] == ["cat"]


def test_a_version_that_was_not_compared_passes_and_says_so() -> None:
    checks = build_version_comparison_gate_checks(NEW_GATE, None, "mdl_1", None)
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
    (check,) = build_version_comparison_gate_checks(
        {"features_collapsed": limit},
        make_comparisons(),
        "mdl_1",
        make_feature_comparison(right, before),
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
    (check,) = build_version_comparison_gate_checks(
        {"features_collapsed": 0.1}, make_comparisons(), "mdl_1", missing
    )
    assert check["passed"] and check["not_measured"] == "it is the first version of its line"


def test_each_check_can_be_switched_off() -> None:
    for name in CHECKS:
        checks = build_version_comparison_gate_checks(
            {**NEW_GATE, name: None}, make_comparisons(), "mdl_1"
        )
        assert [check["name"] for check in checks] == [one for one in CHECKS if one != name]
    assert (
        build_version_comparison_gate_checks(ALL_OFF, make_comparisons(), "mdl_1")
        == build_version_comparison_gate_checks({}, make_comparisons(), "mdl_1")
        == []
    )


def test_a_failed_check_names_classes_and_links_pictures() -> None:
    classes = [
        make_class_comparison("cat", 12, 11, 11),
        make_class_comparison("dog", 8, 7, 1, 1),
        make_class_comparison("owl", 12, 12, 12),
    ]
    check = check_comparison("class_lost", class_lost=make_gate_comparison(32, classes=classes))
    assert check["classes"] == ["cat", "owl"]
    assert (
        "cat (0 of 12 right, 11 by version 3) and owl (0 of 12 right, 12 by version 3)"
        in check["detail"]
    )
    assert check["pictures"] == [
        {**PICTURE, "image": "/v1/models/mdl_1/tasks/1/images/held_out/7.png"}
    ]
