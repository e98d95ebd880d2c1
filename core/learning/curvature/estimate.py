"""Curvature measured in passes over data: per layer, mean products of inputs and gradients.

The cotangents v of the outputs have as Σ v vᵀ the Hessian of the loss by the outputs (`fisher.py`).
A layer's block of the generalised Gauss-Newton matrix is then E_x Σ_v vec(M) vec(M)ᵀ, M [o, w] the
gradient of vᵀ outputs for one example (`layers.py`). Only sums over examples are stored: they do
not depend on the batches, can be stored in mid pass, and add up over data sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from core.learning.curvature.block import (
    CurvatureBlock,
    DiagonalCurvatureBlock,
    ExactCurvatureBlock,
    GroupedConvolutionCurvatureBlock,
    HeadGramCurvatureBlock,
    KroneckerCurvatureBlock,
    TraceRestrictedKroneckerBlock,
)
from core.learning.curvature.capture import CapturedForwardPass, Forward
from core.learning.curvature.factor import make_dense_factor
from core.learning.curvature.layers import (
    CurvatureLayer,
    arrange_layer_inputs,
    arrange_layer_output_gradients,
    compute_layer_gradient_per_example,
    require_layer_with_measurable_curvature,
)
from core.learning.precision import use_full_precision

Kind = Literal["diagonal", "kfac", "tkfac", "exact", "gram"]
Cotangents = Callable[[Tensor], Sequence[Tensor]]
EXACT_NUMBERS = 4096  # largest layer, in numbers, with a whole block


class CurvatureEstimator:
    """Estimates a network's curvature by layer from running sums over examples.

    Where a Kronecker-factored kind is requested, norms and bare parameters get a diagonal, and
    grouped convolutions a block per output. A layer that the forward pass does not use has zero
    curvature.
    """

    def __init__(self, network: nn.Module, forward: Forward, kinds: Mapping[str, Kind]) -> None:
        """Set up zero sums for the given layers.

        Args:
            network: in eval mode.
            forward: x [B, …] → outputs [B, C] of the plain network at its weights.
            kinds: by name of a layer. "gram" is for heads under half the squared
                error, and needs no cotangents.

        Raises:
            ValueError: for a layer that cannot be measured.
        """
        self._network, self._forward = network, forward
        self._parts = {
            name: _LayerCurvatureSums(require_layer_with_measurable_curvature(network, name), kind)
            for name, kind in kinds.items()
        }
        self.n = 0

    def add_examples(self, x: Tensor, cotangents: Cotangents | None = None) -> None:
        """Add the curvature statistics of examples x [B, …] to the running sums.

        Args:
            x: a batch of inputs.
            cotangents: outputs [B, C] → one [B, C] per probe, whose contributions are summed. Rows
                belong to examples and are never divided by B. None: only inputs are measured.

        Raises:
            ValueError: when a layer runs twice.
        """
        layers = [part.layer for part in self._parts.values()]
        with use_full_precision(x.device):
            # One forward pass for all probes: each of them only runs backward.
            run = CapturedForwardPass(self._network, self._forward, layers, x)
            parts = {name: part for name, part in self._parts.items() if name in run.seen}
            for name, part in parts.items():
                part.add_input_statistics(run.seen[name].a)
            probes = cotangents(run.outputs.detach()) if cotangents is not None else ()
            # The last probe frees the graph, which holds all activations.
            for i, probe in enumerate(probes):
                for name, g in run.compute_layer_output_gradients(
                    probe, last=i + 1 == len(probes)
                ).items():
                    parts[name].add_output_gradient_statistics(run.seen[name].a, g)
        self.n += x.shape[0]

    def build_curvature_blocks(
        self, max_factor_bytes: int | None = None
    ) -> dict[str, CurvatureBlock]:
        """Return the mean curvature blocks by layer, with factors of at most `max_factor_bytes`.

        A factor takes the first tier that fits. Raises ValueError before the first example.
        """
        if self.n == 0:
            raise ValueError("no example has been measured")
        return {
            name: part.build_block(self.n).compress_factors(
                max_factor_bytes, part.layer.kernel_pixels
            )
            for name, part in self._parts.items()
        }

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the running sums of the curvature estimate and `n`, to continue it later."""
        tensors = {"n": torch.tensor(self.n)}
        for name, part in self._parts.items():
            # Copies, since the sums go on changing with each batch.
            tensors |= {f"{name}/{key}": total.clone() for key, total in part.sums.items()}
        return tensors

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue a curvature estimate from the running sums of `to_tensors`.

        Raises ValueError for other layers, kinds or shapes.
        """
        mine = {
            f"{name}/{key}": t for name, part in self._parts.items() for key, t in part.sums.items()
        }
        shapes = {key: t.shape for key, t in tensors.items() if key != "n"}
        # Shapes differ for other layers, other kinds and another architecture alike.
        if shapes != {key: t.shape for key, t in mine.items()}:
            raise ValueError("the stored sums are of other layers or kinds")
        for key, total in mine.items():
            total.copy_(tensors[key])
        self.n = int(tensors["n"])


@dataclass
class _LayerCurvatureSums:
    """Running sums of one layer's curvature statistics."""

    layer: CurvatureLayer
    kind: str

    def __post_init__(self) -> None:
        layer, kind = self.layer, self.kind
        # These layers have no matrix product to factor.
        if kind in ("kfac", "tkfac") and layer.form in ("norm", "bare"):
            self.kind = kind = "diagonal"
        elif kind in ("kfac", "tkfac") and layer.is_grouped_convolution:
            self.kind = kind = "channels"
        o, w = layer.output_count, layer.parameters_per_output
        shapes: dict[str, dict[str, tuple[int, ...]]] = {
            "diagonal": {"values": (o, w)},
            "kfac": {"a": (w, w), "g": (o, o)},
            "tkfac": {"p": (w, w), "q": (o, o), "delta": ()},
            "exact": {"matrix": (o * w, o * w)},
            "gram": {"a": (w, w)},
            "channels": {"blocks": (o, w, w)},
        }
        if kind not in shapes:
            raise ValueError(f"{layer.name}: unknown kind of curvature {kind!r}")
        if kind == "gram" and layer.form != "linear":
            raise ValueError(f"{layer.name}: only a linear layer has a gram")
        if kind == "exact" and o * w > EXACT_NUMBERS:
            raise ValueError(f"{layer.name}: {o * w} numbers are too many for an exact block")
        weight = layer.weight.detach()
        # Sums over many examples would lose digits in half precision.
        self.dtype = torch.promote_types(weight.dtype, torch.float32)
        self.sums = {
            name: torch.zeros(shape, dtype=self.dtype, device=weight.device)
            for name, shape in shapes[kind].items()
        }

    def add_input_statistics(self, a: Tensor) -> None:
        """Add the statistics of a layer's inputs, which are the same for every output probe.

        The mean over positions is taken here: sums are over examples.
        """
        if self.kind not in ("kfac", "gram"):
            return
        rows = arrange_layer_inputs(self.layer, a.to(self.dtype))
        positions = rows.shape[1]
        if self.kind == "gram" and positions != 1:
            raise ValueError(
                f"{self.layer.name}: the gram of a layer that runs on {positions} positions"
            )
        rows = rows.flatten(0, 1)
        self.sums["a"] += rows.T @ rows / positions

    def add_output_gradient_statistics(self, a: Tensor, g: Tensor) -> None:
        """Add the statistics of a layer's output gradients for one probe.

        Args:
            a: the layer's input, as captured.
            g: the gradient by the layer's output, as captured.
        """
        if self.kind == "gram":
            return
        a, g = a.to(self.dtype), g.to(self.dtype)
        if self.kind == "kfac":
            rows = arrange_layer_output_gradients(self.layer, g).flatten(0, 1)
            self.sums["g"] += rows.T @ rows
        elif self.kind == "tkfac":
            p, q, delta = sum_gradient_products(self.layer, a, g)
            self.sums["p"] += p
            self.sums["q"] += q
            self.sums["delta"] += delta
        else:
            m = compute_layer_gradient_per_example(self.layer, a, g)
            if self.kind == "diagonal":
                self.sums["values"] += m.square().sum(0)
            elif self.kind == "channels":
                rows = m.transpose(0, 1)
                self.sums["blocks"] += rows.transpose(1, 2) @ rows
            else:
                rows = m.flatten(1)
                self.sums["matrix"] += rows.T @ rows

    def build_block(self, n: int) -> CurvatureBlock:
        """Build a layer's curvature block from the means over n examples."""
        # Divided only here: sums add up over batches of different sizes.
        mean = {name: total / n for name, total in self.sums.items()}
        match self.kind:
            case "diagonal":
                return DiagonalCurvatureBlock(mean["values"])
            case "kfac":
                return KroneckerCurvatureBlock(
                    make_dense_factor(_symmetrize_matrix(mean["a"])),
                    make_dense_factor(_symmetrize_matrix(mean["g"])),
                )
            case "tkfac":
                return TraceRestrictedKroneckerBlock(
                    make_dense_factor(_symmetrize_matrix(mean["p"])),
                    make_dense_factor(_symmetrize_matrix(mean["q"])),
                    mean["delta"],
                )
            case "gram":
                return HeadGramCurvatureBlock(make_dense_factor(_symmetrize_matrix(mean["a"])))
            case "channels":
                return GroupedConvolutionCurvatureBlock(_symmetrize_matrix(mean["blocks"]))
            case _:
                return ExactCurvatureBlock(_symmetrize_matrix(mean["matrix"]))


def sum_gradient_products(
    layer: CurvatureLayer, a: Tensor, g: Tensor, by_positions: bool | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum products of per-example gradients M over examples: Σ Mᵀ M, Σ M Mᵀ and Σ |M|².

    Args:
        layer: the layer.
        a: the layer's input.
        g: the gradient by the layer's output.
        by_positions: compute through products between positions, without M [o, w]; the same in
            exact arithmetic. None: the way with fewer multiplications.
    """
    if by_positions is None:
        positions = g[0].numel() // layer.output_count
        by_positions = _is_position_product_cheaper_than_gradient(
            positions, layer.output_count, layer.parameters_per_output
        )
    if not by_positions:
        m = compute_layer_gradient_per_example(layer, a, g)
        rows, columns = m.flatten(0, 1), m.transpose(0, 1).flatten(1)
        return rows.T @ rows, columns @ columns.T, m.square().sum()
    x, y = arrange_layer_inputs(layer, a), arrange_layer_output_gradients(layer, g)
    of_x, of_y = x @ x.transpose(1, 2), y @ y.transpose(1, 2)
    p = x.flatten(0, 1).T @ (of_y @ x).flatten(0, 1)
    q = y.flatten(0, 1).T @ (of_x @ y).flatten(0, 1)
    return p, q, (of_x * of_y).sum()


def _is_position_product_cheaper_than_gradient(t: int, o: int, w: int) -> bool:
    """Return true if products over T positions, [T, T], need fewer multiplications than gradients M
    [o, w].
    """
    return 2 * t * t * (o + w) + t * (w * w + o * o) <= o * w * (t + w + o)


def _symmetrize_matrix(matrix: Tensor) -> Tensor:
    """Average a matrix and its transpose, which removes differences by rounding."""
    return (matrix + matrix.mT) / 2
