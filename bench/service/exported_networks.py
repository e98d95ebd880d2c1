"""Versions to export, built and not trained, with random heads and state: builders for each way to
answer, and small ones.

`export_matrix` has the architectures that people choose, with each way to answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from core.contract.architecture import Normalisation
from core.learning.analytic import discriminant, ridge
from core.learning.analytic.linear import (
    LinearWeights,
    append_column_of_ones,
    draw_projection_matrix,
    project_to_random_features,
)
from core.learning.analytic.sums import FeatureSums
from core.learning.evaluation.calibration.temperature import fit_softmax_temperature
from core.learning.export.probability_module import ProbabilityModule
from core.learning.methods import registry
from core.learning.methods.analytic import COSINE_TEMPERATURE
from core.learning.methods.method import Method
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.networks.der_net import DerNetwork
from core.learning.networks.growing import GrowingNetwork
from core.learning.networks.heads import ClassifierHead
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.networks.prompts import PromptedNetwork
from core.learning.state import MethodState

CLASSES, CHANNELS, IMAGES = ("cat", "dog", "emu"), 3, 60
TASKS = ((1, ("cat", "dog")), (2, ("emu", "fox", "gnu")))
NORMALISE = Normalisation(mean=[0.4, 0.5, 0.6], std=[0.2, 0.25, 0.3])
MLP = {"name": "mlp", "hidden": [24, 16]}
SMALL_CNN = {"name": "small-cnn"}
RESNET20 = {"name": "resnet20", "width": 8}
SLIM = {"name": "slim-resnet18", "width": 8}
VIT = {"name": "vit", "layers": 2, "hidden": 48, "heads": 4, "mlp": 64}
DNE = {"name": "dne", "layers": 2, "head_dim": 8, "heads": 3}
MHSA = {**DNE, "attention": "mhsa"}


@dataclass(frozen=True)
class ExportCase:
    """A kind of version to export: image size, and how to build its network and method."""

    size: int
    build: Callable[[], tuple[Network, Method]]

    def build_prediction_module(self) -> ProbabilityModule:
        """Build the module that is exported, which computes predictions."""
        network, method = self.build()
        return ProbabilityModule(network.eval(), method, NORMALISE, CHANNELS)


def build_random_network(
    architecture: Mapping[str, Any], size: int, scenario: str = "class"
) -> Network:
    """Build an untrained network with random heads, whose logits are about 1."""
    heads = HeadSpec(tasks=TASKS) if scenario == "task" else HeadSpec(classes=CLASSES)
    built = build_network(dict(architecture), ImageSpec(size, CHANNELS), scenario, heads, seed=4)
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, tensor in built.state_dict().items():
            if "running_mean" in name:
                tensor.uniform_(-0.1, 0.1, generator=draw)
        noise = torch.randn(8, CHANNELS, size, size, generator=draw)
        spread = built.eval().features(noise, TASKS[0][0]).norm(dim=1).mean()
        for name, tensor in built.state_dict().items():
            if name.startswith("head"):
                tensor.normal_(generator=draw).div_(spread if name.endswith("weight") else 1)
    return built


def build_method_with_state(
    name: str, state: dict[str, dict[str, Tensor]] | None = None, **hyper: Any
) -> Method:
    """Build a method with the state that its predictions need."""
    kind = registry.get_method(name)
    method = kind(kind.Hyper.model_validate(hyper), MethodState())
    method.state.replace_content(state or {}, {}, torch.device("cpu"))
    return method


def build_head_prediction_export_case(
    architecture: Mapping[str, Any], size: int, scenario: str = "class"
) -> ExportCase:
    """Build an export case that predicts by one or several heads."""
    return ExportCase(
        size,
        lambda: (
            build_random_network(architecture, size, scenario),
            build_method_with_state("finetune"),
        ),
    )


def build_nearest_mean_export_case(architecture: Mapping[str, Any], size: int) -> ExportCase:
    """Build an export case that predicts by the distance to class means."""

    def build_network_and_method() -> tuple[Network, Method]:
        built = build_random_network(architecture, size)
        draw = torch.Generator().manual_seed(1)
        means = torch.randn(len(CLASSES), built.backbone.width, generator=draw)
        return built, build_method_with_state(
            "icarl", {"own": {"class_means": torch.nn.functional.normalize(means)}}
        )

    return ExportCase(size, build_network_and_method)


def build_analytic_export_case(
    architecture: Mapping[str, Any], size: int, head: str, projection: int
) -> ExportCase:
    """Build an export case that predicts by a closed-form classifier, fitted to coloured images."""

    def build_network_and_method() -> tuple[Network, Method]:
        built, draw = build_random_network(architecture, size), torch.Generator().manual_seed(1)
        labels = torch.arange(IMAGES) % len(CLASSES)
        colours = torch.randn(len(CLASSES), CHANNELS, 1, 1, generator=draw)
        images = colours[labels] + torch.randn(IMAGES, CHANNELS, size, size, generator=draw)
        state = {}
        with torch.no_grad():
            h = torch.cat([built.eval().features(chunk) for chunk in images.split(20)])
        if projection:
            state["projection"] = {"matrix": draw_projection_matrix(projection, h.shape[1], seed=1)}
            h = project_to_random_features(h, state["projection"]["matrix"])
        linear, stored_record = _solve_classifier(head, h, labels, ones=not projection)
        state["own"] = {"weight": linear.weight.float(), "bias": linear.bias.float()}
        method = build_method_with_state("analytic", state, head=head, projection=projection)
        method.state["own"].json.update(stored_record)
        return built, method

    return ExportCase(size, build_network_and_method)


def _solve_classifier(
    head: str, h: Tensor, labels: Tensor, *, ones: bool
) -> tuple[LinearWeights, dict[str, Any]]:
    """Solve for a closed-form classifier as the method does; return it with its stored record."""
    columns = append_column_of_ones(h) if ones and head == "ridge" else h
    sums = FeatureSums.make_empty_sums(columns.shape[1], len(CLASSES))
    sums.add_examples(columns, labels)
    if head == "lda":
        return discriminant.solve_linear_discriminant_analysis(sums), {}
    if head == "ncm":
        means = functional.normalize(sums.class_means) / COSINE_TEMPERATURE
        return LinearWeights(means, means.new_zeros(len(means))), {}
    strength, weight = ridge.choose_ridge_strength_and_solve(sums)
    cool = fit_softmax_temperature(
        ridge.compute_leave_one_out_scores(sums, strength, weight, columns.double(), labels), labels
    )
    weight, stored_record = weight.T / cool, {"ridge": {"strength": strength, "temperature": cool}}
    linear = (
        LinearWeights(weight[:, :-1], weight[:, -1])
        if ones
        else LinearWeights(weight, weight.new_zeros(len(weight)))
    )
    return linear, stored_record


def build_prompts_export_case(
    architecture: Mapping[str, Any], size: int, scenario: str = "class", *, deep: bool = True
) -> ExportCase:
    """Build an export case of a transformer with learned prompt tokens."""

    def build_network_and_method() -> tuple[Network, Method]:
        prompt_tasks = () if scenario == "task" else None
        built = PromptedNetwork(
            build_random_network(architecture, size, scenario), 3, deep, prompt_tasks
        )
        for task, name in (
            ((1, "fox"), (2, "gnu")) if scenario == "class" else ((1, "yak"), (2, "owl"))
        ):
            built.add_task_classes(task, [name], "default", torch.Generator().manual_seed(task))
        return built, build_method_with_state("finetune")

    return ExportCase(size, build_network_and_method)


def build_linearised_export_case(
    architecture: Mapping[str, Any], size: int, scenario: str = "class", *, fixed: bool = False
) -> ExportCase:
    """Build an export case of a linearised network with random displacements."""

    def build_network_and_method() -> tuple[Network, Method]:
        draw = torch.Generator().manual_seed(5)
        built = LinearisedNetwork(
            build_random_network(architecture, size, scenario),
            slope=0.1,
            fixed_head=fixed,
            frozen=True,
        )
        heads = (
            {"shared": built.head}
            if built.head is not None
            else {
                name: head for name, head in built.heads.items() if isinstance(head, ClassifierHead)
            }
        )
        for name, head in heads.items() if fixed else ():
            built.set_reference_rows(name, torch.randn(head.weight.shape, generator=draw))
        with torch.no_grad():
            for name, parameter in built.displacement.named_parameters():
                spread = built.backbone.get_parameter(name).std(unbiased=False) + 0.01
                parameter.add_(0.1 * spread * torch.randn(parameter.shape, generator=draw))
        return built, build_method_with_state("finetune")

    return ExportCase(size, build_network_and_method)


def build_experts_export_case(
    family: type[GrowingNetwork], architecture: Mapping[str, Any], size: int
) -> ExportCase:
    """Build an export case of a network of experts that was widened for two tasks."""

    def build_network_and_method() -> tuple[Network, Method]:
        built = family(build_random_network(architecture, size))
        draw = torch.Generator().manual_seed(1)
        for task, width in ((2, 2), (3, 1)):
            built.set_size_of_next_expert(width)
            built.add_task_classes(
                task, [f"new {task}"], "default", torch.Generator().manual_seed(task)
            )
        built.auxiliary = None
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=draw))
        return built, build_method_with_state("finetune")

    return ExportCase(size, build_network_and_method)


QUICK = {
    "mlp": build_head_prediction_export_case(MLP, 8),
    "small-cnn, a head per task": build_head_prediction_export_case(SMALL_CNN, 32, "task"),
    "small-cnn, nearest mean": build_nearest_mean_export_case(SMALL_CNN, 32),
    "small-cnn, analytic lda": build_analytic_export_case(SMALL_CNN, 32, "lda", 50),
}
"""The small diagonal that every run of the tests exports."""
MORE = {
    "vit, shallow prompts": build_prompts_export_case(VIT, 16, deep=False),
    "vit, deep prompts of each task": build_prompts_export_case(VIT, 16, "task"),
    "dne, mhsa": build_head_prediction_export_case(MHSA, 16),
    "der-net, mlp": build_experts_export_case(DerNetwork, MLP, 16),
    "small-cnn, analytic ridge without projection": build_analytic_export_case(
        SMALL_CNN, 32, "ridge", 0
    ),
    "small-cnn, analytic lda without projection": build_analytic_export_case(
        SMALL_CNN, 32, "lda", 0
    ),
    "small-cnn, analytic ncm without projection": build_analytic_export_case(
        SMALL_CNN, 32, "ncm", 0
    ),
    "small-cnn, linearised with fixed heads": build_linearised_export_case(
        SMALL_CNN, 32, "task", fixed=True
    ),
}
"""Variants that the matrix has no cell for."""
