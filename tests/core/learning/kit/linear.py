"""Linearised networks in float64 with random norms and displacements, streams that start from a
pretrained base, and a method driven by hand on whole tasks at once."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from recipes import resolve_patch
from safetensors.torch import save_file
from streams import Bench
from torch import nn

from core.learning.data.augment import Augmentation
from core.learning.methods import registry
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.precision import InputNormaliser
from core.learning.state import MethodState
from core.learning.training.context import TaskTrainingContext, TrainingBatch

CLASSES = ("ant", "bee", "cat")
# id → architecture, pixels a side, images
SMALL: dict[str, tuple[dict[str, Any], int, int]] = {
    "mlp": ({"name": "mlp", "hidden": [20, 10]}, 6, 4),
    "small-cnn": ({"name": "small-cnn"}, 8, 4),
    "resnet20": ({"name": "resnet20", "width": 8}, 8, 3),
    "slim-resnet18": ({"name": "slim-resnet18", "width": 8}, 8, 3),
    "resnet18-small-stem": ({"name": "resnet18", "stem": "small"}, 16, 2),
    "resnet18-standard-stem": ({"name": "resnet18", "stem": "standard"}, 32, 2),
    "vit": ({"name": "vit", "layers": 2, "heads": 2, "hidden": 16, "mlp": 24}, 16, 2),
}
WITH_NORMS = ["resnet20", "slim-resnet18", "resnet18-small-stem", "resnet18-standard-stem"]


def list_case_parameters(names: Iterable[str] = SMALL, *, large_in_ci: bool = False) -> list[Any]:
    """Return the cases as parameters of a test. Of the two large ones, CI takes the one with a
    pool behind its stem, or none.
    """
    often = () if large_in_ci else pytest.mark.campaign
    large = {"resnet18-standard-stem": often, "resnet18-small-stem": pytest.mark.campaign}
    return [pytest.param(name, marks=large.get(name, ())) for name in names]


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randomise_network(network: nn.Module) -> None:
    """Randomise biases, scales, tokens and running statistics in place, so that nothing is left
    at 0 or 1.
    """
    g = make_generator(1)

    def draw_noise(t: torch.Tensor) -> torch.Tensor:
        return torch.randn(t.shape, generator=g, dtype=torch.float64).to(t.dtype)

    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1 or not parameter.any() or float(parameter.abs().max()) < 1e-3:
                parameter.add_(0.3 * draw_noise(parameter))
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.add_(0.3 * draw_noise(module.running_mean))  # type: ignore[union-attr]
                module.running_var.mul_((0.5 * draw_noise(module.running_var)).exp())  # type: ignore[union-attr]


@cache
def _build_plain(case: str) -> Network:
    architecture, size, _ = SMALL[case]
    network = (
        build_network(architecture, ImageSpec(size, 3), "class", HeadSpec(CLASSES)).double().eval()
    )
    randomise_network(network)
    return network


def copy_plain_network(case: str) -> Network:
    """Return a plain network with random weights, norms and rows."""
    return copy.deepcopy(_build_plain(case))


def build_linearised_network(case: str, *, fixed_head: bool = False) -> LinearisedNetwork:
    network = LinearisedNetwork(
        copy_plain_network(case), slope=0.01, fixed_head=fixed_head, frozen=True
    )
    if fixed_head:
        head = network.get_learned_head_rows()
        network.set_reference_rows(
            "shared", torch.randn(head.shape, generator=make_generator(3), dtype=head.dtype)
        )
    return network.eval()


def draw_images(case: str, seed: int = 2) -> torch.Tensor:
    _, size, n = SMALL[case]
    return torch.randn(n, 3, size, size, generator=make_generator(seed), dtype=torch.float64)


def draw_displacement(network: LinearisedNetwork, seed: int) -> dict[str, torch.Tensor]:
    """Draw a random displacement by name, of a fifth of each weight's size."""
    g = make_generator(seed)
    return {
        name: 0.2
        * weight.norm()
        / weight.numel() ** 0.5
        * torch.randn(weight.shape, generator=g, dtype=weight.dtype)
        for name, weight in network.backbone.named_parameters()
    }


def set_displacement(network: LinearisedNetwork, psi: dict[str, torch.Tensor]) -> None:
    """Set the displacement of a network."""
    with torch.no_grad():
        for name, parameter in network.displacement.named_parameters():
            parameter.copy_(psi[name])


def compute_relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).detach().norm() / b.detach().norm())


def compute_joint_relative_error(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Return the relative error of all tensors together, so that those whose true value is zero
    count by their size beside the others.
    """
    return compute_relative_error(
        *(torch.cat([found[name].flatten() for name in b]) for found in (a, b))
    )


@dataclass
class Pretrained(Bench):
    """A bench whose version 0 is an uploaded base: a backbone with random norms."""

    def spec(self, number: int, parent: Any, **recipe: Any) -> dict[str, Any]:
        path = self.folder / "base.safetensors"
        if not path.exists():
            network = build_network(
                self.architecture, ImageSpec(self.size, self.channels), "class", HeadSpec(), 5
            )
            randomise_network(network)
            save_file(network.backbone.state_dict(), path)
        spec = super().spec(number, parent, **recipe)
        base = {"version": 0, "manifest": {"classes": [], "heads": []}}
        base["manifest"]["classes"] = spec["base"]["manifest"]["classes"]  # type: ignore[index]
        base["parts"] = [{"name": "base", "type": "base", "path": str(path)}]
        spec["base"] = base
        if parent is None:
            spec["parent"] = base
        return spec


@dataclass
class Hand:
    """A method's run by hand, a task after the other on one network: whole tasks as batches, no
    loop.
    """

    network: LinearisedNetwork
    recipe: dict[str, Any]
    scenario: str = "data"
    warnings: list[str] = field(default_factory=list)
    notes: dict[str, float | None] = field(default_factory=dict)
    task: int = 0

    def __post_init__(self) -> None:
        self.resolved_recipe = resolve_patch(self.recipe, self.scenario)
        kind = registry.get_method(self.resolved_recipe.method["name"])
        hyper = {k: v for k, v in self.resolved_recipe.method.items() if k != "name"}
        self.method: Any = kind(kind.Hyper.model_validate(hyper), MethodState())

    def begin(
        self, x: torch.Tensor, y: torch.Tensor, names: Any = None, **settings: Any
    ) -> TaskTrainingContext:
        """The context of the next task, whose training part is (x, y)."""
        self.task += 1
        network = self.network
        start = {name: p.detach().clone() for name, p in network.named_parameters()}
        head = self.task if self.scenario == "task" else None
        raw = (x.permute(0, 2, 3, 1) * 20 + 128).clamp(0, 255).to(torch.uint8)
        batch = TrainingBatch(x, y, torch.arange(len(y)), head, lambda rows: raw[rows])
        known = network.list_classes(head)
        ctx = TaskTrainingContext(
            network=network,
            scenario=self.scenario,
            task=self.task,
            classes=list(names or known),
            class_rows=torch.tensor([known.index(n) for n in (names or known)]),
            recipe=self.resolved_recipe,
            device=torch.device("cpu"),
            inputs=InputNormaliser(None, x.shape[1], torch.device("cpu")),
            augment=Augmentation("none", x.shape[2]),
            first=self.task == 1,
            warn=self.warnings.append,
            weights_at=lambda point: start,
            log_metric=lambda name, value, data: self.notes.update({name: value}),
            num_images=len(y),
            examples=lambda: [batch],
        )
        for name, value in settings.items():
            setattr(ctx, name, value)
        self.method.begin_task(ctx)
        wanted = self.method.list_trainable_parameter_names(network, self.resolved_recipe.depth)
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name in wanted)
            if name in wanted:
                ctx.trainable[name] = parameter
        return ctx

    def end(self, ctx: TaskTrainingContext) -> None:
        self.method.end_task(ctx, ctx.examples())
        ctx.cache.clear()

    def terms(self, ctx: TaskTrainingContext) -> dict[str, torch.Tensor]:
        """The loss terms of a step on the whole task."""
        (batch,) = ctx.examples()
        return self.method.compute_loss_terms(ctx, batch)

    def value(self, ctx: TaskTrainingContext) -> float:
        """The objective of a step on the whole task."""
        with torch.no_grad():
            return float(sum(self.terms(ctx).values())) + self.method.compute_penalty(ctx)

    def gradient(self, ctx: TaskTrainingContext) -> torch.Tensor:
        """Its gradient as a step sees it, flat, in the order of ctx.trainable."""
        for parameter in ctx.trainable.values():
            parameter.grad = None
        sum(self.terms(ctx).values()).backward()  # type: ignore[union-attr]
        self.method.add_penalty_gradients(ctx)
        return torch.cat([p.grad.flatten() for p in ctx.trainable.values()])  # type: ignore[union-attr]


def flatten_trainable(ctx: TaskTrainingContext) -> torch.Tensor:
    """Return the parameters that move, flat."""
    return torch.cat([p.detach().flatten() for p in ctx.trainable.values()])


def set_trainable(ctx: TaskTrainingContext, theta: torch.Tensor) -> None:
    """Set the parameters that move from a flat tensor."""
    with torch.no_grad():
        sizes = [p.numel() for p in ctx.trainable.values()]
        for parameter, values in zip(ctx.trainable.values(), theta.split(sizes), strict=True):
            parameter.copy_(values.view_as(parameter))


def minimise_quadratic(hand: Hand, ctx: TaskTrainingContext) -> None:
    """Move the parameters to the nearest minimum of a quadratic objective by its gradients alone."""
    start = flatten_trainable(ctx)
    at_start = hand.gradient(ctx)
    columns = []
    for unit in torch.eye(len(start), dtype=start.dtype):
        set_trainable(ctx, start + unit)
        columns.append(hand.gradient(ctx) - at_start)
    hessian = torch.stack(columns, 1)
    inverse = torch.linalg.pinv((hessian + hessian.T) / 2, rtol=1e-13, hermitian=True)
    set_trainable(ctx, start - inverse @ at_start)
    set_trainable(
        ctx, flatten_trainable(ctx) - inverse @ hand.gradient(ctx)
    )  # once more, for what rounding left
