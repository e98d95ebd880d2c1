"""Counting flips against a slow version, and intervals and p against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from core.statistics import flips
from core.statistics.flips import PredictionFlipCounts

Masks = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 4)), max_size=60)


def count_flips_slowly(rows: list[tuple[bool, bool, int]]) -> PredictionFlipCounts:
    """Count the flips image by image."""
    counts = [0, 0, 0, 0]
    for old, new, _ in rows:
        counts[0 if old and new else 1 if old else 2 if new else 3] += 1
    return PredictionFlipCounts(*counts)


@given(Masks)
def test_counts_are_those_of_a_loop_over_images(rows: list[tuple[bool, bool, int]]) -> None:
    old, new = (np.array([row[i] for row in rows], bool) for i in (0, 1))
    assert flips.count_prediction_flips(old, new) == count_flips_slowly(rows)
    groups = np.array([row[2] for row in rows], np.int64)
    found = flips.count_prediction_flips_by_group(groups, 5, old, new)
    assert [PredictionFlipCounts(*row) for row in found.tolist()] == [
        count_flips_slowly([r for r in rows if r[2] == g]) for g in range(5)
    ]


def compute_exact_p(b: int, c: int) -> float:
    """Return McNemar's exact p, computed in whole numbers."""
    n, least = b + c, min(b, c)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(least + 1)) / 2**n)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_the_sum_of_the_binomial_in_whole_numbers(b: int, c: int) -> None:
    assert flips.compute_two_sided_mcnemar_p(b, c) == pytest.approx(compute_exact_p(b, c), rel=1e-9)
    assert flips.compute_two_sided_mcnemar_p(b, c) == flips.compute_two_sided_mcnemar_p(c, b)


def test_mcnemar_of_many_flips_is_that_of_scipy() -> None:
    for b, c in ((100_000, 101_000), (3, 40_000), (500_000, 500_000)):
        assert flips.compute_two_sided_mcnemar_p(b, c) == pytest.approx(
            stats.binomtest(b, b + c).pvalue, rel=1e-6, abs=1e-300
        )


@given(st.integers(1, 2000), st.data())
def test_the_interval_is_that_of_wilson(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    wanted = stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert flips.compute_wilson_interval(k, n) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def test_without_images_there_is_no_rate() -> None:
    assert (
        PredictionFlipCounts().negative_flip_rate is None
        and flips.compute_wilson_interval(0, 0) is None
        and flips.compute_two_sided_mcnemar_p(0, 0) == 1.0
    )
