"""Squared error to scaled one-hot targets: a loss whose Hessian by the outputs is the identity.

l(f, y) = 1/2 ‖α · onehot(y) - f‖², summed over the outputs (Shon et al. 2022, section 3.1). A mean
over outputs would give each class less weight the more classes there are. Curvature then needs
neither labels nor sampled predictions, and the best rows of a linear head have a closed form.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

RIDGE = 1e-3
"""Ridge, in units of the mean squared feature.

It is enough for features that hardly vary or are collinear.
"""


def subtract_scaled_onehot_targets(outputs: Tensor, y: Tensor, alpha: float) -> Tensor:
    """Compute the gradient of the squared loss by the outputs: f - α · onehot(y), [B, C].

    It is in at least float32. y: int64 [B].
    """
    # Under autocast logits are bfloat16: α would outweigh the digits that are left.
    outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
    return outputs - alpha * functional.one_hot(y, outputs.shape[1])


def compute_squared_errors(outputs: Tensor, y: Tensor, alpha: float) -> Tensor:
    """Compute the squared error of every example, [B]. outputs: [B, C]. y: int64 [B]."""
    return 0.5 * subtract_scaled_onehot_targets(outputs, y, alpha).square().sum(1)


def append_column_of_ones(features: Tensor) -> Tensor:
    """Append a column of ones to features [B, w], for the bias."""
    return torch.cat([features, features.new_ones(features.shape[0], 1)], 1)


def fit_ridge_head(
    batches: Iterable[tuple[Tensor, Tensor]], classes: int, alpha: float
) -> tuple[Tensor, Tensor]:
    """Fit head weights [classes, w] and biases [classes] to features by ridge regression.

    Ridge regression: the weights, not the biases, are penalised by `RIDGE` times the mean squared
    feature. Solved in float64.

    Args:
        batches: (features [B, w], y int64 [B]).
        classes: number of rows.
        alpha: scale of the targets.

    Raises:
        ValueError: without examples.
    """
    gram: Tensor | None = None
    cross: Tensor | None = None
    n = 0
    for features, y in batches:
        # In float64: the normal equations square the condition number.
        z = append_column_of_ones(features.double())
        targets = alpha * functional.one_hot(y, classes).double()
        batch_gram, batch_cross = z.T @ z, z.T @ targets
        gram = batch_gram if gram is None else gram + batch_gram
        cross = batch_cross if cross is None else cross + batch_cross
        n += y.shape[0]
    if gram is None or cross is None or n == 0:
        raise ValueError("a head cannot be fitted to no examples")
    # Features that are all zero would make the system singular.
    pull = gram.diagonal()[:-1].mean().clamp_min(torch.finfo(torch.float64).tiny) * RIDGE
    penalty = torch.full((gram.shape[0],), float(pull), dtype=gram.dtype, device=gram.device)
    # The bias is not penalised.
    penalty[-1] = 0
    # Solved and not inverted, for all classes at once.
    solution = torch.linalg.solve(gram + penalty.diag(), cross).T
    return solution[:, :-1].contiguous(), solution[:, -1].contiguous()
