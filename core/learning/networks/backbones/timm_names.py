"""The pretrained weights that timm offers, by name, without importing timm.

Their properties are in `timm_weights.json` beside this file, which `python -m tools.timm_weights`
writes from timm itself. It is read on first use.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from core.contract.pretrained import (
    PretrainedWeights,
    PretrainedWeightsTable,
    build_pretrained_weights_from_row,
)

DEFAULT = "mobilenetv3_small_100.lamb_in1k"
"""The smallest of the recommended weights."""
RECOMMENDED = {
    "mobilenetv3_small_100.lamb_in1k": "the fastest on a CPU; small downloads",
    "efficientnet_b0.ra_in1k": "better than mobilenetv3 at a few times its cost",
    "resnet18.a1_in1k": "the plainest convolutional network; fast to fine-tune",
    "resnet50.a1_in1k": "convolutional, wider features than resnet18",
    "convnext_tiny.in12k_ft_in1k": "the best convolutional features of moderate size",
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k": "the smallest transformer",
    "vit_small_patch16_224.augreg_in21k_ft_in1k": "a transformer for a CPU with patience",
    "vit_small_patch14_dinov2.lvd142m": "frozen features for pictures unlike ImageNet's; learned "
    "without labels",
    "vit_base_patch14_dinov2.lvd142m": "the same with a GPU",
    "vit_base_patch16_clip_224.openai": "frozen features for photos of things that have names",
    "vit_base_patch16_224.augreg_in21k_ft_in1k": "the base of most published results of class "
    "increments",
    "swin_tiny_patch4_window7_224.ms_in1k": "a transformer of windows, for fine detail",
}
"""A dozen weights to begin with: name → recommended use."""
_FILE = Path(__file__).with_name("timm_weights.json")


# Read on first use: most jobs use no network of timm.
@cache
def load_timm_weights_table() -> PretrainedWeightsTable:
    """Load the table of all known pretrained timm weights, `timm_weights.json`."""
    value: PretrainedWeightsTable = json.loads(_FILE.read_bytes())
    return value


def get_timm_weights_properties(name: str) -> PretrainedWeights:
    """Find the measured properties of pretrained weights by timm's name.

    Raises:
        ValueError: timm has no weights of this name, or none that can be built; it names the
            closest ones.
    """
    properties = load_timm_weights_table()["weights"].get(name)
    if properties is not None:
        return build_pretrained_weights_from_row(name, properties)
    why = load_timm_weights_table()["refused"].get(name)
    if why is not None:
        raise ValueError(f"timm/{name} cannot be used: {why}")
    # There are more than a thousand names, too many to list.
    near = get_close_matches(name, list_timm_weights_names(), 3)
    suggestion = f"; did you mean {', '.join(near)}?" if near else ""
    raise ValueError(f"timm knows no pretrained weights {name!r}{suggestion}")


def list_timm_weights_names() -> list[str]:
    """List the names of all pretrained weights whose network can be built, sorted."""
    return sorted(load_timm_weights_table()["weights"])
