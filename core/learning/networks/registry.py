"""The list of architectures: a new one is a file with a backbone, and its line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from core.learning.networks.backbone import Backbone, ImageSpec
from core.learning.networks.backbones import (
    mlp,
    resnet,
    small_cnn,
    timm_backbone,
    torchvision_convnext,
    torchvision_resnet,
    torchvision_vit,
)
from core.learning.networks.dne.backbone import DneArchitectureHyper, DneFirstExpertBackbone
from core.learning.networks.dne.expert import initialise_expert_module
from core.learning.networks.init import (
    Rule,
    initialise_by_he_rule,
    initialise_by_lecun_rule,
    initialise_by_torch_rule,
)


@dataclass(frozen=True)
class RegisteredArchitecture:
    """An entry of the registry of architectures.

    `hyper`: its frozen pydantic model. `build(hyper, image)` makes the backbone, on the meta
    device; `rule` fills it; None: the backbone draws its first weights itself. `min_size`: of the
    smallest image, in pixels a side. `family` groups variants: the loading code of a download is
    the file of that name in core/export/loading/backbones.
    """

    name: str
    family: str
    hyper: type[BaseModel]
    description: str
    source: str
    build: Callable[[Any, ImageSpec], Backbone]
    rule: Rule | None
    min_size: int
    scenarios: tuple[str, ...] = ("data", "task", "class")


_ALL = [
    RegisteredArchitecture(
        "mlp",
        "mlp",
        mlp.MlpHyper,
        "Multilayer perceptron on flattened images.",
        "LeCun et al. 1998; 784-400-400 as in the split-MNIST protocols",
        mlp.MlpBackbone,
        initialise_by_torch_rule,
        1,
    ),
    RegisteredArchitecture(
        "small-cnn",
        "small-cnn",
        small_cnn.SmallCnnHyper,
        "Three convolutions 32/64/128, pooled to 3x3, one hidden layer of 128. Fast on a CPU.",
        "this project",
        small_cnn.SmallCnn,
        initialise_by_lecun_rule,
        4,
    ),
    RegisteredArchitecture(
        "resnet20",
        "small-resnet",
        resnet.ResNet20Hyper,
        "ResNet-20 for small images, widths 16/32/64.",
        "He et al. 2015, arXiv 1512.03385, section 4.2",
        resnet.build_resnet20,
        initialise_by_he_rule,
        4,
    ),
    RegisteredArchitecture(
        "slim-resnet18",
        "small-resnet",
        resnet.SlimResNet18Hyper,
        "ResNet-18 with narrow stages (20/40/80/160) for small images.",
        "Lopez-Paz & Ranzato 2017, arXiv 1706.08840",
        resnet.build_slim_resnet18,
        initialise_by_he_rule,
        4,
    ),
    *[
        RegisteredArchitecture(
            f"resnet{layers}",
            "resnet",
            torchvision_resnet.ResNetHyper,
            f"ResNet-{layers} of torchvision; a 3x3 stem for images up to 64 pixels.",
            "He et al. 2015, arXiv 1512.03385; torchvision",
            torchvision_resnet.make_resnet_builder(f"resnet{layers}"),
            initialise_by_he_rule,
            4,
        )
        for layers in (18, 34, 50, 101, 152)
    ],
    *[
        RegisteredArchitecture(
            name,
            "vit",
            torchvision_vit.VitVariantHyper,
            f"Vision transformer of torchvision, {text}; smaller patches for images up to 64 "
            f"pixels.",
            "Dosovitskiy et al. 2021, arXiv 2010.11929; torchvision",
            torchvision_vit.make_vit_builder(*sizes),
            torchvision_vit.initialise_vit_module,
            4,
        )
        for name, text, sizes in (
            ("vit_b_16", "base, patch 16", (12, 12, 768, 3072, 16)),
            ("vit_b_32", "base, patch 32", (12, 12, 768, 3072, 32)),
            ("vit_l_16", "large, patch 16", (24, 16, 1024, 4096, 16)),
        )
    ],
    RegisteredArchitecture(
        "vit",
        "vit",
        torchvision_vit.VitHyper,
        "Vision transformer of a chosen size; the default is a small one (6 blocks of width 192).",
        "Dosovitskiy et al. 2021, arXiv 2010.11929; torchvision",
        torchvision_vit.build_vit,
        torchvision_vit.initialise_vit_module,
        4,
    ),
    RegisteredArchitecture(
        "dne",
        "dne",
        DneArchitectureHyper,
        "Vision transformer with gated attention to positions, made to be widened by small "
        "experts, task by task.",
        "Hu et al. 2023, Dense Network Expansion for Class Incremental Learning, CVPR",
        DneFirstExpertBackbone,
        initialise_expert_module,
        4,
    ),
    *[
        RegisteredArchitecture(
            f"convnext_{size}",
            "convnext",
            torchvision_convnext.ConvNextHyper,
            f"ConvNeXt-{size.title()} of torchvision; a 2x2 stem for images up to 64 pixels.",
            "Liu et al. 2022, arXiv 2201.03545; torchvision",
            torchvision_convnext.make_convnext_builder(f"convnext_{size}"),
            torchvision_convnext.initialise_convnext_module,
            16,
        )
        for size in ("tiny", "small", "base", "large")
    ],
    RegisteredArchitecture(
        "timm",
        "timm",
        timm_backbone.TimmHyper,
        "Any network of timm that there are pretrained weights for, by the weights' name; in short "
        "`timm/NAME`.",
        "Wightman 2019, PyTorch Image Models; each network's own paper",
        timm_backbone.build_timm_backbone,
        None,
        1,
    ),
]
ARCHITECTURES = {info.name: info for info in _ALL}
