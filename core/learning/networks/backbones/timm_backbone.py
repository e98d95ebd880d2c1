"""timm's networks without their classifier, under timm's names.

The network is that of the named weights. Images of another size than the weights' own leave every
stored tensor's shape as it is: positions are resampled in each pass, or the network has none.
Stages are the stem, and three equal runs of the layers after it in the order of timm's
`group_matcher`. So depth 2 trains the last third of the layers, depth 3 two thirds, depth 4 all but
the stem.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from core.contract.pretrained import PretrainedWeights
from core.learning.networks.backbone import Backbone, ImageSpec, Layer, split_layers_evenly
from core.learning.networks.backbones.timm_names import DEFAULT, get_timm_weights_properties
from core.learning.timm_import import import_timm_models

THIRDS = 3


class TimmHyper(BaseModel):
    """Hyper-parameters of the architecture `timm`: the name of a timm network.

    `model`: architecture and weights by timm's name; `recommended` lists a dozen of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str = Field(DEFAULT, min_length=1, max_length=100)


class TimmBackbone(Backbone):
    """A backbone that wraps a timm network, with features [B, width] as its classifier reads
    them.
    """

    def __init__(self, known: PretrainedWeights, image: ImageSpec) -> None:
        """Build the network. Raises ValueError for images that it does not take."""
        super().__init__()
        self._known, self._image = known, image
        net = _create_timm_network(known, image)
        # The tensors keep timm's names: this module and timm's share one registry of parameters,
        # buffers and children.
        self._parameters, self._buffers, self._modules = net._parameters, net._buffers, net._modules
        self._non_persistent_buffers_set = net._non_persistent_buffers_set
        # Not as a child, which would list every tensor twice.
        self.__dict__["_net"] = net
        self.width = get_timm_feature_width(net)
        self.ignored = (*_list_classifier_prefixes(net), *_list_computed_buffers(net))
        for module in self.modules():
            if getattr(module, "inplace", False) is True:
                module.inplace = False  # type: ignore[assignment]  # hooks and per-sample gradients read what stood there
        layers = _find_layers_in_order(net)
        self.declare_stage_layers(
            [layers[:1], *split_layers_evenly(layers[1:], THIRDS)] if layers[1:] else [layers]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, size, size] to features [B, width]."""
        net: nn.Module = self.__dict__["_net"]
        # timm's module is no child of this one, so `train` and `eval` do not reach it.
        net.training = self.training
        return net(x)  # type: ignore[no-any-return]

    def to_empty(self, *, device: Any, recurse: bool = True) -> TimmBackbone:
        """Move the backbone to a device uninitialised, and recompute buffers that are never
        stored.
        """
        super().to_empty(device=device, recurse=recurse)
        import_timm_models()._manipulate.reinit_non_persistent_buffers(self.__dict__["_net"])
        return self

    def draw_initial_weights(self, generator: torch.Generator) -> None:
        """Draw initial weights by timm's own rules.

        They come from the global generator, which is seeded for this and then restored.
        """
        with torch.random.fork_rng(devices=[]):
            # timm draws from the global generator and takes none, so its seed comes from the run's
            # own.
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            drawn = _create_timm_network(self._known, self._image).state_dict()
        with torch.no_grad():
            for name, tensor in self.state_dict().items():
                tensor.copy_(drawn[name])


def build_timm_backbone(hyper: TimmHyper, image: ImageSpec) -> Backbone:
    """Build the backbone around the timm network of this name.

    Raises ValueError for an unknown name, or images that it does not take.
    """
    return TimmBackbone(get_timm_weights_properties(hyper.model), image)


def get_timm_feature_width(net: nn.Module) -> int:
    """Return the width of a timm network's feature vector, the input of its classifier."""
    width: Any = getattr(net, "head_hidden_size", None) or net.num_features
    return int(width)


def _create_timm_network(weights: PretrainedWeights, image: ImageSpec) -> nn.Module:
    """Create timm's network for an image size.

    Raises ValueError for images that it does not take.
    """
    # timm could adapt the first layer, but then the weights would be none of the named ones.
    if image.channels != weights.channels:
        raise ValueError(
            f"timm/{weights.name} reads {weights.channels} channels, not {image.channels}"
        )
    if not weights.accepts_image_size(image.size):
        raise ValueError(
            f"timm/{weights.name} takes images of {weights.describe_image_sizes()}, not {image.size}"
        )
    create: Callable[..., nn.Module] = import_timm_models().create_model
    return create(
        weights.name, pretrained=False, num_classes=0, **weights.build_timm_arguments(image.size)
    )


def _list_classifier_prefixes(net: nn.Module) -> list[str]:
    """Return the name prefixes of the classifier's tensors in a timm checkpoint."""
    named: str | Sequence[str] | None = net.pretrained_cfg.get("classifier")  # type: ignore[union-attr,operator]
    names = [named] if isinstance(named, str) else named or ()
    return [f"{name}." for name in names]


def _list_computed_buffers(net: nn.Module) -> list[str]:
    """List the names of a timm network's computed buffers, which are not stored.

    Checkpoints of older versions of timm have some of them.
    """
    return [
        f"{at}.{name}" if at else name
        for at, module in net.named_modules()
        for name in sorted(module._non_persistent_buffers_set)
    ]


def _find_layers_in_order(net: nn.Module) -> list[Layer]:
    """Find a timm network's layers in forward order, each as the shortest prefixes of its tensor
    names.
    """
    groups = _group_tensors_by_layer(net)
    layer_of = {name: number for number, group in groups.items() for name in group}
    inside: dict[str, set[int]] = defaultdict(set)
    for name, number in layer_of.items():
        for prefix in _list_dotted_name_prefixes(name):
            inside[prefix].add(number)
    layers: dict[int, dict[str, None]] = {number: {} for number in sorted(groups)}
    for name, number in layer_of.items():
        shortest = next(
            prefix for prefix in _list_dotted_name_prefixes(name) if len(inside[prefix]) == 1
        )
        layers[number][shortest] = None
    return [tuple(layer) for layer in layers.values()]


def _group_tensors_by_layer(net: nn.Module) -> Mapping[int, list[str]]:
    """Group the tensor names of a timm network by layer, counted from the input on.

    A network that does not declare its layers has one for each module of its sequences, in the
    order of declaration.
    """
    names = list(net.state_dict())
    if hasattr(net, "group_matcher"):
        named = ((name, name) for name in names)
        matcher = net.group_matcher(coarse=False)  # type: ignore[operator]
        manipulate = import_timm_models()._manipulate
        return manipulate.group_with_matcher(named, matcher)  # type: ignore[no-any-return]
    layers: dict[str, list[str]] = defaultdict(list)
    for name in names:
        words = name.split(".")
        layers[
            ".".join(words[: 1 + next((i for i, word in enumerate(words) if word.isdigit()), 0)])
        ].append(name)
    return dict(enumerate(layers.values()))


def _list_dotted_name_prefixes(name: str) -> list[str]:
    """List the dotted prefixes of a name: `a.b.c` gives `a`, `a.b`, `a.b.c`."""
    words = name.split(".")
    return [".".join(words[:end]) for end in range(1, len(words) + 1)]
