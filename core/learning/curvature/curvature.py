"""Curvature of a whole network, one block per layer, and its quadratic penalty.

The penalty is ½ Σ dᵀ H d over layers, d the displacement from an anchor. Its gradient is H d, so
one multiplication gives value and gradient, and no graph is built. Curvature between layers is
taken as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.learning.curvature.block import CurvatureBlock, rebuild_curvature_block
from core.learning.precision import use_full_precision


@dataclass(frozen=True, eq=False)
class LayerCurvatures:
    """Curvature blocks of a network by layer name."""

    blocks: Mapping[str, CurvatureBlock]

    @torch.no_grad()
    def compute_penalty_and_gradient(
        self, displacements: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Compute the quadratic penalty ½ dᵀ H d and its gradient H d by parameter.

        Layers without a weight in `displacements` and parameters without a block are left out. A
        missing bias counts as a displacement of zero.

        Args:
            displacements: by full parameter name, each in the shape of its parameter.

        Raises:
            ValueError: for a bias without its weight, or a shape that does not fit its block.
        """
        gradients: dict[str, Tensor] = {}
        values = []
        for layer, block in self.blocks.items():
            weight, bias = _get_layer_parameter_names(layer, displacements)
            if weight not in displacements:
                if bias in displacements:
                    raise ValueError(f"{bias} is given without {weight}")
                continue
            of_weight, of_bias = displacements[weight], displacements.get(bias)
            d = _join_weight_and_bias_displacement(layer, block, of_weight, of_bias)
            # TF32 would round a penalty to ten bits, and the forecast of a loss with it.
            with use_full_precision(d.device):
                r = block.multiply_by_curvature(d).to(d.dtype)
            # The value costs nothing beside its gradient H d.
            values.append((d * r).sum() / 2)
            columns = of_weight.numel() // of_weight.shape[0]
            gradients[weight] = r[:, :columns].reshape(of_weight.shape)
            if of_bias is not None:
                gradients[bias] = r[:, columns]
        # Added on the device: a sum of Python floats would wait for the device once per layer.
        return gradients, torch.stack(values).sum() if values else torch.zeros(())

    def average_with(self, other: LayerCurvatures, share: float) -> LayerCurvatures:
        """Average the curvature with another network curvature, weighted by `share`.

        Raises ValueError for other layers, kinds or shapes.
        """
        if set(self.blocks) != set(other.blocks):
            different = ", ".join(sorted(set(self.blocks) ^ set(other.blocks)))
            raise ValueError(f"only one of two curvatures that are to be merged has {different}")
        return LayerCurvatures(
            {
                name: block.average_with(other.blocks[name], share)
                for name, block in self.blocks.items()
            }
        )

    def trace(self) -> Tensor:
        """Return the trace of a network's curvature, summed over layers, 0-dim."""
        return torch.stack([block.trace() for block in self.blocks.values()]).sum()

    def measure_layer_bytes(self) -> dict[str, int]:
        """Return the stored size of each layer's curvature block, in bytes."""
        return {name: block.nbytes for name, block in self.blocks.items()}

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the curvature's tensors named `<layer>/<field>`, those of a factor
        `<layer>/<field>.<name>`.
        """
        return {
            f"{layer}/{key}": tensor
            for layer, block in self.blocks.items()
            for key, tensor in block.to_tensors().items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return each layer's kind of curvature block and storage tiers, as JSON."""
        return {
            name: {"kind": block.kind, "tiers": block.compression_by_factor}
            for name, block in self.blocks.items()
        }

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], json: Mapping[str, Any]) -> LayerCurvatures:
        """Rebuild a network's curvature from what `to_tensors` and `to_json` returned."""
        by_layer: dict[str, dict[str, Tensor]] = {layer: {} for layer in json}
        for key, tensor in tensors.items():
            # From the right, since a layer's name may be any path of modules.
            layer, _, field = key.rpartition("/")
            by_layer[layer][field] = tensor
        return LayerCurvatures(
            {
                layer: rebuild_curvature_block(
                    block_json["kind"], block_json["tiers"], by_layer[layer]
                )
                for layer, block_json in json.items()
            }
        )


def _get_layer_parameter_names(layer: str, displacements: Mapping[str, Tensor]) -> tuple[str, str]:
    """Return the parameter names of a layer's weight and bias.

    A layer is a module, an attention's `in_proj` or a bare parameter, whose bias is named "".
    """
    if layer in displacements:
        return layer, ""
    joint = "_" if layer.endswith(".in_proj") else "." if layer else ""
    return f"{layer}{joint}weight", f"{layer}{joint}bias"


def _join_weight_and_bias_displacement(
    layer: str, block: CurvatureBlock, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Join a layer's weight and bias displacement to d [o, w], with the bias as last column.

    Only a block with a bias has that column. Raises ValueError where the columns do not fit the
    block.
    """
    d = weight.reshape(weight.shape[0], -1)
    columns = block.count_displacement_columns(d.shape[0])
    if bias is None and columns == d.shape[1] + 1:
        bias = d.new_zeros(d.shape[0])
    if bias is not None:
        d = torch.cat([d, bias[:, None]], 1)
    if d.shape[1] != columns:
        raise ValueError(f"{layer}: displacements of {d.shape[1]} columns for a block of {columns}")
    return d
