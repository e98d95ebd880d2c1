"""Statistics against slow, obvious versions and scipy's."""

import math
import statistics as stdlib

import numpy as np
import pytest
from scipy import stats

from bench.experiment import statistics


def draw_values(n, seed=0, ties=False):
    values = np.random.default_rng(seed).normal(size=n)
    return values.round(0) if ties else values


def compute_slow_pearson(x, y):
    mx, my = stdlib.fmean(x), stdlib.fmean(y)
    top = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return top / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))


def compute_slow_ranks(x):
    return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]


def compute_slow_tau(x, y):
    pairs = [(i, j) for i in range(len(x)) for j in range(i)]
    agree = sum(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i, j in pairs)
    return agree / math.sqrt(
        sum(x[i] != x[j] for i, j in pairs) * sum(y[i] != y[j] for i, j in pairs)
    )


def test_the_t_interval_of_a_textbook_sample():
    # n = 4, sd = sqrt(5/3), t(0.975, 3) = 3.182446
    low, high = statistics.compute_t_interval([1.0, 2.0, 3.0, 4.0])
    half = 3.182446305284263 * math.sqrt(5 / 3) / 2
    assert (low, high) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-12)
    assert (low, high) == pytest.approx(
        stats.ttest_1samp([1, 2, 3, 4], 0).confidence_interval(0.95)
    )


def test_one_value_has_neither_deviation_nor_interval():
    assert statistics.compute_standard_deviation([1.0]) is None
    assert statistics.compute_t_interval([1.0]) is None
    assert statistics.compute_mean_with_interval([math.nan, 2.0]) == (2.0, None)
    assert statistics.compute_mean_with_interval([math.nan]) == (None, None)


@pytest.mark.parametrize("ties", [False, True])
def test_correlations_equal_their_definitions(ties):
    x, y = draw_values(12, 1, ties), draw_values(12, 2, ties) + 0.5 * draw_values(12, 1, ties)
    assert statistics.compute_pearson_correlation(x, y) == pytest.approx(
        compute_slow_pearson(x, y), abs=1e-12
    )
    assert statistics.compute_spearman_correlation(x, y) == pytest.approx(
        compute_slow_pearson(compute_slow_ranks(x), compute_slow_ranks(y)), abs=1e-12
    )
    assert statistics.compute_kendall_tau(x, y) == pytest.approx(compute_slow_tau(x, y), abs=1e-12)
    assert statistics.compute_pearson_correlation(x, y) == pytest.approx(
        stats.pearsonr(x, y)[0], abs=1e-12
    )
    assert statistics.compute_spearman_correlation(x, y) == pytest.approx(
        stats.spearmanr(x, y)[0], abs=1e-12
    )
    assert statistics.compute_kendall_tau(x, y) == pytest.approx(
        stats.kendalltau(x, y)[0], abs=1e-12
    )


@pytest.mark.parametrize(
    "coefficient",
    [
        statistics.compute_pearson_correlation,
        statistics.compute_spearman_correlation,
        statistics.compute_kendall_tau,
    ],
)
def test_missing_points_count_for_nothing(coefficient):
    x, y = draw_values(9, 1), draw_values(9, 2)
    x_gap, y_gap = x.copy(), y.copy()
    x_gap[2] = y_gap[5] = np.nan
    there = [0, 1, 3, 4, 6, 7, 8]
    assert coefficient(x_gap, y_gap) == pytest.approx(coefficient(x[there], y[there]), abs=1e-12)


@pytest.mark.parametrize(
    "coefficient",
    [
        statistics.compute_pearson_correlation,
        statistics.compute_spearman_correlation,
        statistics.compute_kendall_tau,
    ],
)
def test_rows_are_independent_of_each_other(coefficient):
    x, y = draw_values(30, 1).reshape(3, 10), draw_values(30, 2).reshape(3, 10)
    x[1] = 4.0
    found = coefficient(x, y)
    assert np.isnan(found[1])
    for row in (0, 2):
        assert found[row] == coefficient(x[row], y[row])


def test_two_points_or_no_variation_have_no_correlation():
    for coefficient in (
        statistics.compute_pearson_correlation,
        statistics.compute_spearman_correlation,
    ):
        assert np.isnan(coefficient(np.array([1.0, 2.0]), np.array([1.0, 2.0])))
        assert np.isnan(coefficient(np.full(5, 0.1), draw_values(5)))
        assert np.isnan(coefficient(draw_values(5), np.full(5, 0.1)))
    assert np.isnan(statistics.compute_kendall_tau(np.ones(4), draw_values(4)))


def test_the_bootstrap_of_a_mean_agrees_with_its_standard_error():
    values = draw_values(200, 3)
    value, (low, high) = statistics.bootstrap_statistic_interval(
        200, lambda draws: values[draws].mean(1)
    )
    assert value == pytest.approx(values.mean())
    error = values.std(ddof=1) / math.sqrt(200)
    assert (low, high) == pytest.approx(
        (value - 1.96 * error, value + 1.96 * error), abs=0.15 * error
    )


def test_the_bootstrap_is_the_same_every_time_and_draws_whole_repetitions():
    seen = []

    def record_and_compute_mean(draws):
        seen.append(draws)
        return draws.mean(1)

    assert statistics.bootstrap_statistic_interval(
        5, record_and_compute_mean
    ) == statistics.bootstrap_statistic_interval(5, record_and_compute_mean)
    assert seen[0].tolist() == [[0, 1, 2, 3, 4]]
    assert seen[1].shape == (statistics.RESAMPLES, 5)
    assert (seen[1] == seen[3]).all()


def test_a_statistic_that_is_mostly_undefined_has_no_interval():
    def build_undefined_statistic(share):
        return lambda draws: np.where(np.arange(len(draws)) < share * len(draws), np.nan, 1.0)

    assert statistics.bootstrap_statistic_interval(
        3, lambda draws: np.full(len(draws), np.nan)
    ) == (
        None,
        None,
    )
    half = lambda draws: build_undefined_statistic(0.5)(draws) if len(draws) > 1 else np.ones(1)  # noqa: E731
    some = lambda draws: build_undefined_statistic(0.4)(draws) if len(draws) > 1 else np.ones(1)  # noqa: E731
    assert statistics.bootstrap_statistic_interval(3, half) == (1.0, None)
    assert statistics.bootstrap_statistic_interval(3, some) == (1.0, (1.0, 1.0))
    assert statistics.bootstrap_statistic_interval(1, lambda draws: np.ones(len(draws))) == (
        1.0,
        None,
    )
