"""The architectures that people choose, each with every way to answer: a version to export, or why
there is none.

An architecture stands for those of its family that differ from it in size alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.service.exported_networks import (
    DNE,
    MLP,
    RESNET20,
    SLIM,
    SMALL_CNN,
    VIT,
    ExportCase,
    build_analytic_export_case,
    build_experts_export_case,
    build_head_prediction_export_case,
    build_linearised_export_case,
    build_nearest_mean_export_case,
    build_prompts_export_case,
)
from core.learning.methods import registry
from core.learning.networks import get_architectures
from core.learning.networks.backbones.timm_names import RECOMMENDED
from core.learning.networks.der_net import DerNetwork
from core.learning.networks.dne.network import DneNetwork

PROJECTION = 1000
"""Of the analytic method's random features, its default."""
TIMM_SIZES = {name: 64 for name in RECOMMENDED} | {
    "vit_small_patch14_dinov2.lvd142m": 70,
    "vit_base_patch14_dinov2.lvd142m": 70,
}
"""Small images, so that a cell takes seconds: convolutions are the same in any size, and positions
are resampled.
"""

ARCHITECTURES: dict[str, tuple[Mapping[str, Any], int]] = {
    "mlp": (MLP, 8),
    "small-cnn": (SMALL_CNN, 32),
    "resnet20": (RESNET20, 32),
    "slim-resnet18": (SLIM, 32),
    "vit": (VIT, 30),
    "dne": (DNE, 16),
    "resnet18": ({"name": "resnet18"}, 32),
    "resnet50": ({"name": "resnet50"}, 32),
    "convnext_tiny": ({"name": "convnext_tiny"}, 32),
    "vit_b_32": ({"name": "vit_b_32"}, 64),
    **{
        f"timm/{name}": ({"name": "timm", "model": name}, size) for name, size in TIMM_SIZES.items()
    },
}
"""Name → architecture and image size."""


@dataclass(frozen=True)
class PredictionWay:
    """A way in which versions predict: the methods that use it, and how to build a version."""

    method: str
    build: Callable[[Mapping[str, Any], int], ExportCase]


WAYS = {
    "plain": PredictionWay("finetune", build_head_prediction_export_case),
    "a head per task": PredictionWay(
        "finetune",
        lambda architecture, size: build_head_prediction_export_case(architecture, size, "task"),
    ),
    "nearest mean": PredictionWay("icarl", build_nearest_mean_export_case),
    "analytic ncm": PredictionWay(
        "analytic", lambda a, size: build_analytic_export_case(a, size, "ncm", PROJECTION)
    ),
    "analytic ridge": PredictionWay(
        "analytic", lambda a, size: build_analytic_export_case(a, size, "ridge", PROJECTION)
    ),
    "analytic lda": PredictionWay(
        "analytic", lambda a, size: build_analytic_export_case(a, size, "lda", PROJECTION)
    ),
    "linearised": PredictionWay("dlcft", build_linearised_export_case),
    "prompts": PredictionWay("vpt", build_prompts_export_case),
    "der-net": PredictionWay(
        "der-net",
        lambda architecture, size: build_experts_export_case(DerNetwork, architecture, size),
    ),
    "dne": PredictionWay(
        "dne", lambda architecture, size: build_experts_export_case(DneNetwork, architecture, size)
    ),
}
"""Name → way."""


def explain_unexportable_architecture(architecture: str, way: str) -> str | None:
    """Explain why no version of an architecture predicts in a given way; None if one does.

    A recipe with such a method is refused before anything is learned, so that there is nothing to
    export.
    """
    name = WAYS[way].method
    accepts = registry.get_method(name).accepts
    family = get_architectures()[architecture.partition("/")[0]].family
    if accepts.architectures is not None and family not in accepts.architectures:
        return f"{name} works on {', '.join(accepts.architectures)} alone"
    if family in accepts.unfit and not accepts.unfit[family]:
        return f"{name} does not work on {family}"
    return None


def list_exportable_cases() -> dict[str, ExportCase]:
    """Return every kind of version that can be exported, by name."""
    return {
        f"{architecture}, {way}": WAYS[way].build(*ARCHITECTURES[architecture])
        for way in WAYS
        for architecture in ARCHITECTURES
        if explain_unexportable_architecture(architecture, way) is None
    }
