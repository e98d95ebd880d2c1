"""Derivatives of layers along a displacement of their weights, with little memory for backward.

`x`, `dx`: a layer's input and its derivative. `w`: its weight. `v`, `b`: the displacement of weight
and bias. None stands for zero. Gradients go to `dx`, `v` and `b` alone: values and weights are
fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def sum_tangents(terms: Sequence[Tensor | None]) -> Tensor | None:
    """Sum derivatives (tangents); return None if all of them are zero."""
    nonzero = [term for term in terms if term is not None]
    if not nonzero:
        return None
    total = nonzero[0]
    for term in nonzero[1:]:
        total = total + term
    return total


class ConvolutionTangentFunction(torch.autograd.Function):
    """Autograd function of a convolution's derivative: conv(x; v, b) + conv(dx; w).

    Saves x and w for the backward pass, where torch would also save dx.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        dx: Tensor | None,
        w: Tensor,
        v: Tensor | None,
        b: Tensor | None,
        args: Any,
    ) -> Tensor:
        """Compute the derivative of the convolution's output."""
        ctx.args, ctx.bias = args, None if b is None else list(b.shape)
        x, w = x.to(_get_compute_dtype(x)), w.to(_get_compute_dtype(x))
        ctx.save_for_backward(x, w)
        return _compute_layer_tangent(
            lambda *operands: functional.conv2d(*operands, *args), x, dx, w, v, b
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Compute the gradients by dx, v and b; None for the other arguments."""
        x, w = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.args
        _, wants_dx, _, wants_v, wants_b, _ = ctx.needs_input_grad
        # The derivative is linear in dx, v and b, so their gradients are those of a convolution of
        # x by w.
        dx, v, b = torch.ops.aten.convolution_backward(
            grad,
            x,
            w,
            ctx.bias,
            stride,
            padding,
            dilation,
            False,
            (0, 0),
            groups,
            (wants_dx, wants_v, wants_b),
        )
        return None, dx, None, v, b, None


class LinearTangentFunction(torch.autograd.Function):
    """Autograd function of a linear layer's derivative: x vᵀ + b + dx wᵀ.

    Saves x and w for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dx: Tensor | None, w: Tensor, v: Tensor | None, b: Tensor | None
    ) -> Tensor:
        """Compute the derivative of the linear layer's output."""
        x, w = x.to(_get_compute_dtype(x)), w.to(_get_compute_dtype(x))
        ctx.save_for_backward(x, w)
        return _compute_layer_tangent(functional.linear, x, dx, w, v, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Compute the gradients of a linear layer's derivative by dx, v and b; None for the other
        arguments.
        """
        x, w = ctx.saved_tensors
        _, wants_dx, _, wants_v, wants_b = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        dx = grad @ w if wants_dx else None
        v = rows.T @ x.flatten(0, -2) if wants_v else None
        b = rows.sum(0) if wants_b else None
        return None, dx, None, v, b


class LeakyReluTangentFunction(torch.autograd.Function):
    """Autograd function of a (leaky) ReLU's derivative: dx where the value is positive, else slope
    · dx.

    It saves the activation's output, which has the sign of its input and which the next layer saves
    too.
    """

    @staticmethod
    def forward(ctx: Any, dx: Tensor, value: Tensor, slope: float) -> Tensor:
        """Compute the derivative of the activation's output."""
        ctx.save_for_backward(value)
        ctx.slope = slope
        # True: `value` is the activation's result, which has the sign of its input.
        return torch.ops.aten.leaky_relu_backward(dx, value, slope, True)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Compute the gradient of the activation's derivative by dx; None for the other
        arguments.
        """
        (value,) = ctx.saved_tensors
        return torch.ops.aten.leaky_relu_backward(grad, value, ctx.slope, True), None, None


def _compute_layer_tangent(
    layer: Callable[..., Tensor],
    x: Tensor,
    dx: Tensor | None,
    w: Tensor,
    v: Tensor | None,
    b: Tensor | None,
) -> Tensor:
    """Compute a layer's derivative layer(x; v, b) + layer(dx; w), of which at least one term
    exists.
    """
    out: Tensor | None = None
    with torch.autocast(x.device.type, enabled=False):
        # Autocast is off, since the operands have its format already.
        if v is not None or b is not None:
            # A bias alone still needs a weight for the layer's signature.
            along = torch.zeros_like(w) if v is None else v.to(x.dtype)
            out = layer(x, along, None if b is None else b.to(x.dtype))
        if dx is not None:
            through_input: Tensor = layer(dx.to(x.dtype), w, None)
            # In place: `out` is this function's own.
            out = through_input if out is None else out.add_(through_input)
    assert out is not None
    return out


def _get_compute_dtype(x: Tensor) -> torch.dtype:
    """Return the number format in which layers compute: autocast's if it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
