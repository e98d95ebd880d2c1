"""MMD² equals a slow version in float64, and its permutation test rejects as often as it says."""

import numpy as np
import pytest
import torch

from core.learning.reports.mmd import compute_gaussian_kernel, run_mmd_permutation_test


def compute_slow_mmd(x: np.ndarray, y: np.ndarray) -> float:
    pooled = np.concatenate([x, y]).astype(np.float64)
    squares = [float(((a - b) ** 2).sum()) for i, a in enumerate(pooled) for b in pooled[i + 1 :]]
    median = sorted(squares)[(len(squares) - 1) // 2]

    def compute_kernel_mean(one: np.ndarray, other: np.ndarray, same: bool) -> float:
        values = [
            np.exp(-((a - b) ** 2).sum() / median)
            for i, a in enumerate(one.astype(np.float64))
            for j, b in enumerate(other.astype(np.float64))
            if not (same and i == j)
        ]
        return float(np.mean(values))

    return (
        compute_kernel_mean(x, x, True)
        + compute_kernel_mean(y, y, True)
        - 2 * compute_kernel_mean(x, y, False)
    )


@pytest.mark.parametrize(("m", "n", "moved"), [(2, 2, 0.0), (9, 14, 0.0), (20, 11, 1.5)])
def test_the_estimate_equals_the_slow_one(m: int, n: int, moved: float) -> None:
    generator = np.random.default_rng(m)
    x = generator.normal(size=(m, 5)).astype(np.float32)
    y = generator.normal(moved, 1, (n, 5)).astype(np.float32)
    found = run_mmd_permutation_test(
        torch.from_numpy(x), torch.from_numpy(y), torch.Generator().manual_seed(0), 10
    )
    assert found.mmd2 == pytest.approx(compute_slow_mmd(x, y), abs=1e-9)


def test_without_a_shift_one_in_twenty_is_below_five_percent() -> None:
    generator = torch.Generator().manual_seed(1)
    draws = [torch.randn(60, 4, generator=generator).split(30) for _ in range(200)]
    below = sum(run_mmd_permutation_test(x, y, generator, 100).p <= 0.05 for x, y in draws)
    assert 3 <= below <= 19  # binomial, 200 at 0.05: beyond these once in a thousand


def test_a_shift_is_found_and_p_is_as_small_as_permutations_allow() -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(60, 4, generator=generator), torch.randn(60, 4, generator=generator) + 1
    found = run_mmd_permutation_test(x, y, generator, 199)
    assert found.p == 1 / 200 and found.mmd2 > 0


def test_images_that_are_all_alike_have_no_shift() -> None:
    same = torch.ones(30, 3)
    found = run_mmd_permutation_test(same, same, torch.Generator().manual_seed(0), 50)
    assert found.p == 1.0 and found.mmd2 == pytest.approx(0, abs=1e-12)
    assert float(compute_gaussian_kernel(same).diagonal().sum()) == 0
