"""Squares or absolute values of per-sample gradients, summed over examples.

In a batch's mean gradient examples cancel; importances need every example's own gradient. Linear,
convolution and BatchNorm layers have it in closed form from their input a and output gradient δ.
For a linear layer size(δ aᵀ) = size(δ) size(a)ᵀ, so no gradient of one example is built.
`vmap(grad)` covers every other network, and serves in tests to check the closed forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from core.learning.curvature.layers import (
    compute_convolution_gradient_per_example,
    normalise_input_by_running_statistics,
)
from core.learning.networks.heads import ClassifierHead

CHUNK = 32  # examples per pass
GRADIENTS = 2**28  # numbers in memory at once under vmap: per-sample gradients of all parameters

Forward = Callable[[Tensor], Tensor]
Size = Callable[[Tensor], Tensor]
"""`torch.square` or `torch.abs`: elementwise, with size(a b) = size(a) size(b)."""


class PerExampleGradientSizeSums:
    """Running sums of a size (such as the square) of every example's gradient, by parameter.

    A scalar is given as its gradient by the logits.

    Attributes:
        total: the sums by parameter, each of its parameter's shape.
        n: number of examples so far.
    """

    def __init__(
        self, network: nn.Module, forward: Forward, names: Iterable[str], size: Size
    ) -> None:
        """Set up zero sums for the chosen parameters.

        Args:
            network: in eval mode.
            forward: x [B, C, S, S] → logits [B, K].
            names: full names of the parameters.
            size: the size of a gradient's entries.
        """
        self._network, self._forward, self._size = network, forward, size
        parameters = dict(network.named_parameters())
        self._chosen = {name: parameters[name] for name in names}
        self.total = {
            name: torch.zeros_like(p, requires_grad=False) for name, p in self._chosen.items()
        }
        self.n = 0
        self._layers = _find_layers_if_all_have_closed_gradients(network, self._chosen)

    def add_examples(self, x: Tensor, scalars: Callable[[Tensor], Sequence[Tensor]]) -> None:
        """Add the gradient sizes of a batch. Parameters that the forward pass does not use get
        zeros.

        Args:
            x: inputs [B, C, S, S].
            scalars: logits [B, K] → gradients ∂s/∂logits [B, K], one per scalar.
        """
        self.n += x.shape[0]
        if self._layers is not None and self._try_add_gradient_sizes_by_layer_formulas(
            self._layers, x, scalars
        ):
            return
        # A layer ran twice, or on other shapes: use vmap from now on.
        self._layers = None
        self._add_gradient_sizes_by_vmap(x, scalars)

    def compute_mean_gradient_sizes(self) -> dict[str, Tensor]:
        """Return the mean gradient size over the examples, by parameter."""
        return {name: value / max(self.n, 1) for name, value in self.total.items()}

    def _try_add_gradient_sizes_by_layer_formulas(
        self,
        layers: list[_LayerWithParameterNames],
        x: Tensor,
        scalars: Callable[[Tensor], Sequence[Tensor]],
    ) -> bool:
        """Add the gradient sizes of a batch by closed formulas of its layers; return false if these
        do not apply.

        Returns false, with nothing added, if a layer ran twice or on wrong shapes.
        """
        captured: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        twice: list[nn.Module] = []

        def record_layer_input_and_output(module: nn.Module, args: Any, output: Tensor) -> None:
            if module in captured:
                twice.append(module)
            captured[module] = (args[0].detach(), output)

        # Hooks are removed even after an error: a network that keeps them would hold all
        # activations.
        hooks = [
            layer.module.register_forward_hook(record_layer_input_and_output) for layer in layers
        ]
        try:
            with torch.enable_grad():
                logits = self._forward(x)
        finally:
            for hook in hooks:
                hook.remove()
        used_layers = [layer for layer in layers if layer.module in captured]
        # No sum has changed yet, so vmap can start from here.
        if twice or any(
            not _fits_closed_gradient_formula(layer.module, *captured[layer.module])
            for layer in used_layers
        ):
            return False
        outputs = [captured[layer.module][1] for layer in used_layers]
        passes = scalars(logits.detach())
        # Once for all scalars, which share the inputs.
        prepared = [
            _prepare_input_for_gradient_formula(layer.module, captured[layer.module][0], self._size)
            for layer in used_layers
        ]
        for i, gradient in enumerate(passes if outputs else ()):
            last = i + 1 == len(passes)
            deltas = torch.autograd.grad(
                logits, outputs, gradient, retain_graph=not last, allow_unused=True
            )
            for layer, a, delta in zip(used_layers, prepared, deltas, strict=True):
                if delta is not None:
                    self._add_layer_gradient_sizes(layer, a, delta)
        return True

    def _add_layer_gradient_sizes(
        self, layer: _LayerWithParameterNames, a: Tensor, delta: Tensor
    ) -> None:
        """Add one layer's gradient sizes, from its prepared input and its output gradient."""
        module, size = layer.module, self._size
        if isinstance(module, nn.Conv2d):
            weight = (
                size(compute_convolution_gradient_per_example(module, a, delta)).sum(0)
                if layer.weight
                else None
            )
            bias = size(delta.sum((2, 3))).sum(0)
        elif isinstance(module, nn.BatchNorm2d):
            weight = size((delta * a).sum((2, 3))).sum(0)
            bias = size(delta.sum((2, 3))).sum(0)
        else:
            # size(a b) = size(a) size(b), so the outer product of sizes is the size of the outer
            # product.
            delta = size(delta)
            weight = delta.T @ a if layer.weight else None
            bias = delta.sum(0)
        if layer.weight is not None:
            assert weight is not None
            self.total[layer.weight] += weight.view(self.total[layer.weight].shape)
        if layer.bias is not None:
            self.total[layer.bias] += bias

    def _add_gradient_sizes_by_vmap(
        self, x: Tensor, scalars: Callable[[Tensor], Sequence[Tensor]]
    ) -> None:
        """Add the gradient sizes of a batch through torch.func's vmap, for any network."""
        with torch.no_grad():
            passes = scalars(self._forward(x))
        call = _ForwardFunctionModule(self._network, self._forward)
        # Detached: `grad` differentiates its own copies, not the network's parameters.
        values = {f"network.{name}": p.detach() for name, p in self._chosen.items()}

        def compute_weighted_sum_of_logits(
            params: dict[str, Tensor], one: Tensor, gradient: Tensor
        ) -> Tensor:
            logits: Tensor = torch.func.functional_call(
                call, params, (one[None],), tie_weights=False
            )
            return (logits[0] * gradient).sum()

        per_sample = torch.func.vmap(
            torch.func.grad(compute_weighted_sum_of_logits), in_dims=(None, 0, 0)
        )
        # As many examples at once as fit the limit of memory.
        rows = max(1, GRADIENTS // max(1, sum(p.numel() for p in self._chosen.values())))
        for gradient in passes:
            for inputs, along in zip(x.split(rows), gradient.split(rows), strict=True):  # type: ignore[no-untyped-call]
                with sdpa_kernel(SDPBackend.MATH):  # fused attention has no batching rule
                    gradients = per_sample(values, inputs, along)
                for name, each in gradients.items():
                    self.total[name.removeprefix("network.")] += self._size(each).sum(0)


@dataclass
class _LayerWithParameterNames:
    """A module and the names of its parameters whose gradients are measured."""

    module: nn.Module
    weight: str | None = None
    bias: str | None = None


def _find_layers_if_all_have_closed_gradients(
    network: nn.Module, chosen: dict[str, nn.Parameter]
) -> list[_LayerWithParameterNames] | None:
    """Return the layers of the chosen parameters if all have closed gradient formulas, else
    None.
    """
    owner: dict[str, nn.Module] = {}
    for prefix, module in network.named_modules():
        for key, _ in module.named_parameters(recurse=False):
            owner[f"{prefix}.{key}" if prefix else key] = module
    layers: dict[nn.Module, _LayerWithParameterNames] = {}
    for name in chosen:
        module, key = owner[name], name.rpartition(".")[2]
        if not _has_closed_gradient_formula(module) or key not in ("weight", "bias"):
            return None
        setattr(layers.setdefault(module, _LayerWithParameterNames(module)), key, name)
    return list(layers.values())


def _has_closed_gradient_formula(module: nn.Module) -> bool:
    """Return true for a module whose per-example gradient has a closed formula."""
    if type(module) is nn.Conv2d:
        return module.padding_mode == "zeros" and not isinstance(module.padding, str)
    # Compared by exact class: a subclass may compute something else.
    return type(module) in (nn.Linear, nn.BatchNorm2d) or isinstance(module, ClassifierHead)


def _fits_closed_gradient_formula(module: nn.Module, a: Tensor, z: Tensor) -> bool:
    """Return true if a layer's input has the expected dimensions and its output has a graph."""
    dimensions = 2 if isinstance(module, nn.Linear | ClassifierHead) else 4
    return a.dim() == dimensions and z.requires_grad


def _prepare_input_for_gradient_formula(module: nn.Module, a: Tensor, size: Size) -> Tensor:
    """Convert a layer's input to the form in which the closed gradient formula uses it."""
    if isinstance(module, nn.Conv2d):
        return a
    if isinstance(module, nn.BatchNorm2d):
        return normalise_input_by_running_statistics(module, a)
    return size(a)


class _ForwardFunctionModule(nn.Module):
    """A forward function as a module, so that functional_call can substitute its parameters."""

    def __init__(self, network: nn.Module, function: Forward) -> None:
        super().__init__()
        self.network = network
        # In a tuple: a module as an attribute would register its parameters twice.
        self._function = (function,)

    def forward(self, x: Tensor) -> Tensor:
        return self._function[0](x)
