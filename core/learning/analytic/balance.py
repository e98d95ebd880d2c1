"""Class-balanced ridge regression: every class weighs the same, however many examples it has.

A plain ridge predicts rare classes too seldom: its targets are one-hot, so each example pulls
towards its own class. Here each example of class c weighs w_c = N / (C n_c). The weighted second
moments use the covariance that all classes share. The plain sums are then enough, and a class of
few examples borrows the directions of the others: G_w = Σ_c w_c n_c (Σ + μ_c μ_cᵀ) and Q_w = Q
diag(w), with Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

from core.learning.analytic import ridge
from core.learning.analytic.linear import list_row_block_slices
from core.learning.analytic.sums import FeatureSums


def weigh_classes_equally_in_sums(sums: FeatureSums) -> FeatureSums:
    """Weigh feature sums so that every class counts equally; a class without examples keeps
    zeros.
    """
    counts, mu = sums.counts, sums.class_means
    present = counts > 0
    each = sums.example_count / int(present.sum())
    gram = sums.scatter_within_classes + each * mu.T @ mu
    # Rounding leaves the matrix slightly asymmetric.
    return FeatureSums((gram + gram.T) / 2, each * mu.T, counts)


class RidgeLeaveOneOut:
    """Leave-one-out scores of class-balanced ridge regression, in closed form for any strength λ.

    Without example h of class c the shared covariance loses a multiple of (h − μ_c)(h − μ_c)ᵀ, and
    μ_c moves along h − μ_c. Both changes are of rank two in h and μ_c, on a matrix that all
    examples share, so Woodbury's identity applies. In the eigenvectors of that matrix each λ only
    adds to the eigenvalues.

    Args:
        sums: plain sums, which include the examples.
        h: float64 [n, K].
        labels: int64 [n]; the scores of a class's only example are NaN.
    """

    def __init__(self, sums: FeatureSums, h: Tensor, labels: Tensor) -> None:
        counts = sums.counts.to(h.dtype)
        mu = sums.class_means
        within = sums.scatter_within_classes
        # All in units of (N − 1) / C, the weight of a class: λ becomes λ C / (N − 1), each w_c n_c
        # becomes 1.
        self._unit = int((counts > 0).sum()) / (sums.example_count - 1)
        # One decomposition serves all λ: trying another one costs no further matrix.
        values, basis = torch.linalg.eigh(self._unit * (within + within.T) / 2 + mu.T @ mu)
        self._values = values.clamp(min=0)  # below zero by rounding only
        self._h, self._mu, self._labels = h @ basis, mu @ basis, labels
        self._own = self._mu[labels]
        self._square: Tensor | None = None
        self._n = n = counts[labels]
        # In the columns U = [h, μ_c] this is h − μ_c.
        residual = torch.stack([torch.ones_like(n), -torch.ones_like(n)], 1)
        self._moved = torch.stack([-1 / (n - 1), n / (n - 1)], 1)  # the mean without h, in U
        former = torch.stack([torch.zeros_like(n), torch.ones_like(n)], 1)
        removed = (self._unit * n / (n - 1))[:, None, None] * _compute_outer_products(residual)
        self._change = (
            _compute_outer_products(self._moved) - _compute_outer_products(former) - removed
        )

    def select_examples(self, rows: Tensor | slice) -> RidgeLeaveOneOut:
        """Return the leave-one-out statistics of selected examples.

        `rows`: bool, int64 indices, or a slice.
        """
        selected = copy(self)
        for name in ("_h", "_labels", "_own", "_n", "_moved", "_change"):
            setattr(selected, name, getattr(self, name)[rows])
        return selected

    def choose_strength(self, balanced: FeatureSums) -> float:
        """Choose the ridge strength λ with the least squared leave-one-out error, averaged over
        classes.

        Generalised cross-validation needs no examples, but mistakes an exact fit of repeated images
        for a good one: with fewer examples than features it then prefers the smallest λ. There must
        be an example, and two or more of each class that has any.

        Args:
            balanced: the balanced sums, which determine the grid of λ.
        """
        weights = (
            1
            / torch.bincount(self._labels, minlength=len(self._mu)).to(self._h.dtype)[self._labels]
        )

        def compute_weighted_error(strength: float) -> float:
            return float((self.measure_squared_errors_of_examples(strength) * weights).sum())

        # Of equal errors the larger λ wins, as in `ridge.choose_strength`: its solution is the
        # smoother.
        strengths = ridge.list_candidate_ridge_strengths(float(balanced.gram.diagonal().mean()))
        return min(strengths, key=lambda strength: (compute_weighted_error(strength), -strength))

    def compute_scores(self, strength: float) -> Tensor:
        """Compute leave-one-out scores at ridge strength λ = `strength`, float64 [n, C]."""
        blocks = list_row_block_slices(self._h)
        return torch.cat(
            [self.select_examples(rows)._compute_scores_of_block(strength) for rows in blocks]
        )

    def measure_squared_errors_of_examples(self, strength: float) -> Tensor:
        """Compute the squared distance of each example's leave-one-out scores from its one-hot
        target.

        The shape is [n].
        """
        blocks = list_row_block_slices(self._h)
        # Scores of single classes take two products with all means, and their squares one with all
        # features.
        if 2 * len(self._mu) <= self._mu.shape[1]:
            parts = [
                self.select_examples(rows)._compute_squared_errors_per_example(strength)
                for rows in blocks
            ]
        else:
            if self._square is None:
                self._square = self._mu.T @ self._mu
            parts = [
                self.select_examples(rows)._compute_squared_errors_jointly(strength)
                for rows in blocks
            ]
        return torch.cat(parts)

    def _compute_scores_of_block(self, strength: float) -> Tensor:
        scores, own_scores = self._compute_other_and_own_scores(strength)
        scores[torch.arange(len(own_scores), device=own_scores.device), self._labels] = own_scores
        # Without its only example a class has no mean, so these scores do not exist.
        without: Tensor = scores.masked_fill((self._n < 2)[:, None], torch.nan)
        return without

    def _compute_squared_errors_per_example(self, strength: float) -> Tensor:
        scores, own_scores = self._compute_other_and_own_scores(strength)
        rows = torch.arange(len(own_scores), device=own_scores.device)
        scores[rows, self._labels] = own_scores - 1
        errors: Tensor = scores.square().sum(1)
        return errors

    def _compute_squared_errors_jointly(self, strength: float) -> Tensor:
        """Sum each example's squared scores for all classes at once, since Σ_k (vᵀμ_k)² = vᵀ(Σ_k
        μ_k μ_kᵀ)v.

        With more classes than half the features this takes less time.
        """
        assert self._square is not None
        h, own_mean, inverse = self._h, self._own, self._compute_inverse_eigenvalues(strength)
        h_inverse, own_inverse = h * inverse, own_mean * inverse  # hᵀB⁻¹, μ_cᵀB⁻¹
        coefficients, own_scores = self._compute_left_out_score_change(
            (h_inverse * h).sum(1),
            (h_inverse * own_mean).sum(1),
            (own_inverse * own_mean).sum(1),
        )
        towards = (1 - coefficients[:, :1]) * h_inverse - coefficients[:, 1:] * own_inverse
        all_squares = ((towards @ self._square) * towards).sum(1)
        # The sum scores the own class with its full mean: exchange that term for the left-out one.
        errors: Tensor = (
            all_squares - (towards * own_mean).sum(1).square() + (own_scores - 1).square()
        )
        return errors

    def _compute_other_and_own_scores(self, strength: float) -> tuple[Tensor, Tensor]:
        """Compute leave-one-out scores: [n, C] for classes other than an example's own, and [n] for
        its own.
        """
        inverse = self._compute_inverse_eigenvalues(strength)
        weighted = inverse[:, None] * self._mu.T  # B⁻¹μ_k, [K, C]
        h_mu = self._h @ weighted
        # The product has as many rows as there are classes, or examples if those are fewer.
        by_class = len(self._mu) <= len(self._h)
        own_mu = (self._mu @ weighted)[self._labels] if by_class else self._own @ weighted
        own_classes = self._labels[:, None]
        coefficients, own_scores = self._compute_left_out_score_change(
            self._h.square() @ inverse,
            h_mu.gather(1, own_classes)[:, 0],
            own_mu.gather(1, own_classes)[:, 0],
        )
        scores: Tensor = (1 - coefficients[:, :1]) * h_mu - coefficients[:, 1:] * own_mu
        return scores, own_scores

    def _compute_inverse_eigenvalues(self, strength: float) -> Tensor:
        """Return the diagonal of the regularised inverse B⁻¹ in its eigenvector basis, [K]."""
        inverse: Tensor = 1 / (self._values + strength * self._unit)
        return inverse

    def _compute_left_out_score_change(
        self, hh: Tensor, hm: Tensor, mm: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the change of an example's scores when it is left out, and the score of its own
        class.

        Args:
            hh: hᵀB⁻¹h, [n].
            hm: hᵀB⁻¹μ_c, [n].
            mm: μ_cᵀB⁻¹μ_c, [n].

        Returns:
            The coefficients [n, 2] of hᵀB⁻¹ and μ_cᵀB⁻¹, and the scores [n] of the own class.
        """
        # UᵀB⁻¹U, [n, 2, 2].
        inner = torch.stack([torch.stack([hh, hm], 1), torch.stack([hm, mm], 1)], 1)
        identity = torch.eye(2, dtype=hh.dtype, device=hh.device)
        # Woodbury: I + change · inner is solved, not inner inverted, since `inner` is singular
        # where h and μ_c are parallel.
        middle = torch.linalg.solve(identity + self._change @ inner, self._change)
        coefficients = (inner[:, :1] @ middle)[:, 0]
        # The own class is scored with its mean without the example.
        moved = (inner @ self._moved[:, :, None])[:, :, 0]
        return coefficients, moved[:, 0] - (coefficients * moved).sum(1)


def _compute_outer_products(vectors: Tensor) -> Tensor:
    return vectors[:, :, None] * vectors[:, None, :]
