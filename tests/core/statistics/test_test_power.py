"""Power of the gate's test against sums of fractions, and the sentence that a person reads."""

from fractions import Fraction
from math import comb

import pytest

from core.statistics import test_power
from core.statistics.flips import compute_one_sided_mcnemar_p


def compute_p_slowly(negative: int, positive: int) -> Fraction:
    """Return P(X ≥ negative) of a binomial with ½, term by term."""
    n = negative + positive
    return Fraction(sum(comb(n, k) for k in range(negative, n + 1)), 2**n)


def compute_detection_slowly(
    images: int, lost: Fraction, gained: Fraction, limit: Fraction
) -> Fraction:
    """Sum the trinomial over all numbers of lost and gained images."""
    total = Fraction(0)
    for b in range(images + 1):
        for c in range(images + 1 - b):
            if Fraction(b - c, images) > limit and compute_p_slowly(b, c) < Fraction(1, 100):
                ways = comb(images, b) * comb(images - b, c)
                total += ways * lost**b * gained**c * (1 - lost - gained) ** (images - b - c)
    return total


@pytest.mark.parametrize(
    ("b", "c"), [(0, 0), (1, 0), (7, 0), (0, 7), (12, 2), (30, 30), (31, 30), (90, 40)]
)
def test_the_one_sided_test_is_the_sum_of_the_binomial(b: int, c: int) -> None:
    assert compute_one_sided_mcnemar_p(b, c) == pytest.approx(
        float(compute_p_slowly(b, c)), rel=1e-9
    )


@pytest.mark.parametrize("images", [1, 7, 8, 30])
@pytest.mark.parametrize(("lost", "gained"), [(10, 2), (30, 0), (60, 5), (98, 2)])
def test_detection_is_the_sum_over_all_outcomes(images: int, lost: int, gained: int) -> None:
    shares = Fraction(lost, 100), Fraction(gained, 100)
    expected = float(compute_detection_slowly(images, *shares, Fraction(2, 100)))
    assert test_power.compute_loss_detection_probability(
        images, lost / 100, gained / 100, 0.02
    ) == pytest.approx(expected, abs=1e-9)


def test_300_images_show_a_loss_of_ten_points() -> None:
    for gained in (0.0, 0.02):
        assert test_power.compute_loss_detection_probability(300, 0.10, gained, 0.02) >= 0.95


def test_a_loss_is_visible_where_it_is_detected_and_one_step_less_is_not() -> None:
    visible = test_power.compute_detectable_loss_and_needed_images(42, 0.02)
    assert visible.loss is not None and visible.more is not None and visible.then is not None
    assert (
        test_power.compute_loss_detection_probability(42, visible.loss, test_power.GAINED, 0.02)
        >= test_power.DETECTED
    )
    assert (
        test_power.compute_loss_detection_probability(
            42, visible.loss - 0.001, test_power.GAINED, 0.02
        )
        < test_power.DETECTED
    )
    assert visible.then <= visible.loss / 2
    assert test_power.find_smallest_detectable_loss(42 + visible.more, 0.02) == visible.then


def test_too_few_images_show_no_loss_and_more_would() -> None:
    visible = test_power.compute_detectable_loss_and_needed_images(5, 0.02)
    assert visible.loss is None and visible.more and visible.then


def test_where_more_images_show_hardly_more_none_are_asked_for() -> None:
    visible = test_power.compute_detectable_loss_and_needed_images(5000, 0.02)
    assert visible.loss and (visible.more, visible.then) == (None, None)
