"""Size of a network from its architecture alone: parameters, and values held by a pass.

These are closed forms of the families in `core.learning.networks`, for a process that never loads
torch. Parameters are exact. Activations are those that a backward pass needs, slightly rounded up.
`tests/core/admission/test_network_size.py` compares both with real networks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.bases.base_advice import SMALL_IMAGE
from core.contract.pretrained import PretrainedWeightsRow
from core.contract.responses.architecture import ArchitectureChoice, ImageOut

Hyper = Mapping[str, Any]
"""Hyper-parameters by name, already checked by the schema of their architecture."""
_RESNETS = {
    "resnet18": (1, (2, 2, 2, 2)),
    "resnet34": (1, (3, 4, 6, 3)),
    "resnet50": (4, (3, 4, 6, 3)),
    "resnet101": (4, (3, 4, 23, 3)),
    "resnet152": (4, (3, 8, 36, 3)),
}
"""Expansion (4 for bottlenecks) and number of blocks of each stage."""
_SMALL_RESNETS = {"resnet20": (3, 3, 3), "slim-resnet18": (2, 2, 2, 2)}
_CONVNEXTS = {
    "convnext_tiny": (96, (3, 3, 9, 3)),
    "convnext_small": (96, (3, 3, 27, 3)),
    "convnext_base": (128, (3, 3, 27, 3)),
    "convnext_large": (192, (3, 3, 27, 3)),
}
"""Channels of the first stage, and number of blocks of each stage."""


class _TransformerEncoderDimensions(NamedTuple):
    """Encoder of a vision transformer: number of blocks, token width, and width of the MLP."""

    layers: int
    width: int
    mlp: int


_VITS = {
    "vit_b_16": (_TransformerEncoderDimensions(12, 768, 3072), 16),
    "vit_b_32": (_TransformerEncoderDimensions(12, 768, 3072), 32),
    "vit_l_16": (_TransformerEncoderDimensions(24, 1024, 4096), 16),
}
"""Encoder, and patch size of large images."""


@dataclass
class NetworkSize:
    """Size of a network in numbers of float32 values: parameters and activations.

    Attributes:
        parameters: trainable values.
        activations: values of one image that are kept for the backward pass.
        widest: values of one image in the largest layer.
        features: values of one image that a head reads.
        shared: True if layers act at several places of an image, so that the gradient of one image
            is as large as the weights.
    """

    parameters: int = 0
    activations: int = 0
    widest: int = 0
    features: int = 0
    shared: bool = True

    def add_layer_output(self, values: int, times: int = 1) -> None:
        """Add a layer's output of `values` activations, `times` over, to the network's size."""
        self.activations += values * times
        self.widest = max(self.widest, values)


def find_network_size(
    chosen: ArchitectureChoice,
    image: ImageOut,
    pretrained: Mapping[str, PretrainedWeightsRow] | None = None,
) -> NetworkSize | None:
    """Return the size of the network that a complete architecture describes, or None if unknown.

    Args:
        chosen: architecture with its hyper-parameters.
        image: image settings; side in pixels and number of channels.
        pretrained: timm's weights by name, where those may be requested.
    """
    name, pixels, channels = chosen["name"], int(image["size"]), int(image["channels"])
    architecture: Hyper = chosen
    size = NetworkSize()
    # A pass also holds the images themselves.
    size.add_layer_output(channels * pixels**2)
    if name == "mlp":
        _add_mlp_to_size_estimate(size, architecture["hidden"])
    elif name == "small-cnn":
        _add_small_cnn_to_size_estimate(size, pixels, channels)
    elif name in _SMALL_RESNETS:
        _add_small_resnet_to_size_estimate(
            size, architecture["width"], _SMALL_RESNETS[name], pixels, channels
        )
    elif name in _RESNETS:
        _add_resnet_to_size_estimate(
            size,
            *_RESNETS[name],
            _has_stem_for_small_images(architecture, pixels),
            pixels,
            channels,
        )
    elif name in _CONVNEXTS:
        _add_convnext_to_size_estimate(
            size,
            *_CONVNEXTS[name],
            2 if _has_stem_for_small_images(architecture, pixels) else 4,
            pixels,
            channels,
        )
    elif name in _VITS:
        encoder, large = _VITS[name]
        patch = _choose_vit_patch_size(architecture, pixels, large)
        _add_vit_to_size_estimate(size, encoder, patch, pixels, channels)
    elif name == "vit":
        encoder = _TransformerEncoderDimensions(
            architecture["layers"], architecture["hidden"], architecture["mlp"]
        )
        _add_vit_to_size_estimate(
            size, encoder, _choose_vit_patch_size(architecture, pixels, 16), pixels, channels
        )
    elif name == "dne":
        _add_first_dne_expert_to_size_estimate(
            size, architecture, _choose_vit_patch_size(architecture, pixels, 16), pixels, channels
        )
    elif name == "timm" and pretrained is not None:
        _add_timm_network_to_size_estimate(size, pretrained[architecture["model"]], pixels)
    else:
        return None
    return size


def _add_timm_network_to_size_estimate(
    size: NetworkSize, row: PretrainedWeightsRow, pixels: int
) -> None:
    """Add the size of a timm network to `size`, as measured at its weights' own image size.

    Activations scale with the number of pixels.
    """
    size.parameters = row["parameters"]
    share = (pixels / row["size"]) ** 2
    size.activations += math.ceil(row["activations"] * share)
    size.widest = max(size.widest, math.ceil(row["widest"] * share))


def _add_mlp_to_size_estimate(size: NetworkSize, hidden: list[int]) -> None:
    """Add the size of a multilayer perceptron to `size`."""
    inputs, size.shared = size.widest, False
    for outputs in hidden:
        size.parameters += inputs * outputs + outputs
        size.add_layer_output(outputs, 2)
        inputs = outputs
    size.features = inputs


def _add_small_cnn_to_size_estimate(size: NetworkSize, pixels: int, channels: int) -> None:
    """Add the size of the service's small convolutional network to `size`."""
    area = pixels**2
    for inputs, outputs, divisor in ((channels, 32, 1), (32, 64, 4), (64, 128, 16)):
        size.parameters += 9 * inputs * outputs + outputs
        size.add_layer_output(
            outputs * area // divisor, 2
        )  # the pooled output and its int64 indices take three quarters of it
    size.parameters += 1152 * 128 + 128
    size.add_layer_output(1152)
    size.features = 128


def _add_small_resnet_to_size_estimate(
    size: NetworkSize, width: int, blocks: tuple[int, ...], pixels: int, channels: int
) -> None:
    """Add the size of a residual network for small images to `size`."""
    size.parameters += 9 * channels * width + 2 * width
    size.add_layer_output(width * pixels**2, 2)
    inputs = width
    for stage, count in enumerate(blocks):
        outputs, area = width * 2**stage, _halve_feature_map_side_repeatedly(pixels, stage) ** 2
        for block in range(count):
            source = inputs if block == 0 else outputs
            size.parameters += 9 * (source + outputs) * outputs + 4 * outputs
            size.add_layer_output(outputs * area, 4)
            if block == 0 and stage > 0:
                size.parameters += source * outputs + 2 * outputs
                size.add_layer_output(outputs * area)
        inputs = outputs
    size.features = inputs


def _add_resnet_to_size_estimate(
    size: NetworkSize,
    expansion: int,
    blocks: tuple[int, ...],
    small: bool,
    pixels: int,
    channels: int,
) -> None:
    """Add the size of a ResNet of torchvision's family to `size`."""
    size.parameters += (9 if small else 49) * channels * 64 + 2 * 64
    side = pixels if small else _halve_feature_map_side_repeatedly(pixels, 1)
    size.add_layer_output(64 * side**2, 2)
    if not small:
        side = _halve_feature_map_side_repeatedly(side, 1)
        size.add_layer_output(
            64 * side**2, 3
        )  # the pooled values, and their source indices as int64
    inputs = 64
    for stage, count in enumerate(blocks):
        width, area, before = (
            64 * 2**stage,
            _halve_feature_map_side_repeatedly(side, stage) ** 2,
            _halve_feature_map_side_repeatedly(side, max(0, stage - 1)) ** 2,
        )
        outputs = width * expansion
        for block in range(count):
            first = block == 0
            if expansion == 1:
                size.parameters += 9 * (inputs + width) * width + 4 * width
                size.add_layer_output(width * area, 4)
            else:
                size.parameters += (
                    inputs * width + 9 * width**2 + width * outputs + 4 * width + 2 * outputs
                )
                # The first block halves the image in its second convolution, so the first one reads
                # all of it.
                size.add_layer_output(width * (before if first else area), 2)
                size.add_layer_output(width * area, 2)
                size.add_layer_output(outputs * area, 2)
            if first and (stage > 0 or expansion > 1):
                size.parameters += inputs * outputs + 2 * outputs
                size.add_layer_output(outputs * area)
            inputs = outputs
    size.features = inputs


def _add_convnext_to_size_estimate(
    size: NetworkSize, width: int, blocks: tuple[int, ...], stride: int, pixels: int, channels: int
) -> None:
    """Add the size of a ConvNeXt network to `size`."""
    size.parameters += channels * stride**2 * width + 3 * width
    side = pixels // stride
    size.add_layer_output(width * side**2, 2)
    for stage, count in enumerate(blocks):
        if stage > 0:
            # Between stages: a layer norm, and a 2 x 2 convolution that doubles the width.
            size.parameters += 2 * width + 8 * width**2 + 2 * width
            size.add_layer_output(width * side**2, 2)
            width, side = 2 * width, side // 2
        # A block: 7 x 7 depthwise convolution, layer norm, two linear layers, layer scale.
        size.parameters += count * (
            49 * width + width + 2 * width + 8 * width**2 + 5 * width + width
        )
        size.add_layer_output(width * side**2, 6 * count)
        size.add_layer_output(4 * width * side**2, 2 * count)
    size.parameters += 2 * width
    size.features = width


def _add_vit_to_size_estimate(
    size: NetworkSize,
    encoder: _TransformerEncoderDimensions,
    patch: int,
    pixels: int,
    channels: int,
) -> None:
    """Add the size of a vision transformer to `size`."""
    layers, width, mlp = encoder
    # One token is for the class.
    tokens = 1 + (pixels // patch) ** 2
    size.parameters += channels * patch**2 * width + width + width + tokens * width + 2 * width
    size.parameters += layers * (
        4 * width**2 + 4 * width + 4 * width + 2 * width * mlp + mlp + width
    )
    size.add_layer_output(tokens * width, 2 + 12 * layers)
    size.add_layer_output(tokens * mlp, 2 * layers)
    size.features = width


def _add_first_dne_expert_to_size_estimate(
    size: NetworkSize, architecture: Hyper, patch: int, pixels: int, channels: int
) -> None:
    """Add the size of the first expert network of the method DNE.

    Its attention is written out, so the attention weights are kept too.
    """
    heads, layers, tokens = architecture["heads"], architecture["layers"], (pixels // patch) ** 2
    width = heads * architecture["head_dim"]
    mlp = width * architecture["expansion"]
    gated = 4 * heads * (layers - 1) if architecture["attention"] == "gpsa" else 0
    size.parameters += (
        channels * patch**2 * width + width + tokens * width + width + 2 * width + gated
    )
    # A layer: query, key, value and projection, of which the last has a bias; two layer norms;
    # the MLP.
    size.parameters += layers * (4 * width**2 + width + 4 * width + 2 * width * mlp + mlp + width)
    size.add_layer_output(tokens * width, 12 * layers)
    size.add_layer_output(tokens * mlp, 2 * layers)
    size.add_layer_output(heads * tokens**2, 2 * layers)
    size.features = width


def _has_stem_for_small_images(architecture: Hyper, pixels: int) -> bool:
    """Return True if a network's first layers (stem) are those for small images."""
    stem = architecture.get("stem", "auto")
    return stem == "small" or (stem == "auto" and pixels <= SMALL_IMAGE)


def _choose_vit_patch_size(architecture: Hyper, pixels: int, large: int) -> int:
    """Return the patch size in pixels of a vision transformer."""
    chosen = large if pixels > SMALL_IMAGE else 4 if pixels <= SMALL_IMAGE // 2 else 8
    # A patch cannot be larger than its image.
    return min(pixels, architecture.get("patch") or chosen)


def _halve_feature_map_side_repeatedly(side: int, times: int) -> int:
    """Return the side of a feature map after halving it `times` times, rounding up."""
    for _ in range(times):
        side = (side + 1) // 2
    return side
