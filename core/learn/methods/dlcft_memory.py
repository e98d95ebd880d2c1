"""What DLCFT keeps of earlier tasks, and how it is measured when a task ends.

Kept are the mean curvature of the tasks so far and, on request, their mean gradient and each task's own diagonal.
Curvature is that of the linearised network at its base ψ0: it depends on the images and on the rows that read the
displacement, not on labels, residuals or the displacement itself (J'J, since the loss's Hessian by the outputs is the
identity). Everything is merged statistic by statistic, as if the data had been measured together.

Blocks by layer leave out what layers have to do with each other. Layers that move together add up in the outputs, so
that ΔᵀHΔ of an update is several times what its blocks say, and the more so the more layers there are. How many
times is measured along the update itself, on its own images, and kept as `coupling`, by which forecasts take H.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import functional_call

from core.learn.curvature.block import Diagonal, Gram
from core.learn.curvature.capture import full_precision
from core.learn.curvature.curvature import Curvature
from core.learn.curvature.estimate import Estimate, Kind
from core.learn.curvature.factor import fitted
from core.learn.curvature.layers import layers_of
from core.learn.curvature.probes import basis, rademacher
from core.learn.networks.linearised import DISPLACEMENT, LinearisedNetwork
from core.learn.squared_loss import residuals, with_one
from core.learn.state import Section

HEAD = "head"


@dataclass(frozen=True)
class Measured:
    """One task at its end. By parameter: `gradient` of its mean loss, and `diagonal` of its curvature if asked for.

    `coupling`, `diagonal_coupling`: how many times greater the mean 1/2 ‖δ‖² is, δ the change of an image's outputs by
    this update, than 1/2 ΔᵀHΔ of either form; 1 where nothing moved.
    """

    curvature: Curvature
    gradient: Mapping[str, Tensor]
    diagonal: Mapping[str, Tensor]
    coupling: float
    diagonal_coupling: float
    health: Mapping[str, float]


def measured(
    network: LinearisedNetwork,
    examples: Iterable[tuple[Tensor, Tensor]],
    task: int | None,
    *,
    kind: Kind,
    alpha: float,
    probes: int | None,
    generator: torch.Generator,
    deltas: Mapping[str, Tensor],
    max_factor_bytes: int | None = None,
    diagonal: bool = False,
) -> Measured:
    """One pass over a task's examples (x [B, C, S, S], y int64 [B]), unaugmented; the network in eval mode.

    task: names the head in the task scenario, whose heads have no curvature: they never move again. probes: sign
    vectors per image, or None for every output by itself. deltas: the way of the task, by parameter. Raises ValueError
    without examples.
    """
    main, own = _estimate(network, task, kind), _estimate(network, task, "diagonal") if diagonal else None
    first_order, change = _FirstOrder(network, task, alpha), _Change(network, task, deltas)
    ratio: float | None = None
    for x, y in examples:
        cotangents = _cotangents(network, x, task, probes, generator)
        main.add(x, lambda _, c=cotangents: c)  # type: ignore[misc]
        if own is not None:
            own.add(x, lambda _, c=cotangents: c)  # type: ignore[misc]
        if ratio is None:
            ratio = _trace_ratio(network, x, task, kind, cotangents)
        change.add(x, first_order.add(x, y))
    curvature = _curvature(main, first_order.gram(), max_factor_bytes)
    gradient = first_order.gradient()
    norm = torch.stack([g.double().square().sum() for g in gradient.values()]).sum().sqrt()
    coupling = change.over(float(curvature.gradient(deltas)[1]))
    health = {
        "end_gradient_norm": float(norm),
        "curvature_trace": float(curvature.trace()),
        "curvature_trace_ratio": 1.0 if ratio is None else ratio,
        "curvature_coupling": coupling,
    }
    diagonals = {} if own is None else _diagonals(own, first_order.gram(), gradient)
    bend = sum(
        float((d * deltas[name].square()).sum()) / 2 for name, d in diagonals.items() if name in deltas
    )
    return Measured(curvature, gradient, diagonals, coupling, change.over(bend), health)


class Memory:
    """A view of a state section. `tasks`, `images`: what the curvature is the mean of."""

    def __init__(self, section: Section) -> None:
        self._section = section

    @property
    def tasks(self) -> int:
        return int(self._section.json.get("tasks", 0))

    @property
    def images(self) -> int:
        return int(self._section.json.get("images", 0))

    @property
    def coupling(self) -> float:
        """Of the latest update; 1 before the first."""
        return float(self._section.json.get("coupling", 1.0))

    @property
    def diagonal_coupling(self) -> float:
        """Of the tasks' own diagonals."""
        return float(self._section.json.get("diagonal_coupling", 1.0))

    @cached_property
    def curvature(self) -> Curvature:
        """Of the penalty, unpacked; without layers before the first task's end."""
        return Curvature.from_tensors(self._under("mean/"), self._section.json.get("layers", {}))

    @cached_property
    def gradient(self) -> dict[str, Tensor]:
        """Of the earlier tasks' mean loss where the latest ended, by parameter; {} where it is not kept."""
        return self._under("gradient/")

    def of_tasks(self) -> dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]]:
        """Task → its own diagonal, and its gradient where the latest task ended."""
        return {
            int(task): (self._under(f"task/{task}/diagonal/"), self._under(f"task/{task}/gradient/"))
            for task in self._section.json.get("by_task", [])
        }

    def learn(
        self,
        fresh: Measured,
        deltas: Mapping[str, Tensor],
        *,
        share: float,
        task: int,
        images: int,
        keep_gradient: bool,
    ) -> None:
        """Take in a task that ended: weigh it by `share`, and the tasks before it by 1 - share.

        deltas: the way of this task, by parameter. A view that was made before does not see the change.
        """
        tensors: dict[str, Tensor] = {}
        curvature = self.curvature.merge(fresh.curvature, share) if self.tasks else fresh.curvature
        tensors |= {f"mean/{key}": t for key, t in curvature.to_tensors().items()}
        if keep_gradient:
            pull = self.curvature.gradient(deltas)[0] if self.tasks else {}
            pull = {name: fresh.coupling * of for name, of in pull.items()}
            for name, new in fresh.gradient.items():
                before = [like(held[name], new) for held in (self.gradient, pull) if name in held]
                tensors[f"gradient/{name}"] = share * new + (1 - share) * sum(before, torch.zeros_like(new))
        by_task = self.of_tasks()
        for number, (diagonal, slope) in by_task.items():
            for name, d in diagonal.items():
                moved = slope[name]
                if name in deltas:
                    pull_of = like(d, deltas[name]) * deltas[name]
                    moved = like(moved, deltas[name]) + fresh.diagonal_coupling * pull_of
                tensors[f"task/{number}/diagonal/{name}"] = d
                tensors[f"task/{number}/gradient/{name}"] = moved
        for name, d in fresh.diagonal.items():
            tensors[f"task/{task}/diagonal/{name}"] = d
            tensors[f"task/{task}/gradient/{name}"] = fresh.gradient[name]
        json = {
            "tasks": self.tasks + 1,
            "images": self.images + images,
            "coupling": fresh.coupling,
            "diagonal_coupling": fresh.diagonal_coupling,
            "layers": curvature.to_json(),
            "by_task": [*by_task, *([task] if fresh.diagonal else [])],
        }
        self._section.clear()
        self._section.tensors.update(tensors)
        self._section.json.update(json)

    def _under(self, prefix: str) -> dict[str, Tensor]:
        tensors = self._section.tensors
        return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}


def like(held: Tensor, now: Tensor) -> Tensor:
    """With rows of zeros for those that `now` has more."""
    missing = now.shape[0] - held.shape[0]
    return torch.cat([held, held.new_zeros(missing, *held.shape[1:])]) if missing else held


class _FirstOrder:
    """Sums of what needs the network as it is now: the loss's gradient, and features for the head's block."""

    def __init__(self, network: LinearisedNetwork, task: int | None, alpha: float) -> None:
        self._network, self._task, self._alpha = network, task, alpha
        self._n = 0
        self._sums: dict[str, Tensor] = {}
        self._gram: Tensor | None = None

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Take in a batch; its outputs."""
        network = self._network
        with full_precision(x.device):
            value, tangent = network.expansion(x)
            assert tangent is not None
            outputs = network.join(value, tangent, self._task)
            u = residuals(outputs, y, self._alpha)
            self._add(network.pullback(x, u @ network.reading_rows(self._task)))
            if self._task is None:
                z = with_one(value if network.fixed_head else value + tangent)
                self._gram = z.T @ z if self._gram is None else self._gram + z.T @ z
                of_head = u.T @ z
                self._add({"head.weight": of_head[:, :-1], "head.bias": of_head[:, -1]})
        self._n += x.shape[0]
        return outputs

    def gradient(self) -> dict[str, Tensor]:
        """Of the mean loss, by parameter. Raises ValueError without examples."""
        if not self._n:
            raise ValueError("a task without examples has no gradient")
        return {name: total / self._n for name, total in self._sums.items()}

    def gram(self) -> Tensor | None:
        """The mean of z zᵀ, z the features that the head reads with 1 appended; None with a head per task."""
        return None if self._gram is None else (self._gram + self._gram.T) / (2 * self._n)

    def _add(self, found: Mapping[str, Tensor]) -> None:
        for name, value in found.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value.clone()


class _Change:
    """The sum of 1/2 ‖δ‖², δ what this update changed in an image's outputs."""

    def __init__(self, network: LinearisedNetwork, task: int | None, deltas: Mapping[str, Tensor]) -> None:
        parameters = dict(network.named_parameters())
        self._before = {name: parameters[name].detach() - delta for name, delta in deltas.items()}
        self._network, self._task = network, task
        self._sum, self._n = 0.0, 0

    @torch.no_grad()
    def add(self, x: Tensor, outputs: Tensor) -> None:
        if self._before:
            with full_precision(x.device):
                before = functional_call(self._network, self._before, (x, self._task))
            self._sum += float((outputs - before).double().square().sum()) / 2
        self._n += x.shape[0]

    def over(self, modelled: float) -> float:
        """The mean by what a form of the curvature says."""
        return self._sum / self._n / modelled if modelled > 0 and self._sum > 0 else 1.0


def _estimate(network: LinearisedNetwork, task: int | None, kind: Kind) -> Estimate:
    backbone = network.backbone
    layers = layers_of(backbone, [name for name, _ in backbone.named_parameters()])
    return Estimate(backbone, lambda x: network.frozen_logits(x, task), dict.fromkeys(layers, kind))


def _cotangents(
    network: LinearisedNetwork, x: Tensor, task: int | None, probes: int | None, generator: torch.Generator
) -> list[Tensor]:
    outputs = x.new_zeros(x.shape[0], network.reading_rows(task).shape[0])
    return basis(outputs) if probes is None else rademacher(outputs, probes, generator)


def _trace_ratio(
    network: LinearisedNetwork, x: Tensor, task: int | None, kind: Kind, cotangents: list[Tensor]
) -> float:
    """The trace of the kept form to the exact one, on a few images: 1 for diagonals and trace-restricted factors."""
    found = []
    for of in (kind, "diagonal"):
        some = _estimate(network, task, of)
        some.add(x, lambda _: cotangents)
        found.append(float(Curvature(some.blocks()).trace()))
    return found[0] / found[1] if found[1] > 0 else 1.0


def _curvature(estimate: Estimate, gram: Tensor | None, limit: int | None) -> Curvature:
    """By the network's own names; the head's block beside the displacement's."""
    blocks = {f"{DISPLACEMENT}{layer}": block for layer, block in estimate.blocks(limit).items()}
    if gram is not None:
        factor = fitted(gram, limit)
        if factor is None:
            raise ValueError(f"max_factor_bytes {limit} leaves no room for the head's {gram.nbytes} bytes")
        blocks[HEAD] = Gram(factor)
    return Curvature(blocks)


def _diagonals(
    estimate: Estimate, gram: Tensor | None, parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """By parameter, in its shape; a head's rows all have the gram's diagonal."""
    curvature = _curvature(estimate, None, None)
    assert all(isinstance(block, Diagonal) for block in curvature.blocks.values())
    found = curvature.gradient({name: torch.ones_like(p) for name, p in parameters.items()})[0]
    if gram is not None:
        of_row, of_bias = gram.diagonal()[:-1], gram.diagonal()[-1]
        found["head.weight"] = of_row.expand_as(parameters["head.weight"]).clone()
        found["head.bias"] = of_bias.expand_as(parameters["head.bias"]).clone()
    return found
