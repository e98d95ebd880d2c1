"""How the images of a batch differ from those of earlier tasks, by features of a network that has learned neither.

Compared are images of classes that both have, as many of a class on both sides: a batch with other classes, or with
other shares of them, has not shifted for that. Where no class is shared, all images are compared, and differ as other
classes do.

A network that was trained well hardly sees that images are brighter. So a second test compares what its features leave
out: mean and standard deviation of each channel. p is twice the smaller of both (Bonferroni), at most 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from core.learn.analytic import discriminant
from core.learn.analytic.sums import Sums
from core.learn.mmd import discrepancy
from core.protocol.data_report import ClassShift, Shift

MOST = 500
"""Images of each side: what more would show is hardly worth telling."""
FEWEST = 20
"""Images of each side below which nothing is told."""
FEWEST_OF_A_CLASS = 10
"""Images of a class, on each side, below which it is not told apart."""
MAX_CLASSES = 200
INSIDE = 0.95


class Labelled(NamedTuple):
    """Of n images: features float [n, D], what `light` says float [n, 2 C], and class names."""

    features: Tensor
    light: Tensor
    labels: Sequence[str]


def light(images: Tensor) -> Tensor:
    """float32 [n, 2 C], 0 to 1: mean and standard deviation of each channel of images uint8 [n, S, S, C]."""
    pixels = images.float().flatten(1, 2) / 255
    return torch.cat([pixels.mean(1), pixels.std(1)], 1)


class Compared(NamedTuple):
    """MMD² of the features, the p of both tests, and p of both together."""

    mmd2: float
    p_features: float
    p_light: float
    p: float


def compared(one: Labelled, other: Labelled, generator: torch.Generator) -> Compared:
    """Both tests."""
    seen = discrepancy(one.features, other.features, generator)
    lit = discrepancy(one.light, other.light, generator)
    return Compared(seen.mmd2, seen.p, lit.p, min(1.0, 2 * min(seen.p, lit.p)))


def shift(new: Labelled, earlier: Labelled, *, by_class: bool, generator: torch.Generator) -> Shift | None:
    """Compare a batch with earlier images; None where too few can be compared.

    Args:
        by_class: whether equal names are one class; else none is shared.
    """
    mine, theirs = _by_name(new.labels), _by_name(earlier.labels)
    known = sorted(set(mine) & set(theirs)) if by_class else []
    of: Literal["known classes", "all images"] = "known classes" if known else "all images"
    if known:
        one, other = _alike(mine, theirs, known, generator)
    else:
        one, other = (_some(torch.arange(len(side.labels)), MOST, generator) for side in (new, earlier))
    if min(len(one), len(other)) < FEWEST:
        return None
    found = compared(_picked(new, one), _picked(earlier, other), generator)
    return {
        "of": of,
        "images": len(one),
        "mmd2": found.mmd2,
        "p": found.p,
        "p_features": found.p_features,
        "p_light": found.p_light,
        "per_class": per_class(new, earlier, known),
    }


def per_class(new: Labelled, earlier: Labelled, known: Sequence[str]) -> list[ClassShift]:
    """The share of new images outside of their class: beyond the distance that 95 % of its earlier images have.

    The distance is Mahalanobis' with one covariance for all classes (Lee et al. 2018, arXiv 1807.03888), shrunk by OAS.
    Mean and covariance are made of one half of the earlier images, and the bound of the other half; the share
    is the mean of both ways round, so that images without a shift are outside in about 5 % of cases.
    """
    mine, theirs = _by_name(new.labels), _by_name(earlier.labels)
    told = [c for c in known if min(len(mine[c]), len(theirs[c])) >= FEWEST_OF_A_CLASS][:MAX_CLASSES]
    if not told:
        return []
    shares = torch.zeros(2, len(told), dtype=torch.float64)
    for turn in range(2):
        fit = {c: theirs[c][turn::2] for c in told}
        distance = _distances(earlier.features, fit, told)
        for i, c in enumerate(told):
            bound = distance(earlier.features[theirs[c][1 - turn :: 2]], i).quantile(INSIDE)
            shares[turn, i] = (distance(new.features[mine[c]], i) > bound).double().mean()
    outside = shares.mean(0).tolist()
    return [
        {"label": c, "images": len(mine[c]), "earlier": len(theirs[c]), "outside": round(share, 4)}
        for c, share in zip(told, outside, strict=True)
    ]


class _Distance(NamedTuple):
    """Squared Mahalanobis distances to class means."""

    means: Tensor
    factor: Tensor

    def __call__(self, features: Tensor, label: int) -> Tensor:
        away = (features.double() - self.means[label]).T
        whitened: Tensor = torch.linalg.solve_triangular(self.factor, away, upper=False)
        return whitened.square().sum(0)


def _distances(features: Tensor, rows: dict[str, Tensor], classes: Sequence[str]) -> _Distance:
    taken = torch.cat([rows[c] for c in classes])
    label = torch.cat([torch.full((len(rows[c]),), i) for i, c in enumerate(classes)])
    sums = Sums.zero(features.shape[1], len(classes))
    sums.add(features[taken], label)
    sigma = discriminant.covariance(sums)
    share = max(discriminant.oas(sigma, sums.examples), 1e-6)
    factor = discriminant.factor(discriminant.shrunk(sigma, share), float(sums.gram.diagonal().mean()))
    return _Distance(discriminant.means(sums), factor)


def _by_name(labels: Sequence[str]) -> dict[str, Tensor]:
    """Class → its rows."""
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    return {label: torch.tensor(found) for label, found in rows.items()}


def _alike(
    mine: dict[str, Tensor], theirs: dict[str, Tensor], known: Sequence[str], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """As many rows of each known class on both sides, `MOST` at most."""
    both = {c: min(len(mine[c]), len(theirs[c])) for c in known}
    share = min(1.0, MOST / max(1, sum(both.values())))
    wanted = {c: max(1, int(count * share)) for c, count in both.items()}
    sides = (torch.cat([_some(side[c], wanted[c], generator) for c in known]) for side in (mine, theirs))
    one, other = sides
    return one, other


def _picked(of: Labelled, rows: Tensor) -> Labelled:
    return Labelled(of.features[rows], of.light[rows], [of.labels[row] for row in rows.tolist()])


def _some(rows: Tensor, most: int, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)[:most]]
