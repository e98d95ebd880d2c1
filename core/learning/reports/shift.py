"""Shift between a batch and earlier tasks, by features of a network that has learned neither.

Images of shared classes are compared, as many of a class on both sides: other classes, or other
shares of them, are no shift. Where no class is shared, all images are compared, and differ as other
classes do.

A well-trained network hardly responds to brightness. So a second test compares what its features
leave out: mean and standard deviation of each channel. p is twice the smaller of both (Bonferroni),
at most 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from core.contract.reports.data_report import ClassShift, Shift
from core.learning.analytic import discriminant
from core.learning.analytic.sums import FeatureSums
from core.learning.reports.mmd import run_mmd_permutation_test

MOST = 500
"""Maximum number of images on each side: more would show only negligible shifts."""
FEWEST = 20
"""Minimum number of images on each side; with fewer there is no result."""
FEWEST_OF_A_CLASS = 10
"""Minimum number of images of a class, on each side, for a figure of its own."""
MAX_CLASSES = 200
INSIDE = 0.95


class DataShiftSample(NamedTuple):
    """A sample of images for shift tests: features float [n, D], channel statistics `light`, float
    [n, 2 C], and class names.
    """

    features: Tensor
    light: Tensor
    labels: Sequence[str]


def compute_image_channel_statistics(images: Tensor) -> Tensor:
    """Compute mean and standard deviation of each image's channels, float32 [n, 2 C] in 0 to 1.

    images: uint8 [n, S, S, C].
    """
    pixels = images.float().flatten(1, 2) / 255
    return torch.cat([pixels.mean(1), pixels.std(1)], 1)


class ShiftTestResult(NamedTuple):
    """Result of the shift tests: MMD² of the features, the p-values of both tests, and a joint
    one.
    """

    mmd2: float
    p_features: float
    p_light: float
    p: float


def run_shift_tests_on_samples(
    one: DataShiftSample, other: DataShiftSample, generator: torch.Generator
) -> ShiftTestResult:
    """Test two samples of images for a shift of features, and of brightness and contrast."""
    by_features = run_mmd_permutation_test(one.features, other.features, generator)
    by_light = run_mmd_permutation_test(one.light, other.light, generator)
    return ShiftTestResult(
        by_features.mmd2, by_features.p, by_light.p, min(1.0, 2 * min(by_features.p, by_light.p))
    )


def measure_data_shift(
    new: DataShiftSample,
    earlier: DataShiftSample,
    *,
    by_class: bool,
    generator: torch.Generator,
) -> Shift | None:
    """Measure the data shift of a batch from earlier images; None if too few can be compared.

    Args:
        new: images of the batch.
        earlier: images of earlier tasks.
        by_class: True if equal names are one class; otherwise no class is shared.
        generator: on the CPU.
    """
    mine, theirs = _group_rows_by_class(new.labels), _group_rows_by_class(earlier.labels)
    shared = sorted(set(mine) & set(theirs)) if by_class else []
    comparison_scope: Literal["known classes", "all images"] = (
        "known classes" if shared else "all images"
    )
    # Other shares of the same classes are no shift, so each class counts equally on both sides.
    if shared:
        new_rows, other_rows = _draw_balanced_rows_by_class(mine, theirs, shared, generator)
    else:
        new_rows, other_rows = (
            _draw_random_rows(torch.arange(len(side.labels)), MOST, generator)
            for side in (new, earlier)
        )
    if min(len(new_rows), len(other_rows)) < FEWEST:
        return None
    result = run_shift_tests_on_samples(
        _select_sample_rows(new, new_rows), _select_sample_rows(earlier, other_rows), generator
    )
    return {
        "of": comparison_scope,
        "images": len(new_rows),
        "mmd2": result.mmd2,
        "p": result.p,
        "p_features": result.p_features,
        "p_light": result.p_light,
        "per_class": compute_outlier_shares_by_class(new, earlier, shared),
    }


def compute_outlier_shares_by_class(
    new: DataShiftSample, earlier: DataShiftSample, shared_classes: Sequence[str]
) -> list[ClassShift]:
    """Compute by class the share of new images that lie outside the earlier images of their class.

    Outside means beyond the distance within which 95 % of its earlier images lie. The distance is
    Mahalanobis' with one covariance for all classes (Lee et al. 2018, arXiv 1807.03888), shrunk by
    OAS. Mean and covariance are computed from one half of the earlier images, and the bound from
    the other half. The share is the mean of both ways round, so that images without a shift are
    outside in about 5 % of cases.
    """
    mine, theirs = _group_rows_by_class(new.labels), _group_rows_by_class(earlier.labels)
    # A share of fewer than ten images would be mostly chance.
    listed = [c for c in shared_classes if min(len(mine[c]), len(theirs[c])) >= FEWEST_OF_A_CLASS][
        :MAX_CLASSES
    ]
    if not listed:
        return []
    shares = torch.zeros(2, len(listed), dtype=torch.float64)
    # Both ways round: each half of the earlier images fits once, and sets the bound once.
    for half in range(2):
        fit = {c: theirs[c][half::2] for c in listed}
        distance = _fit_mahalanobis_distances(earlier.features, fit, listed)
        for i, c in enumerate(listed):
            bound = distance(earlier.features[theirs[c][1 - half :: 2]], i).quantile(INSIDE)
            shares[half, i] = (distance(new.features[mine[c]], i) > bound).double().mean()
    outside = shares.mean(0).tolist()
    return [
        {"label": c, "images": len(mine[c]), "earlier": len(theirs[c]), "outside": round(share, 4)}
        for c, share in zip(listed, outside, strict=True)
    ]


class _MahalanobisDistances(NamedTuple):
    """Squared Mahalanobis distances of features to class means."""

    means: Tensor
    factor: Tensor

    def __call__(self, features: Tensor, label: int) -> Tensor:
        away = (features.double() - self.means[label]).T
        # By the factor and not an inverse, which would lose digits.
        whitened: Tensor = torch.linalg.solve_triangular(self.factor, away, upper=False)
        return whitened.square().sum(0)


def _fit_mahalanobis_distances(
    features: Tensor, rows: dict[str, Tensor], classes: Sequence[str]
) -> _MahalanobisDistances:
    """Fit the class means and shared covariance of Mahalanobis distances to feature rows."""
    selected = torch.cat([rows[c] for c in classes])
    label = torch.cat([torch.full((len(rows[c]),), i) for i, c in enumerate(classes)])
    sums = FeatureSums.make_empty_sums(features.shape[1], len(classes))
    sums.add_examples(features[selected], label)
    sigma = discriminant.compute_shared_covariance(sums)
    # A share above 0 keeps the covariance invertible for features that do not vary.
    share = max(discriminant.compute_oas_shrinkage(sigma, sums.example_count), 1e-6)
    factor = discriminant.compute_covariance_cholesky_factor(
        discriminant.shrink_covariance(sigma, share), float(sums.gram.diagonal().mean())
    )
    return _MahalanobisDistances(sums.class_means, factor)


def _group_rows_by_class(labels: Sequence[str]) -> dict[str, Tensor]:
    """Group the rows of a sample by class name."""
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    return {label: torch.tensor(numbers) for label, numbers in rows.items()}


def _draw_balanced_rows_by_class(
    mine: dict[str, Tensor],
    theirs: dict[str, Tensor],
    shared_classes: Sequence[str],
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Draw equally many rows of each known class from both samples, `MOST` in total at most."""
    both = {c: min(len(mine[c]), len(theirs[c])) for c in shared_classes}
    share = min(1.0, MOST / max(1, sum(both.values())))
    # The same number on both sides: other shares of classes would look like a shift.
    quotas = {c: max(1, int(count * share)) for c, count in both.items()}
    sides = (
        torch.cat([_draw_random_rows(side[c], quotas[c], generator) for c in shared_classes])
        for side in (mine, theirs)
    )
    new_rows, other_rows = sides
    return new_rows, other_rows


def _select_sample_rows(sample: DataShiftSample, rows: Tensor) -> DataShiftSample:
    """Select rows of a sample of labelled images."""
    return DataShiftSample(
        sample.features[rows], sample.light[rows], [sample.labels[row] for row in rows.tolist()]
    )


def _draw_random_rows(rows: Tensor, max_rows: int, generator: torch.Generator) -> Tensor:
    """Draw up to `max_rows` rows at random."""
    return rows[torch.randperm(len(rows), generator=generator)[:max_rows]]
