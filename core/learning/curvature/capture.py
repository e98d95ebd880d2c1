"""One forward pass that records each layer's input and the autograd edge of its output's gradient.

Forward hooks watch modules. Two kinds of layer have no module. A bare parameter is replaced by one
copy per example, and an attention's input projection is computed here. Weights need not require
gradients, and those of a linearised network do not: gradients are taken by outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from core.learning.curvature.layers import PROJECTION, CurvatureLayer, expand_parameter_by_example

Forward = Callable[[Tensor], Tensor]


@dataclass
class RecordedLayerInput:
    """A layer's input recorded in a forward pass, with the autograd edge of its output.

    Attributes:
        a: the input, unchanged.
        output_edge: the autograd edge with the gradient by the layer's output; None without a
            graph.
        version: autograd's count of in-place changes of `a` when it was recorded.
    """

    a: Tensor
    output_edge: GradientEdge | None
    version: int


class CapturedForwardPass:
    """A forward pass with recorded layers: `outputs` [B, C] with their graph, and each layer's
    input.
    """

    def __init__(
        self, network: nn.Module, forward: Forward, layers: Sequence[CurvatureLayer], x: Tensor
    ) -> None:
        """Run one forward pass on x [B, …] and record it.

        Raises ValueError when a layer runs twice, on rows that are no examples, or on an input that
        is changed in place afterwards.
        """
        self.seen: dict[str, RecordedLayerInput] = {}
        self._examples = x.shape[0]
        self._wanted = {layer.name for layer in layers}
        with ExitStack() as stack:
            for layer in layers:
                if layer.form == "bare":
                    stack.enter_context(self._use_parameter_copy_per_example(layer))
                elif layer.form != "projection":
                    stack.callback(
                        layer.module.register_forward_hook(
                            self._make_recording_hook(layer.name)
                        ).remove
                    )
            for name, module in network.named_modules():
                if (
                    isinstance(module, nn.MultiheadAttention)
                    and _get_attention_projection_names(name) & self._wanted
                ):
                    stack.enter_context(self._record_attention_projections(name, module))
            with torch.enable_grad():
                # Weights may not require gradients; the input does, so that every layer has a
                # graph. The clone lets the first layer work in place, which autograd forbids on a
                # leaf.
                self.outputs = forward(x.detach().requires_grad_().clone())
        for name, layer_input in self.seen.items():
            if layer_input.a._version != layer_input.version:
                raise ValueError(f"{name}: its input was changed in place after it ran")

    def compute_layer_output_gradients(self, cotangent: Tensor, *, last: bool) -> dict[str, Tensor]:
        """Compute the gradients of Σ outputs · cotangent by the outputs of the recorded layers.

        Layers without influence on the outputs are left out.

        Args:
            cotangent: [B, C], a row per example.
            last: free the graph afterwards.
        """
        output_edges = {
            name: layer_input.output_edge
            for name, layer_input in self.seen.items()
            if layer_input.output_edge is not None
        }
        gradients: Sequence[Tensor | None] = torch.autograd.grad(
            self.outputs,
            list(output_edges.values()),
            cotangent,
            # All probes share one forward pass; the last one frees its activations.
            retain_graph=not last,
            # A head of another task, for example, has no influence on these outputs.
            allow_unused=True,
        )
        return {name: g for name, g in zip(output_edges, gradients, strict=True) if g is not None}

    def _record_layer(self, name: str, a: Tensor, output: Tensor) -> None:
        """Record a layer's input and the autograd edge of its output during a forward pass.

        Raises ValueError for a second run or wrong rows.
        """
        if name in self.seen:
            raise ValueError(f"{name} runs twice in a pass: its gradients cannot be told apart")
        # Windowed attention, for instance, moves windows into the batch dimension: rows are
        # examples no more.
        if a.shape[0] != self._examples or output.shape[0] != self._examples:
            raise ValueError(f"{name} runs on {a.shape[0]} rows for {self._examples} examples")
        output_edge = get_gradient_edge(output) if output.requires_grad else None
        # Not a copy, which would double the activations in memory; the version shows a later change
        # in place.
        self.seen[name] = RecordedLayerInput(a.detach(), output_edge, a._version)

    def _make_recording_hook(self, name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda module, args, output: self._record_layer(name, args[0], output)

    @contextmanager
    def _use_parameter_copy_per_example(self, layer: CurvatureLayer) -> Iterator[None]:
        """Context manager that replaces a parameter outside of layers by one copy per example."""
        # With a copy for each example, autograd keeps the examples' gradients apart.
        rows = expand_parameter_by_example(layer.weight, self._examples)
        self.seen[layer.name] = RecordedLayerInput(
            rows.detach(), get_gradient_edge(rows), rows._version
        )
        # Set in the dictionary itself: `setattr` refuses a tensor that is no `nn.Parameter`.
        parameters: dict[str, Any] = layer.module._parameters
        parameters[layer.key] = rows
        try:
            yield
        finally:
            parameters[layer.key] = layer.weight

    @contextmanager
    def _record_attention_projections(
        self, name: str, module: nn.MultiheadAttention
    ) -> Iterator[None]:
        """Context manager that computes self-attention from its parts, to record both of its
        projections.
        """

        def forward(
            query: Tensor, key: Tensor, value: Tensor, need_weights: bool = False
        ) -> tuple[Tensor, None]:
            # The joint projection below reads one input only.
            if key is not query or value is not query or need_weights:
                raise ValueError(f"{name}: only self-attention without its weights can be measured")
            projected = functional.linear(query, module.in_proj_weight, module.in_proj_bias)
            if name + PROJECTION in self._wanted:
                self._record_layer(name + PROJECTION, query, projected)
            batch, tokens, width = query.shape
            parts = projected.view(batch, tokens, 3, module.num_heads, width // module.num_heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v)
            return module.out_proj(mixed.transpose(1, 2).reshape(batch, tokens, width)), None

        # An instance attribute hides the class's method until it is deleted.
        module.__dict__["forward"] = forward
        try:
            yield
        finally:
            del module.__dict__["forward"]


def _get_attention_projection_names(attention: str) -> set[str]:
    """Return the names of an attention's two projection layers, which run without a module call."""
    return {attention + PROJECTION, attention + ".out_proj"}
