"""Two-sample test by the squared maximum mean discrepancy (MMD), with permutations.

Gretton et al. 2012 (JMLR 13): MMD²_u = mean of k over pairs of x + mean over pairs of y − 2 · mean
over pairs (x, y), the unbiased estimate, with k(a, b) = exp(−‖a − b‖² / 2σ²) and σ² half the median
of all squared distances. Under the null hypothesis every split of the pooled sample is equally
probable, so p = (1 + #{as large}) / (1 + permutations) is valid at any size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PERMUTATIONS = 500


class MmdTestResult(NamedTuple):
    """An MMD² estimate, which may be below 0, with its p-value."""

    mmd2: float
    p: float


def run_mmd_permutation_test(
    x: Tensor, y: Tensor, generator: torch.Generator, permutations: int = PERMUTATIONS
) -> MmdTestResult:
    """Test whether two samples have the same distribution, by MMD² and a permutation test.

    Args:
        x: float [m, D], m ≥ 2.
        y: float [n, D], n ≥ 2.
        generator: on the CPU; draws the permutations.
        permutations: number of random splits.
    """
    # In float64 on the CPU: the same p-value on every machine.
    pooled = torch.cat([x, y]).double().cpu()
    kernel = compute_gaussian_kernel(pooled)
    m, total = len(x), len(pooled)
    first = torch.zeros(total, permutations + 1, dtype=torch.float64)
    first[:m, 0] = 1
    for column in range(1, permutations + 1):
        # Splits as columns of one matrix: a single product gives the estimates of all permutations.
        first[torch.randperm(total, generator=generator)[:m], column] = 1
    estimates = _estimate_mmd_of_each_permutation_split(kernel, first, m)
    # A difference by rounding alone counts as equally large.
    as_large = int((estimates[1:] >= estimates[0] - 1e-12).sum())
    # The split at hand counts as one of the permutations, or p could be 0.
    return MmdTestResult(float(estimates[0]), (1 + as_large) / (1 + permutations))


def compute_gaussian_kernel(points: Tensor) -> Tensor:
    """Compute the Gaussian kernel of all pairs of points, float64 [N, N], with a zero diagonal."""
    # Centred points lose fewer digits in the difference of products below.
    points = points - points.mean(0)
    square = points.square().sum(1)
    distance = (square[:, None] + square - 2 * points @ points.T).clamp_(min=0)
    apart = distance[torch.triu(torch.ones_like(distance, dtype=torch.bool), 1)]
    # Where most points are equal the median is 0: any positive scale will do.
    median = float(apart.median()) or 1.0
    return torch.exp(-distance / median).fill_diagonal_(0)


def _estimate_mmd_of_each_permutation_split(kernel: Tensor, first: Tensor, m: int) -> Tensor:
    """Estimate MMD² (unbiased) of each random split of the pooled sample.

    Column s of `first` has ones for the m rows of the first sample.
    """
    n = len(kernel) - m
    reach = kernel @ first
    xx = (reach * first).sum(0)
    x_all = reach.sum(0)
    yy = kernel.sum() - 2 * x_all + xx
    return xx / (m * (m - 1)) + yy / (n * (n - 1)) - 2 * (x_all - xx) / (m * n)
