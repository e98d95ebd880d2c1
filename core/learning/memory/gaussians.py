"""Classes remembered as Gaussians of their features: a mean and a covariance each, and no image.

A class that came in several tasks is a mixture of their Gaussians, in the shares of their images.
Covariances are of one class (`full`, `diagonal`), or of all classes of a task about their own means
(`shared`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from core.learning.class_map import DROPPED, ClassMap
from core.learning.state import MethodStateSection

Covariance = Literal["shared", "diagonal", "full"]
WIDEST = 2048
"""Largest number of features for which a covariance is stored; one of that size takes 8 MB."""
RIDGE = 1e-4
"""Share of the mean variance added to each variance: the covariance of few images is singular."""


@dataclass(frozen=True)
class ClassGaussians:
    """Gaussians of each class's features, stored by task in a section of a method's state.

    Tensors of task t:

    - `t.rows` int64 [c]: the head's rows of its classes.
    - `t.counts` int64 [c]: images of each class.
    - `t.means` float32 [c, D].
    - `t.covariance` float32: `full` [c, D (D + 1) / 2], lower triangles by rows; `shared` [1, D (D
      + 1) / 2]; `diagonal` [c, D].
    """

    section: MethodStateSection

    def fit_and_store_task_gaussians(
        self, task: int, features: Tensor, labels: Tensor, rows: Tensor, kind: Covariance
    ) -> None:
        """Fit Gaussians to a task's features by class and store them, in place of any stored for
        the task.

        Args:
            task: number of the task.
            features: [n, D], any float type.
            labels: rows of the head, int64 [n].
            rows: rows of the task's classes, int64 [c], ascending; each has an image.
            kind: form of the covariance.
        """
        h, class_index = features.double(), torch.searchsorted(rows, labels)
        counts = torch.bincount(class_index, minlength=len(rows))
        means = h.new_zeros(len(rows), h.shape[1]).index_add_(0, class_index, h) / counts[:, None]
        away = h - means[class_index]
        if kind == "diagonal":
            sums = torch.zeros_like(means).index_add_(0, class_index, away.square())
            # A class with a single image has a sum of 0, which must not be divided by 0.
            covariance = sums / (counts - 1).clamp(min=1)[:, None]
        elif kind == "full":
            each = [
                _compute_packed_covariance(away[class_index == c], int(counts[c]) - 1)
                for c in range(len(rows))
            ]
            covariance = torch.stack(each)
        else:
            # Each class's own mean costs a degree of freedom.
            covariance = _compute_packed_covariance(away, len(h) - len(rows))[None]
        stored = {
            "rows": rows,
            "counts": counts,
            "means": means.float(),
            "covariance": covariance.float(),
        }
        self.section.tensors.update({f"{task}.{name}": tensor for name, tensor in stored.items()})

    def draw_gaussian_features(
        self, each: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw the same number of random features for every class from its Gaussians.

        Args:
            each: draws of a class, over all tasks that it came in.
            generator: on the CPU.

        Returns:
            Features float32 [n, D] and rows of the head int64 [n].
        """
        features, labels = [], []
        shares = self._split_draws_by_task(each)
        for task in self.list_stored_tasks():
            rows, means = self._get_tensor(task, "rows"), self._get_tensor(task, "means")
            roots = _compute_covariance_roots(self._get_tensor(task, "covariance"), means.shape[1])
            for at, row in enumerate(rows.tolist()):
                # Drawn on the CPU, so that a GPU trains on the same features.
                noise = torch.randn(shares[task, at], means.shape[1], generator=generator).to(
                    means.device
                )
                root = roots[at if len(roots) > 1 else 0]
                spread = noise * root if root.dim() == 1 else noise @ root.T
                features.append(means[at] + spread)
                labels.append(torch.full((len(noise),), row, device=means.device))
        return torch.cat(features), torch.cat(labels)

    def renumber_and_drop_classes(self, classes: ClassMap) -> None:
        """Renumber the classes of the stored Gaussians, and remove those of dropped classes.

        Several Gaussians of one task with the same number are a mixture.
        """
        for task in self.list_stored_tasks():
            names = ("rows", "counts", "means", "covariance")
            tensors = {name: self._get_tensor(task, name) for name in names}
            rows = classes.renumber_labels(tensors["rows"])
            kept_indices = (rows != DROPPED).nonzero().squeeze(1)
            # Either each row has a covariance of its own, or all share one, which stays.
            if len(tensors["covariance"]) == len(rows) and len(rows) > 1:
                tensors["covariance"] = tensors["covariance"][kept_indices]
            fields = {name: tensors[name][kept_indices] for name in ("counts", "means")}
            tensors |= {**fields, "rows": rows[kept_indices]}
            for name, tensor in tensors.items():
                if kept_indices.numel():
                    self.section.tensors[f"{task}.{name}"] = tensor
                else:
                    del self.section.tensors[f"{task}.{name}"]

    def list_stored_tasks(self) -> list[int]:
        """List the tasks whose Gaussians are stored, ascending."""
        return sorted({int(name.split(".")[0]) for name in self.section.tensors})

    def _get_tensor(self, task: int, name: str) -> Tensor:
        return self.section.tensors[f"{task}.{name}"]

    def _split_draws_by_task(self, each: int) -> dict[tuple[int, int], int]:
        """Split a class's number of draws among its Gaussians of several tasks, in proportion to
        their images.

        The remainder goes to the newest task.
        """
        images: dict[int, list[tuple[int, int, int]]] = {}
        for task in self.list_stored_tasks():
            rows, counts = (self._get_tensor(task, name).tolist() for name in ("rows", "counts"))
            for at, (row, count) in enumerate(zip(rows, counts, strict=True)):
                images.setdefault(row, []).append((task, at, count))
        shares: dict[tuple[int, int], int] = {}
        for parts in images.values():
            total, remaining_draws = sum(count for _, _, count in parts), each
            # Rounded down, so that the draws add up to `each` exactly.
            for task, at, count in parts[:-1]:
                shares[task, at] = each * count // total
                remaining_draws -= shares[task, at]
            shares[parts[-1][:2]] = remaining_draws
        return shares


def _compute_packed_covariance(away: Tensor, freedom: int) -> Tensor:
    """Compute the covariance of deviations float64 [n, D] from a mean, packed; zeros for a single
    one.
    """
    covariance = away.T @ away / max(1, freedom)
    rows, columns = torch.tril_indices(*covariance.shape)
    return covariance[rows, columns]


def _compute_covariance_roots(stored: Tensor, width: int) -> list[Tensor]:
    """Compute a square root L of each covariance plus a ridge, L Lᵀ = Σ + ridge · I, float32.

    L is [D, D], or [D] for diagonals.
    """
    # With a single feature both forms have one number, and either way of reading it will do.
    if stored.shape[1] == width and width > 1:
        return [(v + RIDGE * v.mean()).sqrt() for v in stored]
    rows, columns = torch.tril_indices(width, width)
    roots = []
    for packed in stored.double():
        sigma = packed.new_zeros(width, width)
        sigma[rows, columns] = packed
        sigma[columns, rows] = packed
        # A single image has no variance: a tiny ridge keeps the factorisation defined.
        ridge = RIDGE * float(sigma.diagonal().mean()) or 1e-12
        eye = torch.eye(width, dtype=sigma.dtype, device=sigma.device)
        roots.append(torch.linalg.cholesky(sigma + ridge * eye).float())
    return roots
