"""Layers for which curvature is measured, and the composition of each one's gradient.

A layer's displacement is a matrix d [o, w] with a row per output: its weight flattened, and its
bias as the last column. The gradient of one example is a matrix M [o, w] = Σ_s g_s a_sᵀ over
positions s (pixels or tokens). a_s is the layer's input there (a convolution's patch) with a 1
appended for the bias, g_s the gradient by its output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from core.learning.networks.heads import ClassifierHead

Form = Literal["convolution", "linear", "projection", "norm", "bare"]
# Suffix for nn.MultiheadAttention: query, key and value form one layer without a module.
PROJECTION = ".in_proj"


@dataclass(frozen=True)
class CurvatureLayer:
    """A layer whose curvature is measured: its form, module, weight and bias.

    `module` runs or owns the layer: the attention of a projection, the module of a bare parameter.
    """

    name: str
    form: Form
    module: nn.Module
    weight: nn.Parameter
    bias: nn.Parameter | None
    key: str = ""  # name of a bare parameter in its module

    @property
    def output_count(self) -> int:
        """Number of rows o of the layer's displacement: its outputs."""
        return self.weight.shape[0]

    @property
    def parameters_per_output(self) -> int:
        """Number of columns w of the layer's displacement: weights per output, with the bias."""
        return self.weight.numel() // self.output_count + (self.bias is not None)

    @property
    def is_grouped_convolution(self) -> bool:
        """True for a convolution whose outputs have different inputs, such as a depthwise one."""
        return isinstance(self.module, nn.Conv2d) and self.module.groups > 1

    @property
    def kernel_pixels(self) -> int:
        """Number of pixels in the layer's convolution kernel; 1 for other layers."""
        return self.weight[0, 0].numel() if self.form == "convolution" else 1


def list_layers_owning_parameters(network: nn.Module, parameters: Iterable[str]) -> list[str]:
    """Return the names of the layers that own these parameters.

    A parameter outside of a layer is its own layer.
    """
    modules = dict(network.named_modules())
    # A dict and not a set: the order of layers is that of the parameters, so that sums have the
    # same bits.
    names: dict[str, None] = {}
    for name in parameters:
        prefix, _, key = name.rpartition(".")
        if key in ("weight", "bias") and _get_curvature_layer_form(modules[prefix]) is not None:
            names[prefix] = None
        elif key in ("in_proj_weight", "in_proj_bias") and isinstance(
            modules[prefix], nn.MultiheadAttention
        ):
            names[prefix + PROJECTION] = None
        else:
            names[name] = None
    return list(names)


def require_layer_with_measurable_curvature(network: nn.Module, name: str) -> CurvatureLayer:
    """Find the layer by a name of `list_layers_owning_parameters`.

    Raises ValueError if its curvature cannot be measured.
    """
    modules = dict(network.named_modules())
    if name in modules:
        return _build_measurable_curvature_layer(name, modules[name])
    prefix, _, key = name.rpartition(".")
    owner = modules.get(prefix)
    # torch computes this projection from bare parameters, so no module has this name.
    if name.endswith(PROJECTION) and isinstance(owner, nn.MultiheadAttention):
        return _describe_attention_input_projection(name, owner)
    weight = owner._parameters.get(key) if owner is not None else None
    if owner is None or weight is None:
        raise ValueError(f"the network has no layer or parameter {name!r}")
    if not (_has_token_parameter_shape(weight) or _is_channel_scale_parameter(weight)):
        raise ValueError(
            f"{name}: a bare parameter must be [1, …, …] or [channels, 1, 1] to be measured"
        )
    return CurvatureLayer(name, "bare", owner, weight, None, key)


def _get_curvature_layer_form(module: nn.Module) -> Form | None:
    """Classify a module as convolution, linear or norm layer; None for other modules."""
    if isinstance(module, nn.Conv2d):
        return "convolution"
    if isinstance(module, nn.Linear | ClassifierHead):
        return "linear"
    if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
        return "norm"
    return None


def _build_measurable_curvature_layer(name: str, module: nn.Module) -> CurvatureLayer:
    """Describe a module as a layer with curvature. Raises ValueError if it cannot be measured."""
    form = _get_curvature_layer_form(module)
    if form is None:
        raise ValueError(f"{name}: no curvature is known for a {type(module).__name__}")
    if isinstance(module, nn.Conv2d) and (
        module.padding_mode != "zeros" or isinstance(module.padding, str)
    ):
        raise ValueError(f"{name}: only zero padding of a given size can be measured")
    if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) != 1:
        raise ValueError(f"{name}: only norms over one dimension can be measured")
    weight, bias = module.weight, module.bias
    if not isinstance(weight, nn.Parameter):
        raise ValueError(f"{name} has no weight")
    return CurvatureLayer(
        name, form, module, weight, bias if isinstance(bias, nn.Parameter) else None
    )


def _describe_attention_input_projection(
    name: str, module: nn.MultiheadAttention
) -> CurvatureLayer:
    """Describe an attention module's input projection as a layer with curvature.

    Raises ValueError if it cannot be measured.
    """
    if not module.batch_first or module.in_proj_weight is None or module.bias_k is not None:
        raise ValueError(
            f"{name}: only batch-first attention of one width without extra tokens can be measured"
        )
    return CurvatureLayer(name, "projection", module, module.in_proj_weight, module.in_proj_bias)


def _has_token_parameter_shape(parameter: Tensor) -> bool:
    """Return true for a parameter [1, tokens, width], whose first dimension stands for the
    batch.
    """
    return parameter.dim() >= 3 and parameter.shape[0] == 1


def _is_channel_scale_parameter(parameter: Tensor) -> bool:
    """Return true for a per-channel scale [channels, 1, 1], which multiplies [B, channels, height,
    width].
    """
    return parameter.dim() == 3 and parameter.shape[1:] == (1, 1)


def expand_parameter_by_example(parameter: Tensor, examples: int) -> Tensor:
    """Copy a parameter outside of layers once per example, as a leaf tensor.

    It broadcasts as the parameter does.
    """
    rows = parameter.detach()
    rows = (
        rows.expand(examples, *rows.shape[1:])
        if _has_token_parameter_shape(rows)
        else rows.expand(examples, *rows.shape)
    )
    # `expand` shares one memory for all rows, whose gradients would be added up.
    return rows.clone().requires_grad_()


def arrange_layer_inputs(layer: CurvatureLayer, a: Tensor) -> Tensor:
    """Arrange a layer's input as rows [B, T, w] over T positions (patches of a convolution).

    A convolution's rows are patches in weight.flatten(1) order. A 1 is appended where there is a
    bias.
    """
    module = layer.module
    if isinstance(module, nn.Conv2d):
        assert not isinstance(module.padding, str)
        # Patches of every position as columns.
        rows = functional.unfold(
            a, module.kernel_size, module.dilation, module.padding, module.stride
        )
        rows = rows.transpose(1, 2)
    else:
        rows = a.reshape(a.shape[0], -1, a.shape[-1])
    return rows if layer.bias is None else functional.pad(rows, (0, 1), value=1.0)


def arrange_layer_output_gradients(layer: CurvatureLayer, g: Tensor) -> Tensor:
    """Arrange the gradient by a layer's output as rows [B, T, o] over T positions."""
    if layer.form == "convolution":
        return g.flatten(2).transpose(1, 2)
    return g.reshape(g.shape[0], -1, g.shape[-1])


def compute_layer_gradient_per_example(layer: CurvatureLayer, a: Tensor, g: Tensor) -> Tensor:
    """Compute every example's gradient M [B, o, w] of a layer.

    Args:
        layer: the layer.
        a: the layer's input, as captured.
        g: the gradient by the layer's output, as captured.
    """
    batch, module = g.shape[0], layer.module
    if layer.form == "bare":
        return g.reshape(batch, layer.output_count, layer.parameters_per_output)
    if isinstance(module, nn.Conv2d):
        weight = compute_convolution_gradient_per_example(module, a, g).flatten(2)
        return weight if layer.bias is None else torch.cat([weight, g.sum((2, 3))[..., None]], 2)
    if layer.form != "norm":
        return arrange_layer_output_gradients(layer, g).transpose(1, 2) @ arrange_layer_inputs(
            layer, a
        )
    first = isinstance(module, nn.BatchNorm2d) or _is_channels_first_norm(module)
    x = (
        normalise_input_by_running_statistics(module, a)
        if isinstance(module, nn.BatchNorm2d)
        else _normalise_by_layer_norm(module, a)
    )
    # The sums below expect channels in the last dimension.
    if first:
        x, g = x.movedim(1, -1), g.movedim(1, -1)
    shape = (batch, -1, layer.output_count)
    weight = (x * g).reshape(shape).sum(1)
    return torch.stack([weight] if layer.bias is None else [weight, g.reshape(shape).sum(1)], 2)


def compute_convolution_gradient_per_example(module: nn.Conv2d, a: Tensor, delta: Tensor) -> Tensor:
    """Compute every example's gradient of a convolution's weight, from its input and output
    gradient.

    Examples are laid side by side as channels of one convolution with a group per example.
    """
    n = a.shape[0]
    weight = module.weight
    stacked: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
        a.reshape(1, -1, *a.shape[2:]),
        (n * weight.shape[0], *weight.shape[1:]),
        delta.reshape(1, -1, *delta.shape[2:]),
        module.stride,
        module.padding,
        module.dilation,
        # With a group per example the gradients of examples stay apart, in one call for all.
        n * module.groups,
    )
    return stacked.view(n, *weight.shape)


def normalise_input_by_running_statistics(module: nn.BatchNorm2d, a: Tensor) -> Tensor:
    """Normalise a BatchNorm layer's input by the running statistics, before scale and shift."""
    assert module.running_mean is not None and module.running_var is not None
    mean, var = module.running_mean, module.running_var
    # By running statistics: in eval mode examples do not depend on each other.
    return (a - mean[:, None, None]) * torch.rsqrt(var + module.eps)[:, None, None]


def _normalise_by_layer_norm(module: nn.Module, a: Tensor) -> Tensor:
    """Normalise a LayerNorm layer's input, before scale and shift."""
    assert isinstance(module, nn.LayerNorm)
    if not _is_channels_first_norm(module):
        return functional.layer_norm(a, module.normalized_shape, eps=module.eps)
    return functional.layer_norm(a.movedim(1, -1), module.normalized_shape, eps=module.eps).movedim(
        -1, 1
    )


def _is_channels_first_norm(module: nn.Module) -> bool:
    """Return true for torchvision's LayerNorm2d, which normalises the channels of [B, C, H, W].

    Recognised by name: torchvision's import is slow.
    """
    return type(module).__name__ == "LayerNorm2d"
