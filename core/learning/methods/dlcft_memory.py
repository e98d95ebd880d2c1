"""Stored state of DLCFT for earlier tasks, and its measurement when a task ends.

The state is the mean curvature of the tasks so far and, on request, their mean gradient and each
task's own diagonal. The curvature is that of the linearised network at its base ψ0: Jᵀ J, since the
loss's Hessian by the outputs is the identity. It depends on the images and the readout rows, but
not on labels, residuals or the displacement. Merging averages every statistic, which equals
measuring the data of all tasks together.

Blocks by layer omit the curvature between layers. The changes of layers that are trained together
add up in the outputs, so ΔᵀHΔ of an update is several times the sum over its blocks; more so with
more layers. That factor is measured along the update itself, on the task's own images, and stored
as `coupling`. Forecasts multiply by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import functional_call

from core.learning.curvature.block import DiagonalCurvatureBlock, HeadGramCurvatureBlock
from core.learning.curvature.curvature import LayerCurvatures
from core.learning.curvature.estimate import CurvatureEstimator, Kind
from core.learning.curvature.factor import fit_factor_to_byte_limit
from core.learning.curvature.fisher import draw_rademacher_cotangents, make_basis_vector_cotangents
from core.learning.curvature.layers import list_layers_owning_parameters
from core.learning.methods.squared_loss import append_column_of_ones, subtract_scaled_onehot_targets
from core.learning.networks.linear.linearised import DISPLACEMENT, LinearisedNetwork
from core.learning.precision import use_full_precision
from core.learning.state import MethodStateSection

HEAD = "head"


@dataclass(frozen=True)
class TaskCurvatureStatistics:
    """Curvature statistics of one task, measured at its end.

    Attributes:
        curvature: blocks by layer, with the head's block in scenarios with one head.
        gradient: of its mean loss, by parameter.
        diagonal: of its curvature, by parameter; {} unless requested.
        coupling: factor by which the mean of 1/2 ‖δ‖² exceeds 1/2 ΔᵀHΔ of the blocks, δ the change
            of an image's outputs by this update; 1 where no parameter moved.
        diagonal_coupling: the same factor for the diagonal.
        health: metrics by name.
    """

    curvature: LayerCurvatures
    gradient: Mapping[str, Tensor]
    diagonal: Mapping[str, Tensor]
    coupling: float
    diagonal_coupling: float
    health: Mapping[str, float]


@dataclass(frozen=True)
class CurvatureMeasurementSettings:
    """Settings for measuring a task's curvature: kind of blocks, probes, size limits.

    Attributes:
        kind: form of the blocks.
        alpha: scale of the targets, see `subtract_scaled_onehot_targets`.
        probes: sign vectors per image; None: every output by itself.
        max_factor_bytes: limit of each factor's size; None for no limit.
        diagonal: measure the task's own diagonal as well.
    """

    kind: Kind
    alpha: float
    probes: int | None
    max_factor_bytes: int | None = None
    diagonal: bool = False


def measure_task_curvature(
    network: LinearisedNetwork,
    examples: Iterable[tuple[Tensor, Tensor]],
    task: int | None,
    measurement: CurvatureMeasurementSettings,
    *,
    generator: torch.Generator,
    deltas: Mapping[str, Tensor],
) -> TaskCurvatureStatistics:
    """Measure a task's curvature statistics in one pass over its unaugmented examples.

    Args:
        network: in eval mode.
        examples: batches (x [B, C, S, S], y int64 [B]).
        task: names the head in the task scenario; such heads have no curvature, since they never
            move again.
        measurement: statistics to measure, and their form.
        generator: on the CPU, for the sign vectors.
        deltas: the displacement of this task, by parameter.

    Raises:
        ValueError: without examples.
    """
    main, diagonal_estimate = (
        _create_backbone_curvature_estimator(network, task, measurement.kind),
        _create_backbone_curvature_estimator(network, task, "diagonal")
        if measurement.diagonal
        else None,
    )
    first_order = _GradientAndGramSums(network, task, measurement.alpha)
    change = _OutputChangeMeasurement(network, task, deltas)
    ratio: float | None = None
    for x, y in examples:
        cotangents = _make_output_cotangents(network, x, task, measurement.probes, generator)
        main.add_examples(x, lambda _, c=cotangents: c)  # type: ignore[misc]
        if diagonal_estimate is not None:
            diagonal_estimate.add_examples(x, lambda _, c=cotangents: c)  # type: ignore[misc]
        # Measured on the first batch alone, since it takes two further passes.
        if ratio is None:
            ratio = _compute_stored_to_exact_trace_ratio(
                network, x, task, measurement.kind, cotangents
            )
        change.add_batch_changes(x, first_order.add_batch_and_compute_outputs(x, y))
    gram, gradient = first_order.compute_mean_gram(), first_order.compute_mean_gradient()
    curvature = _build_network_curvature(main, gram, measurement.max_factor_bytes)
    coupling = change.compute_measured_to_modelled_change_ratio(
        float(curvature.compute_penalty_and_gradient(deltas)[1])
    )
    health = _compute_curvature_metrics(curvature, gradient, ratio, coupling)
    diagonals = (
        {}
        if diagonal_estimate is None
        else _extract_curvature_diagonals(diagonal_estimate, gram, gradient)
    )
    diagonal_coupling = change.compute_measured_to_modelled_change_ratio(
        _compute_diagonal_quadratic_penalty(diagonals, deltas)
    )
    return TaskCurvatureStatistics(
        curvature, gradient, diagonals, coupling, diagonal_coupling, health
    )


class CurvatureMemory:
    """The curvature of earlier tasks, stored in a state section of the method."""

    def __init__(self, section: MethodStateSection) -> None:
        self._section = section

    @property
    def covered_task_count(self) -> int:
        """Number of tasks that the stored mean curvature covers."""
        return int(self._section.json.get("tasks", 0))

    @property
    def covered_image_count(self) -> int:
        """Number of images that the stored mean curvature covers."""
        return int(self._section.json.get("images", 0))

    @property
    def coupling(self) -> float:
        """Factor between measured and modelled change of outputs (coupling) of the latest update; 1
        before.
        """
        return float(self._section.json.get("coupling", 1.0))

    @property
    def diagonal_coupling(self) -> float:
        """Coupling factor of the tasks' diagonal curvatures; 1 before the first update."""
        return float(self._section.json.get("diagonal_coupling", 1.0))

    @cached_property
    def curvature(self) -> LayerCurvatures:
        """The mean curvature of earlier tasks, unpacked; without layers before the first task's
        end.
        """
        return LayerCurvatures.from_tensors(
            self._get_tensors_by_prefix("mean/"), self._section.json.get("layers", {})
        )

    @cached_property
    def gradient(self) -> dict[str, Tensor]:
        """Gradient of the earlier tasks' mean loss at the end of the latest task, by parameter.

        Empty unless stored.
        """
        return self._get_tensors_by_prefix("gradient/")

    def read_curvatures_and_gradients_by_task(
        self,
    ) -> dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]]:
        """Read each earlier task's diagonal curvature and gradient, by parameter.

        The gradient is that at the end of the latest task.
        """
        return {
            int(task): (
                self._get_tensors_by_prefix(f"task/{task}/diagonal/"),
                self._get_tensors_by_prefix(f"task/{task}/gradient/"),
            )
            for task in self._section.json.get("by_task", [])
        }

    def merge_task_curvature(
        self,
        fresh: TaskCurvatureStatistics,
        deltas: Mapping[str, Tensor],
        *,
        share: float,
        task: int,
        images: int,
        keep_gradient: bool,
    ) -> None:
        """Merge a finished task's curvature with weight `share` into the mean of the earlier tasks.

        Existing views keep the old values.

        Args:
            fresh: measurements of the task.
            deltas: the displacement of this task, by parameter.
            share: weight of the task in the mean, in [0, 1].
            task: number of the task.
            images: number of the task's images.
            keep_gradient: store the merged gradient as well.
        """
        curvature = (
            self.curvature.average_with(fresh.curvature, share)
            if self.covered_task_count
            else fresh.curvature
        )
        tensors = {f"mean/{key}": t for key, t in curvature.to_tensors().items()}
        if keep_gradient:
            merged = self._compute_mean_gradient_over_tasks(fresh, deltas, share)
            tensors |= {f"gradient/{name}": g for name, g in merged.items()}
        by_task = self.read_curvatures_and_gradients_by_task()
        for number, (diagonal, gradient) in by_task.items():
            moved = _compute_gradient_after_displacement(
                gradient, diagonal, deltas, fresh.diagonal_coupling
            )
            tensors |= _build_task_curvature_tensors(number, diagonal, moved)
        tensors |= _build_task_curvature_tensors(task, fresh.diagonal, fresh.gradient)
        json = {
            "tasks": self.covered_task_count + 1,
            "images": self.covered_image_count + images,
            "coupling": fresh.coupling,
            "diagonal_coupling": fresh.diagonal_coupling,
            "layers": curvature.to_json(),
            "by_task": [*by_task, *([task] if fresh.diagonal else [])],
        }
        # Cleared only now: the new tensors are made of the old ones.
        self._section.clear_section()
        self._section.tensors.update(tensors)
        self._section.json.update(json)

    def _compute_mean_gradient_over_tasks(
        self, fresh: TaskCurvatureStatistics, deltas: Mapping[str, Tensor], share: float
    ) -> dict[str, Tensor]:
        """Compute the mean gradient of all tasks at the present weights, by parameter."""
        rise = (
            self.curvature.compute_penalty_and_gradient(deltas)[0]
            if self.covered_task_count
            else {}
        )
        rise = {name: fresh.coupling * h_delta for name, h_delta in rise.items()}
        merged: dict[str, Tensor] = {}
        for name, new in fresh.gradient.items():
            before = [
                append_zero_rows_to_match(terms[name], new)
                for terms in (self.gradient, rise)
                if name in terms
            ]
            # The earlier tasks' gradient at the present weights is q + c H Δ.
            # `sum` begins at a tensor of zeros, so that a parameter without earlier terms keeps its
            # shape.
            merged[name] = share * new + (1 - share) * sum(before, torch.zeros_like(new))
        return merged

    def _get_tensors_by_prefix(self, prefix: str) -> dict[str, Tensor]:
        """Return the stored tensors whose names have a prefix, without the prefix."""
        tensors = self._section.tensors
        return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}


def append_zero_rows_to_match(earlier_tensor: Tensor, now: Tensor) -> Tensor:
    """Append zero rows to `earlier_tensor` until it has as many rows as `now`."""
    # Rows of new classes have no curvature from before they existed.
    missing = now.shape[0] - earlier_tensor.shape[0]
    return (
        torch.cat([earlier_tensor, earlier_tensor.new_zeros(missing, *earlier_tensor.shape[1:])])
        if missing
        else earlier_tensor
    )


def _compute_gradient_after_displacement(
    gradient: Mapping[str, Tensor],
    diagonal: Mapping[str, Tensor],
    deltas: Mapping[str, Tensor],
    coupling: float,
) -> dict[str, Tensor]:
    """Compute a task's gradient after the weights moved by Δ: q + c D Δ, by parameter."""
    moved: dict[str, Tensor] = {}
    for name, d in diagonal.items():
        moved[name] = gradient[name]
        if name in deltas:
            rise = append_zero_rows_to_match(d, deltas[name]) * deltas[name]
            moved[name] = append_zero_rows_to_match(gradient[name], deltas[name]) + coupling * rise
    return moved


def _build_task_curvature_tensors(
    task: int, diagonal: Mapping[str, Tensor], gradient: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Build the tensors to store for one task's diagonal curvature and gradient."""
    tensors: dict[str, Tensor] = {}
    for name, d in diagonal.items():
        tensors[f"task/{task}/diagonal/{name}"] = d
        tensors[f"task/{task}/gradient/{name}"] = gradient[name]
    return tensors


class _GradientAndGramSums:
    """Running sums of the loss's gradient and of the head's features at the present weights."""

    def __init__(self, network: LinearisedNetwork, task: int | None, alpha: float) -> None:
        self._network, self._task, self._alpha = network, task, alpha
        self._n = 0
        self._sums: dict[str, Tensor] = {}
        self._gram: Tensor | None = None

    @torch.no_grad()
    def add_batch_and_compute_outputs(self, x: Tensor, y: Tensor) -> Tensor:
        """Add a batch's gradient to the sums; return the network's outputs [B, classes]."""
        network = self._network
        with use_full_precision(x.device):
            value, tangent = network.compute_value_and_derivative(x)
            assert tangent is not None
            outputs = network.compute_expansion_logits(value, tangent, self._task)
            u = subtract_scaled_onehot_targets(outputs, y, self._alpha)
            self._add_gradients_to_sums(
                network.compute_vector_jacobian_product(x, u @ network.get_readout_rows(self._task))
            )
            if self._task is None:
                # The head of a fixed readout reads the value alone.
                z = append_column_of_ones(value if network.fixed_head else value + tangent)
                self._gram = z.T @ z if self._gram is None else self._gram + z.T @ z
                of_head = u.T @ z
                self._add_gradients_to_sums(
                    {"head.weight": of_head[:, :-1], "head.bias": of_head[:, -1]}
                )
        self._n += x.shape[0]
        return outputs

    def compute_mean_gradient(self) -> dict[str, Tensor]:
        """Compute the gradient of the mean loss, by parameter.

        Raises ValueError without examples.
        """
        if not self._n:
            raise ValueError("a task without examples has no gradient")
        return {name: total / self._n for name, total in self._sums.items()}

    def compute_mean_gram(self) -> Tensor | None:
        """Compute the mean of z zᵀ [w + 1, w + 1], where z is the head's input and a 1.

        Returns None with a head per task.
        """
        return None if self._gram is None else (self._gram + self._gram.T) / (2 * self._n)

    def _add_gradients_to_sums(self, gradients: Mapping[str, Tensor]) -> None:
        for name, value in gradients.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value.clone()


class _OutputChangeMeasurement:
    """Measures how much an update of the weights changed the outputs, as a mean of ½ ‖δ‖² over
    images.
    """

    def __init__(
        self, network: LinearisedNetwork, task: int | None, deltas: Mapping[str, Tensor]
    ) -> None:
        parameters = dict(network.named_parameters())
        self._before = {name: parameters[name].detach() - delta for name, delta in deltas.items()}
        self._network, self._task = network, task
        self._sum, self._n = 0.0, 0

    @torch.no_grad()
    def add_batch_changes(self, x: Tensor, outputs: Tensor) -> None:
        """Add the output changes of a batch x [B, C, S, S], given its present outputs [B,
        classes].
        """
        if self._before:
            with use_full_precision(x.device):
                before = functional_call(self._network, self._before, (x, self._task))
            # In float64 and by image: changes of an update are small beside the outputs.
            self._sum += float((outputs - before).double().square().sum()) / 2
        self._n += x.shape[0]

    def compute_measured_to_modelled_change_ratio(self, modelled: float) -> float:
        """Return the measured mean output change divided by `modelled`, the change that the
        curvature predicts.

        Returns 1 where one of the two is 0.
        """
        # Without a displacement the ratio is 0 / 0: the model is taken as it is.
        return self._sum / self._n / modelled if modelled > 0 and self._sum > 0 else 1.0


def _compute_curvature_metrics(
    curvature: LayerCurvatures, gradient: Mapping[str, Tensor], ratio: float | None, coupling: float
) -> dict[str, float]:
    """Compute metrics of the curvature at a task's end: gradient norm, trace, trace ratio,
    coupling.
    """
    # In float64: squares of small gradients would vanish in float32.
    norm = torch.stack([g.double().square().sum() for g in gradient.values()]).sum().sqrt()
    return {
        "end_gradient_norm": float(norm),
        "curvature_trace": float(curvature.trace()),
        "curvature_trace_ratio": 1.0 if ratio is None else ratio,
        "curvature_coupling": coupling,
    }


def _compute_diagonal_quadratic_penalty(
    diagonals: Mapping[str, Tensor], deltas: Mapping[str, Tensor]
) -> float:
    """Compute the quadratic penalty ½ Δᵀ D Δ over parameters with a displacement and a diagonal."""
    shared = [(d, deltas[name]) for name, d in diagonals.items() if name in deltas]
    return sum(float((d * delta.square()).sum()) / 2 for d, delta in shared)


def _create_backbone_curvature_estimator(
    network: LinearisedNetwork, task: int | None, kind: Kind
) -> CurvatureEstimator:
    """Create an empty estimator of the backbone's curvature."""
    backbone = network.backbone
    layers = list_layers_owning_parameters(
        backbone, [name for name, _ in backbone.named_parameters()]
    )
    return CurvatureEstimator(
        backbone, lambda x: network.compute_frozen_logits(x, task), dict.fromkeys(layers, kind)
    )


def _make_output_cotangents(
    network: LinearisedNetwork,
    x: Tensor,
    task: int | None,
    probes: int | None,
    generator: torch.Generator,
) -> list[Tensor]:
    """Make the output cotangents for inputs x: basis vectors without `probes`, else random
    signs.
    """
    outputs = x.new_zeros(x.shape[0], network.get_readout_rows(task).shape[0])
    return (
        make_basis_vector_cotangents(outputs)
        if probes is None
        else draw_rademacher_cotangents(outputs, probes, generator)
    )


def _compute_stored_to_exact_trace_ratio(
    network: LinearisedNetwork, x: Tensor, task: int | None, kind: Kind, cotangents: list[Tensor]
) -> float:
    """Compute the trace of the stored form of curvature over the exact one, on a batch.

    It is 1 for diagonals and trace-restricted factors.
    """
    traces = []
    for curvature_kind in (kind, "diagonal"):
        estimate = _create_backbone_curvature_estimator(network, task, curvature_kind)
        estimate.add_examples(x, lambda _: cotangents)
        traces.append(float(LayerCurvatures(estimate.build_curvature_blocks()).trace()))
    # A trace of 0 has no gradient to compare: nothing was distorted.
    return traces[0] / traces[1] if traces[1] > 0 else 1.0


def _build_network_curvature(
    estimate: CurvatureEstimator, gram: Tensor | None, limit: int | None
) -> LayerCurvatures:
    """Convert measured blocks to the network's curvature: rename layers, and add the head's block.

    Raises ValueError if the head's factor does not fit the limit of bytes.
    """
    blocks = {
        f"{DISPLACEMENT}{layer}": block
        for layer, block in estimate.build_curvature_blocks(limit).items()
    }
    if gram is not None:
        factor = fit_factor_to_byte_limit(gram, limit)
        if factor is None:
            raise ValueError(
                f"max_factor_bytes {limit} leaves no room for the head's {gram.nbytes} bytes"
            )
        # One factor for all rows: the Hessian of half the squared error is the same for each
        # output.
        blocks[HEAD] = HeadGramCurvatureBlock(factor)
    return LayerCurvatures(blocks)


def _extract_curvature_diagonals(
    estimate: CurvatureEstimator, gram: Tensor | None, parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Extract the diagonal of the curvature by parameter, in its shape.

    All rows of a head have the gram's diagonal.
    """
    curvature = _build_network_curvature(estimate, None, None)
    assert all(isinstance(block, DiagonalCurvatureBlock) for block in curvature.blocks.values())
    diagonals = curvature.compute_penalty_and_gradient(
        # A diagonal times a vector of ones is the diagonal, in the parameters' shapes.
        {name: torch.ones_like(p) for name, p in parameters.items()}
    )[0]
    if gram is not None:
        of_row, of_bias = gram.diagonal()[:-1], gram.diagonal()[-1]
        # Copies, since all rows of an expanded view are the same memory.
        diagonals["head.weight"] = of_row.expand_as(parameters["head.weight"]).clone()
        diagonals["head.bias"] = of_bias.expand_as(parameters["head.bias"]).clone()
    return diagonals
