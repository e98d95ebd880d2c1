"""The squared error to scaled one-hot targets, and the head that fits it best."""

import pytest
import torch
from torch.nn import functional

from core.learning.methods.squared_loss import (
    RIDGE,
    append_column_of_ones,
    compute_squared_errors,
    fit_ridge_head,
    subtract_scaled_onehot_targets,
)


def draw_outputs(n=5, classes=4, seed=0):
    return torch.randn(
        n, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


Y = torch.tensor([1, 0, 3, 3, 2])


def test_it_is_half_the_squared_distance_summed_over_outputs() -> None:
    f = torch.tensor([[1.0, 2.0], [0.0, -1.0]], dtype=torch.float64)
    # 1/2 ((1 - 15)^2 + 2^2) and 1/2 (0 + (-1 - 15)^2)
    assert compute_squared_errors(f, torch.tensor([0, 1]), 15.0).tolist() == [100.0, 128.0]


@pytest.mark.parametrize("alpha", [1.0, 15.0])
def test_its_gradient_is_the_residual(alpha) -> None:
    f = draw_outputs().requires_grad_()
    compute_squared_errors(f, Y, alpha).sum().backward()
    assert torch.equal(f.grad, subtract_scaled_onehot_targets(f.detach(), Y, alpha))


def test_its_second_derivative_by_the_outputs_is_the_identity() -> None:
    for row, y in zip(draw_outputs(), Y, strict=True):
        hessian = torch.autograd.functional.hessian(
            lambda f, y=y: compute_squared_errors(f[None], y[None], 15.0)[0], row
        )
        assert torch.equal(hessian, torch.eye(4, dtype=torch.float64))


def test_the_mean_form_of_torch_is_another_loss() -> None:
    """It divides by the classes and lacks the half: 2/C times ours."""
    f = draw_outputs()
    of_torch = functional.mse_loss(f, 15.0 * functional.one_hot(Y, 4))
    assert float(of_torch) == pytest.approx(
        2 / 4 * float(compute_squared_errors(f, Y, 15.0).mean())
    )


def test_an_output_that_is_zero_for_a_class_not_shown_adds_nothing_and_learns_nothing() -> None:
    f = functional.pad(draw_outputs(), (0, 2)).requires_grad_()
    losses = compute_squared_errors(f, Y, 15.0)
    assert torch.equal(losses, compute_squared_errors(draw_outputs(), Y, 15.0))
    losses.sum().backward()
    assert not f.grad[:, 4:].any()


def test_half_precision_outputs_are_compared_in_float32() -> None:
    f = draw_outputs().bfloat16()
    assert subtract_scaled_onehot_targets(f, Y, 15.0).dtype == torch.float32
    assert torch.equal(
        compute_squared_errors(f, Y, 15.0), compute_squared_errors(f.float(), Y, 15.0)
    )


def test_a_column_of_ones_stands_for_the_bias() -> None:
    assert append_column_of_ones(torch.tensor([[2.0, 3.0]])).tolist() == [[2.0, 3.0, 1.0]]


def test_the_ridge_head_is_the_minimum_of_its_objective() -> None:
    torch.manual_seed(0)
    z, y = torch.randn(40, 6, dtype=torch.float64), torch.randint(0, 3, (40,))
    rows, biases = fit_ridge_head(zip(z.split(7), y.split(7), strict=True), 3, 15.0)
    rows.requires_grad_(), biases.requires_grad_()
    pull = RIDGE * z.square().mean()
    loss = (
        compute_squared_errors(z @ rows.T + biases, y, 15.0).mean() + pull / 2 * rows.square().sum()
    )
    for gradient in torch.autograd.grad(loss, (rows, biases)):
        assert float(gradient.abs().max()) < 1e-10


def test_features_that_repeat_each_other_still_have_a_ridge_head() -> None:
    z = torch.ones(4, 3, dtype=torch.float32)
    rows, biases = fit_ridge_head([(z, torch.tensor([0, 1, 0, 1]))], 2, 15.0)
    assert torch.isfinite(rows).all() and rows.dtype == torch.float64
    assert (z.double() @ rows.T + biases).flatten().tolist() == pytest.approx([7.5] * 8)


def test_a_head_for_a_class_that_is_not_shown_answers_zero() -> None:
    rows, biases = fit_ridge_head([(draw_outputs(), torch.tensor([0, 1, 0, 1, 0]))], 3, 15.0)
    assert float(rows[2].abs().max()) < 1e-12 and abs(float(biases[2])) < 1e-12


def test_no_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="no examples"):
        fit_ridge_head([], 2, 15.0)
