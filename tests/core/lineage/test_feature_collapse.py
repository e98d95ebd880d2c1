"""Features beside those of ancestors, decided from counts: against float64 away from the borders,
and on them.
"""

import random
from typing import Any

import pytest

from core.contract.features import AncestorFeatureAccuracy, AncestorFeatureComparison
from core.lineage.feature_collapse import (
    compute_feature_accuracy_drop,
    find_ancestor_before_feature_collapse,
    find_ancestor_with_best_features,
    has_feature_collapse,
)


def make_feature_accuracy(
    now: tuple[int, int], before: tuple[int, int], version: int = 2, good: bool = True
) -> AncestorFeatureAccuracy:
    """Return the accuracy of the version and of an ancestor from (right, images)."""
    return {
        "version": version,
        "images": now[1],
        "right": now[0],
        "images_before": before[1],
        "right_before": before[0],
        "is_good": good,
    }


def make_feature_comparison(*ancestors: AncestorFeatureAccuracy) -> AncestorFeatureComparison:
    return {"ancestors": list(ancestors), "missing": None}


@pytest.mark.parametrize(
    ("now", "before", "collapsed"),
    [
        ((320, 1000), (710, 1000), True),
        ((7000, 10000), (8000, 10000), False),  # exactly ten points, which floats take for more
        ((6999, 10000), (8000, 10000), True),
        ((9000, 10000), (10000, 10000), False),
        ((8999, 10000), (10000, 10000), True),
        ((14, 20), (17, 20), False),  # 15 points, a bit more than one standard error
        ((10, 20), (17, 20), True),  # 35 points, 2.5 standard errors
        ((12, 20), (17, 20), False),  # 25 points, 1.8 standard errors
        ((800, 1000), (700, 1000), False),
    ],
)
def test_ten_points_and_two_standard_errors_must_both_be_exceeded(
    now: tuple[int, int], before: tuple[int, int], collapsed: bool
) -> None:
    assert has_feature_collapse(make_feature_accuracy(now, before)) is collapsed


def test_the_decision_is_that_of_the_formula_in_float64() -> None:
    draw = random.Random(5)
    decided = set()
    for _ in range(2000):
        images, images_before = draw.randint(20, 400), draw.randint(20, 400)
        right, right_before = draw.randint(0, images), draw.randint(0, images_before)
        p, q = right / images, right_before / images_before
        limit = draw.choice((0.0, 0.05, 0.1, 0.3))
        error = (p * (1 - p) / images + q * (1 - q) / images_before) ** 0.5
        if min(abs(q - p - limit), abs(q - p - 2 * error)) < 1e-9:
            continue
        expected = q - p > limit and q - p > 2 * error
        decided.add(expected)
        assert (
            has_feature_collapse(
                make_feature_accuracy((right, images), (right_before, images_before)), limit
            )
            is expected
        )
    assert decided == {True, False}


@pytest.mark.parametrize(
    ("ancestors", "good"),
    [
        ([], None),
        (
            [
                make_feature_accuracy((60, 100), (65, 100), 3),
                make_feature_accuracy((60, 100), (95, 100), 1),
            ],
            1,
        ),
        (
            [
                make_feature_accuracy((30, 100), (71, 100), 3),
                make_feature_accuracy((30, 100), (90, 100), 1),
            ],
            3,
        ),  # the newest, not the best
        (
            [
                make_feature_accuracy((30, 100), (71, 100), 3, good=False),
                make_feature_accuracy((30, 100), (90, 100), 1),
            ],
            1,
        ),
        (
            [
                make_feature_accuracy((30, 100), (71, 100), 3, good=False),
                make_feature_accuracy((30, 100), (90, 100), 1, good=False),
            ],
            1,
        ),
        (
            [
                make_feature_accuracy((70, 100), (71, 100), 3),
                make_feature_accuracy((70, 100), (72, 100), 1),
            ],
            None,
        ),
    ],
)
def test_the_last_good_version_is_the_newest_that_has_not_collapsed_itself(
    ancestors: Any, good: int | None
) -> None:
    found = find_ancestor_before_feature_collapse(make_feature_comparison(*ancestors))
    assert (None if found is None else found["version"]) == good


def test_the_best_ancestor_is_the_one_furthest_ahead() -> None:
    ahead = make_feature_accuracy((70, 100), (75, 100), 1)
    assert (
        find_ancestor_with_best_features(
            make_feature_comparison(make_feature_accuracy((70, 100), (71, 100), 3), ahead)
        )
        == ahead
    )
    assert compute_feature_accuracy_drop(ahead) == pytest.approx(0.05)
    assert (
        find_ancestor_with_best_features(make_feature_comparison()) is None
        and find_ancestor_before_feature_collapse(None) is None
    )
