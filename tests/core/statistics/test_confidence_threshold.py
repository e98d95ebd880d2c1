"""Sure answers: the bound beside sums of exact fractions, and the promise kept on images
not seen.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from core.contract.figures import CoveragePoint
from core.learning.evaluation.calibration.error import build_precision_curve
from core.statistics.confidence_threshold import (
    RISK,
    choose_confidence_threshold,
    compute_images_required_for_promised_precision,
    is_share_significantly_above,
)


def compute_probability_of_errors(errors: int, images: int, precision: Fraction) -> Fraction:
    """Return the probability of at most `errors` errors, if a share of `precision` is right."""
    return sum(
        (
            math.comb(images, k) * (1 - precision) ** k * precision ** (images - k)
            for k in range(errors + 1)
        ),
        Fraction(0),
    )


@pytest.mark.parametrize("precision", [Fraction(7, 10), Fraction(19, 20), Fraction(98, 100)])
def test_the_bound_is_that_of_exact_sums(precision: Fraction) -> None:
    for images in (1, 58, 59, 148, 149, 236, 400):
        for errors in range(min(images, 40)):
            wanted = compute_probability_of_errors(errors, images, precision) <= Fraction(1, 20)
            assert (
                is_share_significantly_above(images - errors, images, float(precision)) == wanted
            ), (
                images,
                errors,
            )


@pytest.mark.parametrize(("precision", "images"), [(0.98, 149), (0.95, 59), (0.99, 299), (0.7, 9)])
def test_so_many_images_are_needed_at_least(precision: float, images: int) -> None:
    assert compute_images_required_for_promised_precision(precision) == images
    assert is_share_significantly_above(
        images, images, precision
    ) and not is_share_significantly_above(images - 1, images - 1, precision)
    few, enough = (CoveragePoint(probability=0.5, images=n, right=n) for n in (images - 1, images))
    assert choose_confidence_threshold([few], precision).threshold is None
    assert choose_confidence_threshold([enough], precision).threshold == 0.5


def test_nothing_is_sure_without_images() -> None:
    assert choose_confidence_threshold(
        [], 0.9
    ).threshold is None and not is_share_significantly_above(0, 0, 0.9)


def test_tests_stop_at_the_first_that_fails() -> None:
    curve = [
        CoveragePoint(
            probability=1 - n / 1000, images=n, right=n if n <= 300 or n >= 500 else n - 60
        )
        for n in range(10, 1001, 10)
    ]
    chosen = choose_confidence_threshold(curve, 0.9)
    assert 250 <= chosen.covered <= 300 and chosen.right == chosen.covered


def test_the_curve_counts_images_of_each_probability() -> None:
    probabilities = np.array([0.9, 0.5, 0.9, 0.7, 0.5])
    right = np.array([True, False, False, True, True])
    assert [
        tuple(point.to_json().values()) for point in build_precision_curve(probabilities, right)
    ] == [
        (pytest.approx(0.8), 2, 1),
        (pytest.approx(0.6), 3, 2),
        (0.5, 5, 3),
    ]
    many = build_precision_curve(np.linspace(1, 0.2, 1234), np.ones(1234, bool))
    assert len(many) == 100 and (many[-1].images, many[-1].right) == (1234, 1234)
    assert [point.images for point in many] == sorted(point.images for point in many)


@pytest.mark.parametrize("target", [0.95, 0.98])
@pytest.mark.parametrize("images", [400, 2000])
def test_the_promise_is_broken_less_often_than_said(target: float, images: int) -> None:
    """A model that is right with the probability 1 - .6 u⁴ at the share u of its answers, the
    surest first.
    """
    draw = np.random.default_rng(0)
    broken = 0
    for _ in range(200):
        u = draw.random(images)
        probability = 1 - 0.6 * u**4
        chosen = choose_confidence_threshold(
            build_precision_curve(probability, draw.random(images) < probability), target
        )
        if chosen.threshold is not None:
            share = ((1 - chosen.threshold) / 0.6) ** 0.25
            broken += 1 - 0.6 * share**4 / 5 < target
    assert broken <= 2 * RISK * 200
