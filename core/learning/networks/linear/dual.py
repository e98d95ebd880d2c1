"""Dual numbers: values of a network with their derivatives along a displacement of the weights.

A backbone's own forward pass, on a dual image and dual weights, gives f(x; ψ0) and D_ψ f(x; ψ0) · ψ
at once: every torch function in it has a rule here. Unlike `torch.func.jvp`, which tests compare
with, the value needs no graph. The derivative stores for the backward pass only what its weights'
gradients need: inputs of layers, which are values, and signs. The value's own activations decide
every mask and every index (Shon et al. 2022, table 4, completed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.learning.networks.linear.tangents import (
    ConvolutionTangentFunction,
    LeakyReluTangentFunction,
    LinearTangentFunction,
    sum_tangents,
)


class MissingDualRuleError(NotImplementedError):
    """Raised for a function that has no rule for dual numbers."""


class DualTensor:
    """A dual number for forward-mode differentiation: a value `x` with its derivative `dx`; None is
    zero.
    """

    def __init__(self, x: Tensor, dx: Tensor | None) -> None:
        self.x = x
        self.dx = dx

    @classmethod
    def __torch_function__(
        cls,
        function: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if function in SAME_ON_BOTH:
            return _apply_to_value_and_derivative(function, *args, **(kwargs or {}))
        rule = RULES.get(function)
        if rule is None:
            raise MissingDualRuleError(
                f"{getattr(function, '__name__', function)} has no rule for dual numbers"
            )
        return rule(*args, **(kwargs or {}))

    # Attributes that modules read from their inputs.

    @property
    def shape(self) -> torch.Size:
        """Shape of the dual number's value."""
        return self.x.shape

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the dual number's value."""
        return self.x.dtype

    @property
    def device(self) -> torch.device:
        """Device of the dual number's value."""
        return self.x.device

    @property
    def is_nested(self) -> bool:
        """Always false: a dual number is no nested tensor, which torch modules check."""
        return False

    @property
    def requires_grad(self) -> bool:
        """Always true, which keeps torch modules off their fast inference paths."""
        return True

    def dim(self) -> int:
        """Return the number of dimensions of the dual number's value."""
        return self.x.dim()

    def size(self, *axes: int) -> Any:
        """Return the size of the dual number's value."""
        return self.x.size(*axes)

    def __len__(self) -> int:
        return len(self.x)

    def __add__(self, other: Any) -> DualTensor:
        return _add_duals(self, other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> DualTensor:
        return _multiply_duals(self, other)

    __rmul__ = __mul__

    def __getattr__(self, name: str) -> Any:
        """Return a tensor method that has a rule: `x.mean((2, 3))` applies it to this object."""
        method = getattr(Tensor, name, None)
        if method is not None and (method in SAME_ON_BOTH or method in RULES):
            return lambda *args, **kwargs: type(self).__torch_function__(
                method, (), (self, *args), kwargs
            )
        if method is not None:
            raise MissingDualRuleError(f"{name} has no rule for dual numbers")
        raise AttributeError(f"dual numbers have no {name}")

    def __getitem__(self, index: Any) -> DualTensor:
        return DualTensor(self.x[index], None if self.dx is None else self.dx[index])


Rule = Callable[..., Any]


@contextmanager
def use_dual_parameters(
    module: nn.Module, displacement: dict[str, Tensor | None]
) -> Iterator[None]:
    """Context manager that makes every parameter of a module a dual number. Not thread-safe."""
    originals: list[tuple[nn.Module, str, nn.Parameter]] = []
    try:
        for prefix, owner in module.named_modules():
            for key, parameter in list(owner._parameters.items()):
                if parameter is None:
                    continue
                name = f"{prefix}.{key}" if prefix else key
                originals.append((owner, key, parameter))
                # In the dictionary itself: `setattr` refuses what is no `nn.Parameter`.
                owner._parameters[key] = DualTensor(parameter, displacement[name])
        yield
    finally:
        for owner, key, parameter in originals:
            owner._parameters[key] = parameter


# Functions that are linear in their only tensor, and the same for value and derivative.


def _apply_to_value_and_derivative(
    function: Rule, first: Any, *args: Any, **kwargs: Any
) -> DualTensor:
    """Apply a linear function to a dual number's value and derivative, or to each in a list."""
    if isinstance(first, DualTensor):
        dx = None if first.dx is None else function(first.dx, *args, **kwargs)
        return DualTensor(function(first.x, *args, **kwargs), dx)
    # The functions cat and stack take a list.
    # A list may mix dual numbers with plain tensors, such as a class token.
    both = [value if isinstance(value, DualTensor) else DualTensor(value, None) for value in first]
    x = function([value.x for value in both], *args, **kwargs)
    if all(value.dx is None for value in both):
        return DualTensor(x, None)
    # Missing derivatives become zeros, since cat and stack need all of them.
    tangents = [torch.zeros_like(v.x) if v.dx is None else v.dx for v in both]
    return DualTensor(x, function(tangents, *args, **kwargs))


SAME_ON_BOTH: set[Any] = {
    torch.cat,
    torch.flatten,
    torch.mean,
    torch.permute,
    torch.reshape,
    torch.transpose,
    torch.squeeze,
    torch.unsqueeze,
    Tensor.expand,
    Tensor.flatten,
    Tensor.mean,
    Tensor.permute,
    Tensor.reshape,
    Tensor.transpose,
    Tensor.view,
    functional.adaptive_avg_pool2d,
    functional.avg_pool2d,
}


# Sums and products.


def _add_duals(a: Any, b: Any, *, alpha: float = 1) -> DualTensor:
    a, b = _convert_to_dual(a), _convert_to_dual(b)
    x = torch.add(a.x, b.x, alpha=alpha)
    if b.dx is None:
        return DualTensor(x, None if a.dx is None else _expand_derivative_to(a.dx, x))
    if a.dx is None:
        return DualTensor(x, _expand_derivative_to(b.dx * alpha if alpha != 1 else b.dx, x))
    return DualTensor(x, torch.add(a.dx, b.dx, alpha=alpha))


def _multiply_duals(a: Any, b: Any) -> DualTensor:
    a, b = _convert_to_dual(a), _convert_to_dual(b)
    x = a.x * b.x
    terms = [
        tangent * value for tangent, value in ((a.dx, b.x), (b.dx, a.x)) if tangent is not None
    ]
    return DualTensor(x, sum_tangents(terms))


def _convert_to_dual(value: Any) -> DualTensor:
    return value if isinstance(value, DualTensor) else DualTensor(torch.as_tensor(value), None)


def _expand_derivative_to(dx: Tensor, x: Tensor) -> Tensor:
    return dx if dx.shape == x.shape else dx.expand(x.shape)


# Layers with weights. The derivative of the input passes without a bias.


def _convolve_dual(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> DualTensor:
    x, weight = _convert_to_dual(x), _convert_to_dual(weight)
    bias = None if bias is None else _convert_to_dual(bias)
    args = (
        _convert_to_height_width_pair(stride),
        _convert_to_height_width_pair(padding),
        _convert_to_height_width_pair(dilation),
        groups,
    )
    value = functional.conv2d(x.x, weight.x, None if bias is None else bias.x, *args)
    moved = None if bias is None else bias.dx
    if x.dx is None and weight.dx is None and moved is None:
        return DualTensor(value, None)
    tangent = ConvolutionTangentFunction.apply(x.x, x.dx, weight.x, weight.dx, moved, args)  # type: ignore[no-untyped-call]
    return DualTensor(value, tangent)


def _convert_to_height_width_pair(value: Any) -> tuple[int, int]:
    if isinstance(value, str):
        raise MissingDualRuleError(f"padding {value!r} has no rule for dual numbers")
    return (value, value) if isinstance(value, int) else tuple(value)


def _apply_dual_linear(x: Any, weight: Any, bias: Any = None) -> DualTensor:
    x, weight = _convert_to_dual(x), _convert_to_dual(weight)
    bias = None if bias is None else _convert_to_dual(bias)
    value = functional.linear(x.x, weight.x, None if bias is None else bias.x)
    moved = None if bias is None else bias.dx
    if x.dx is None and weight.dx is None and moved is None:
        return DualTensor(value, None)
    return DualTensor(value, LinearTangentFunction.apply(x.x, x.dx, weight.x, weight.dx, moved))  # type: ignore[no-untyped-call]


# Activations and pooling: masks and indices are those of the value.


def _apply_dual_leaky_relu(
    x: Any, negative_slope: float = 0.01, inplace: bool = False
) -> DualTensor:
    # Never in place, whatever the module asks: a derivative may have been saved with this input.
    value = functional.leaky_relu(x.x, negative_slope)
    if x.dx is None:
        return DualTensor(value, None)
    return DualTensor(value, LeakyReluTangentFunction.apply(x.dx, value, negative_slope))  # type: ignore[no-untyped-call]


def _apply_dual_relu(x: Any, inplace: bool = False) -> DualTensor:
    return _apply_dual_leaky_relu(x, 0.0)


def _apply_dual_gelu(x: Any, approximate: str = "none") -> DualTensor:
    if approximate != "none":
        raise MissingDualRuleError("the tanh form of gelu has no rule for dual numbers")
    value = functional.gelu(x.x)
    if x.dx is None:
        return DualTensor(value, None)
    # gelu'(x) = Φ(x) + x φ(x), Φ and φ of the standard normal distribution.
    below = 0.5 * (1 + torch.erf(x.x * math.sqrt(0.5)))
    density = torch.exp(-0.5 * x.x.square()) / math.sqrt(2 * math.pi)
    return DualTensor(value, x.dx * (below + x.x * density))


def _max_pool_dual(x: Any, *window: Any, return_indices: bool = False, **modes: Any) -> DualTensor:
    # The indices are needed here in any case, so `return_indices` is accepted and ignored.
    value, index = functional.max_pool2d(x.x, *window, **modes, return_indices=True)
    if x.dx is None:
        return DualTensor(value, None)
    # The derivative of a maximum is that of the pixel that was chosen.
    picked = x.dx.flatten(2).gather(2, index.flatten(2)).view_as(value)
    return DualTensor(value, picked)


def _reject_active_dropout(
    x: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    # The value and its derivative would need the same mask, and the result would not be a function
    # of the weights.
    if training and p > 0:
        raise MissingDualRuleError("dropout is random: a linearised network has none")
    return x


# Norms and attention.


def _apply_dual_batch_norm(
    x: Any,
    mean: Tensor,
    var: Tensor,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> DualTensor:
    if training:
        raise MissingDualRuleError("a batch norm in training mode has no derivative per example")
    shape = (1, -1, *[1] * (x.x.dim() - 2))
    inverse = (var + eps).rsqrt().view(shape)
    # By running statistics, which are constants, so the norm is linear in x.
    hat = (x.x - mean.view(shape)) * inverse
    return _apply_dual_affine(hat, None if x.dx is None else x.dx * inverse, weight, bias, shape)


def _apply_dual_layer_norm(
    x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> DualTensor:
    axes = tuple(range(-len(shape), 0))
    # Written out, since the derivative needs the mean and deviation that the fused kernel does not
    # return.
    centred = x.x - x.x.mean(axes, keepdim=True)
    inverse = (centred.square().mean(axes, keepdim=True) + eps).rsqrt()
    hat = centred * inverse
    moved = None
    if x.dx is not None:
        projection = (hat * x.dx).mean(axes, keepdim=True)
        moved = (x.dx - x.dx.mean(axes, keepdim=True) - hat * projection) * inverse
    return _apply_dual_affine(hat, moved, weight, bias, tuple(shape))


def _apply_dual_affine(
    hat: Tensor, moved: Tensor | None, weight: Any, bias: Any, shape: Sequence[int]
) -> DualTensor:
    """Apply scale and shift to a normalised dual number: weight · hat + bias."""
    if weight is None:
        return DualTensor(hat, moved)
    weight, bias = _convert_to_dual(weight), _convert_to_dual(0.0 if bias is None else bias)
    value = hat * weight.x.view(shape) + (bias.x.view(shape) if bias.x.dim() else bias.x)
    terms = [
        None if moved is None else moved * weight.x.view(shape),
        None if weight.dx is None else hat * weight.dx.view(shape),
        None if bias.dx is None else bias.dx.view(shape).expand_as(hat),
    ]
    return DualTensor(value, sum_tangents(terms))


def _apply_self_attention_to_dual_number(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    **options: Any,
) -> tuple[DualTensor, None]:
    """Apply self-attention to a dual number [T, B, E] as nn.MultiheadAttention calls it.

    Attention weights are not returned.
    """
    plain = (
        bias_k is None and bias_v is None and not add_zero_attn and query is key and key is value
    )
    # Refused rather than ignored: a wrong derivative would go unnoticed, while `MissingDualRuleError` falls back
    # to `jvp`.
    plain = plain and not options.get("need_weights", True) and in_proj_weight is not None
    plain = plain and options.get("key_padding_mask") is None and options.get("attn_mask") is None
    if not plain or (dropout_p and options.get("training", True)):
        raise MissingDualRuleError("only plain self-attention has a rule for dual numbers")
    mixed = _compute_self_attention(
        _apply_dual_linear(query, in_proj_weight, in_proj_bias), num_heads
    )
    return _apply_dual_linear(mixed, out_proj_weight, out_proj_bias), None


def _compute_self_attention(projected: DualTensor, num_heads: int) -> DualTensor:
    """Compute self-attention softmax(q kᵀ / √e) v from joint queries, keys and values [T, B, 3 E].

    e = E / heads.
    """
    length, batch, width = projected.x.shape[0], projected.x.shape[1], projected.x.shape[2] // 3
    e = width // num_heads

    def split_heads(t: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            p.reshape(length, batch * num_heads, e).transpose(0, 1) for p in t.chunk(3, -1)
        )

    def merge_heads(t: Tensor) -> Tensor:
        return t.transpose(0, 1).reshape(length, batch, width)

    q, k, v = split_heads(projected.x)
    scale = 1 / math.sqrt(e)
    p = ((q @ k.transpose(1, 2)) * scale).softmax(-1)
    out = merge_heads(p @ v)
    if projected.dx is None:
        return DualTensor(out, None)
    dq, dk, dv = split_heads(projected.dx)
    ds = (dq @ k.transpose(1, 2) + q @ dk.transpose(1, 2)) * scale
    # The derivative of the softmax along ds.
    dp = p * (ds - (p * ds).sum(-1, keepdim=True))
    return DualTensor(out, merge_heads(dp @ v + p @ dv))


RULES: dict[Any, Rule] = {
    torch.add: _add_duals,
    Tensor.add: _add_duals,
    Tensor.__add__: _add_duals,
    Tensor.__radd__: _add_duals,
    torch.mul: _multiply_duals,
    Tensor.__mul__: _multiply_duals,
    Tensor.__rmul__: _multiply_duals,
    torch.conv2d: _convolve_dual,
    functional.linear: _apply_dual_linear,
    torch.relu: _apply_dual_relu,
    Tensor.relu: _apply_dual_relu,
    functional.relu: _apply_dual_relu,
    functional.leaky_relu: _apply_dual_leaky_relu,
    torch._C._nn.leaky_relu: _apply_dual_leaky_relu,
    functional.gelu: _apply_dual_gelu,
    functional.max_pool2d: _max_pool_dual,
    torch.max_pool2d: _max_pool_dual,
    functional.dropout: _reject_active_dropout,
    functional.batch_norm: _apply_dual_batch_norm,
    functional.layer_norm: _apply_dual_layer_norm,
    functional.multi_head_attention_forward: _apply_self_attention_to_dual_number,
}
