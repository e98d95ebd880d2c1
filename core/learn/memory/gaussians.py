"""Classes remembered as Gaussians of their features: a mean and a covariance for each, and no image.

A class that came in several tasks is a mixture of what they left, in the shares of their images. Covariances
are of one class (`full`, `diagonal`), or of all classes of a task about their own means (`shared`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from core.learn.state import Section

Covariance = Literal["shared", "diagonal", "full"]
WIDEST = 2048
"""Features up to which a covariance is kept; one of so many takes 8 MB."""
RIDGE = 1e-4
"""Share of the mean variance that is added to each: a covariance of few images cannot be drawn from as it is."""


@dataclass(frozen=True)
class Gaussians:
    """The Gaussians in a section of a method's state, by task.

    Tensors of task t: `t.rows` int64 [c], the head's rows of its classes; `t.counts` int64 [c], images of
    each; `t.means` float32 [c, D]; `t.covariance` float32: `full` [c, D (D + 1) / 2], lower triangles by
    rows; `shared` [1, …] the same;
    `diagonal` [c, D].
    """

    section: Section

    def put(self, task: int, features: Tensor, labels: Tensor, rows: Tensor, kind: Covariance) -> None:
        """Keep what a task's features say; what was kept of it before goes.

        Args:
            features: [n, D], any float type.
            labels: rows of the head, int64 [n].
            rows: those of the task's classes, int64 [c], ascending; each has an image.
        """
        h, own = features.double(), torch.searchsorted(rows, labels)
        counts = torch.bincount(own, minlength=len(rows))
        means = h.new_zeros(len(rows), h.shape[1]).index_add_(0, own, h) / counts[:, None]
        away = h - means[own]
        if kind == "diagonal":
            sums = torch.zeros_like(means).index_add_(0, own, away.square())
            covariance = sums / (counts - 1).clamp(min=1)[:, None]
        elif kind == "full":
            each = [_moment(away[own == c], int(counts[c]) - 1) for c in range(len(rows))]
            covariance = torch.stack(each)
        else:
            covariance = _moment(away, len(h) - len(rows))[None]
        kept = {"rows": rows, "counts": counts, "means": means.float(), "covariance": covariance.float()}
        self.section.tensors.update({f"{task}.{name}": tensor for name, tensor in kept.items()})

    def draw(self, each: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """As many features of every class, one class after the other within a task.

        Args:
            each: draws of a class, over all tasks that it came in.

        Returns float32 [n, D] and rows of the head int64 [n].
        """
        features, labels = [], []
        shares = self._shares(each)
        for task in self.tasks():
            rows, means = self._of(task, "rows"), self._of(task, "means")
            roots = _roots(self._of(task, "covariance"), means.shape[1])
            for at, row in enumerate(rows.tolist()):
                noise = torch.randn(shares[task, row], means.shape[1], generator=generator).to(means.device)
                root = roots[at if len(roots) > 1 else 0]
                spread = noise * root if root.dim() == 1 else noise @ root.T
                features.append(means[at] + spread)
                labels.append(torch.full((len(noise),), row, device=means.device))
        return torch.cat(features), torch.cat(labels)

    def tasks(self) -> list[int]:
        """The tasks of which something is kept, ascending."""
        return sorted({int(name.split(".")[0]) for name in self.section.tensors})

    def _of(self, task: int, name: str) -> Tensor:
        return self.section.tensors[f"{task}.{name}"]

    def _shares(self, each: int) -> dict[tuple[int, int], int]:
        """(task, row) → draws: of a class in the shares of its images, what is left over to the newest task."""
        images: dict[int, list[tuple[int, int]]] = {}
        for task in self.tasks():
            for row, count in zip(
                *(self._of(task, name).tolist() for name in ("rows", "counts")), strict=True
            ):
                images.setdefault(row, []).append((task, count))
        found: dict[tuple[int, int], int] = {}
        for row, parts in images.items():
            total, left = sum(count for _, count in parts), each
            for task, count in parts[:-1]:
                found[task, row] = each * count // total
                left -= found[task, row]
            found[parts[-1][0], row] = left
        return found


def _moment(away: Tensor, freedom: int) -> Tensor:
    """The covariance of deviations float64 [n, D], packed; zeros of a single one."""
    covariance = away.T @ away / max(1, freedom)
    rows, columns = torch.tril_indices(*covariance.shape)
    return covariance[rows, columns]


def _roots(stored: Tensor, width: int) -> list[Tensor]:
    """L with L Lᵀ = Σ + ridge · I, float32 [D, D] of each; of diagonals their square roots [D]."""
    if stored.shape[1] == width and width > 1:
        return [(v + RIDGE * v.mean()).sqrt() for v in stored]
    rows, columns = torch.tril_indices(width, width)
    found = []
    for packed in stored.double():
        sigma = packed.new_zeros(width, width)
        sigma[rows, columns] = packed
        sigma[columns, rows] = packed
        ridge = RIDGE * float(sigma.diagonal().mean()) or 1e-12
        eye = torch.eye(width, dtype=sigma.dtype, device=sigma.device)
        found.append(torch.linalg.cholesky(sigma + ridge * eye).float())
    return found
