"""torchvision's vision transformers without classifier, under torchvision's names.

The named sizes follow Dosovitskiy et al. 2021; `vit` takes any. The default patch has 4 pixels a
side up to 32-pixel images, 8 up to 64, and the variant's own above. Pixels at the right and bottom
that fill no patch are left out. Stages are four equal runs of blocks. Patches, class token and
positions belong to the first, the final norm to the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from core.learning.networks.backbone import (
    SMALL_IMAGE,
    Backbone,
    ImageSpec,
    Layer,
    split_layers_evenly,
)
from core.learning.torchvision_import import import_torchvision_models

STAGES = 4
Patch = Annotated[int | None, Field(ge=1, le=64)]


class VitVariantHyper(BaseModel):
    """Hyper-parameters of a vision transformer of a named size, such as ViT-B.

    `patch`: pixels a side of a patch; null: chosen by image size.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    patch: Patch = None


def _add_heads_divisibility_to_schema(schema: dict[str, Any]) -> None:
    """Add to a JSON Schema the rule that `hidden` is a multiple of `heads`, which defaults to 3."""
    # JSON Schema cannot compare two fields, so there is a rule for each allowed number of heads.
    rules = [
        {"if": {"required": ["heads"], "properties": {"heads": {"const": n}}},
         "then": {"properties": {"hidden": {"multipleOf": n}}}}
        for n in (1, 2, 3, 4, 6, 8, 12, 16)
    ]  # fmt: skip
    absent = {
        "if": {"not": {"required": ["heads"]}},
        "then": {"properties": {"hidden": {"multipleOf": 3}}},
    }
    schema["allOf"] = [*rules, absent]


class VitHyper(BaseModel):
    """Hyper-parameters of a vision transformer: blocks, heads, token width, MLP width, patch
    size.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=_add_heads_divisibility_to_schema
    )
    layers: int = Field(6, ge=1, le=48)
    heads: Literal[1, 2, 3, 4, 6, 8, 12, 16] = 3
    hidden: int = Field(192, ge=1, le=4096)
    mlp: int = Field(768, ge=1, le=16384)
    patch: Patch = None

    @model_validator(mode="after")
    def _check_divisible(self) -> VitHyper:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self


class VisionTransformer(Backbone):
    """A vision transformer backbone; its features [B, hidden] are the class token after the final
    norm.
    """

    ignored = ("heads.",)

    def __init__(self, hyper: VitHyper, image: ImageSpec, large_patch: int) -> None:
        super().__init__()
        patch = hyper.patch
        if patch is None:
            patch = large_patch if image.size > SMALL_IMAGE else 4 if image.size <= 32 else 8
        if patch > image.size:
            raise ValueError(f"the patch ({patch} pixels) is larger than the image ({image.size})")
        net = import_torchvision_models().VisionTransformer(
            # torchvision requires a multiple of the patch.
            image_size=image.size // patch * patch,
            patch_size=patch,
            num_layers=hyper.layers,
            num_heads=hyper.heads,
            hidden_dim=hyper.hidden,
            mlp_dim=hyper.mlp,
        )
        # torchvision's reads three channels only.
        self.conv_proj = nn.Conv2d(image.channels, hyper.hidden, patch, stride=patch)
        self.class_token = net.class_token
        self.encoder = net.encoder
        self.width = hyper.hidden
        blocks: list[Layer] = [(f"encoder.layers.encoder_layer_{i}",) for i in range(hyper.layers)]
        stages = split_layers_evenly(blocks, STAGES)
        stages[0].insert(0, ("conv_proj", "class_token", "encoder.pos_embedding"))
        stages[-1].append(("encoder.ln",))
        self.declare_stage_layers(stages)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, size, size] to features [B, hidden]."""
        return self.encoder(self.embed_class_token_and_patches(x))[:, 0]  # type: ignore[no-any-return]

    def embed_class_token_and_patches(self, x: Tensor) -> Tensor:
        """Embed images [B, channels, size, size] as class token and patches [B, 1 + patches,
        hidden].

        Positions are not added.
        """
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(patches), -1, -1), patches], dim=1)


def build_vit(hyper: VitHyper, image: ImageSpec) -> Backbone:
    """Build a vision transformer of any size; patch 16 above 64 pixels unless given."""
    return VisionTransformer(hyper, image, 16)


def make_vit_builder(
    layers: int, heads: int, hidden: int, mlp: int, patch: int
) -> Callable[..., Backbone]:
    """Make the function that builds a vision transformer of a named size."""

    def build_vit_variant(hyper: VitVariantHyper, image: ImageSpec) -> Backbone:
        sizes = VitHyper.model_validate(
            {"layers": layers, "heads": heads, "hidden": hidden, "mlp": mlp, "patch": hyper.patch}
        )
        return VisionTransformer(sizes, image, patch)

    return build_vit_variant


def initialise_vit_module(name: str, module: nn.Module, generator: torch.Generator) -> bool:
    """Initialise a vision transformer's module as torchvision does; return false without a rule.

    LeCun normal patches, N(0, 0.02) positions, Xavier attention and MLP.
    """
    if isinstance(module, VisionTransformer):
        module.class_token.zero_()
    elif isinstance(module, nn.Conv2d):
        std = math.sqrt(1 / module.weight[0].numel())
        nn.init.trunc_normal_(module.weight, std=std, generator=generator)
        _fill_tensor_with_zeros(module.bias)
    elif isinstance(module, nn.MultiheadAttention):
        nn.init.xavier_uniform_(module.in_proj_weight, generator=generator)
        _fill_tensor_with_zeros(module.in_proj_bias)
    elif name.endswith("self_attention.out_proj") and isinstance(module, nn.Linear):
        bound = 1 / math.sqrt(module.in_features)
        module.weight.uniform_(-bound, bound, generator=generator)
        _fill_tensor_with_zeros(module.bias)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight, generator=generator)
        # As torchvision does: the MLP's biases are not exactly 0.
        module.bias.normal_(std=1e-6, generator=generator)
    elif isinstance(positions := getattr(module, "pos_embedding", None), Tensor):
        positions.normal_(std=0.02, generator=generator)
    else:
        return False
    return True


def _fill_tensor_with_zeros(tensor: Tensor | None) -> None:
    if tensor is not None:
        tensor.zero_()
