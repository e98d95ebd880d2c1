"""Code that loads a download without Perennial: the network of each architecture, and how a version answers.

It needs torch and safetensors (torchvision for its families) and reads all sizes from the tensors themselves.
Which code it is depends on the manifest alone.
"""

from collections.abc import Mapping
from typing import Any

from core.requests.loading_backbones import BACKBONES

_START = """import json

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

with open("config.json", encoding="utf-8") as file:
    config = json.load(file)

"""

_NETWORK = '''

class Network(nn.Module):
    """float [B, channels, size, size], normalised, to logits; to features where nothing was learned yet."""

    def __init__(self, tensors):
        super().__init__()
        self.backbone = Backbone(tensors)
        width = self.backbone.width
        if "head.weight" in tensors:
            self.head = nn.Linear(width, tensors["head.weight"].shape[0])
        self.heads = nn.ModuleDict(
            {
                str(head["task"]): nn.Linear(width, len(head["classes"]))
                for head in config["heads"]
                if f"heads.{head['task']}.weight" in tensors
            }
        )

    def forward(self, x, task=None):
        x = self.backbone(x)
        if len(self.heads):  # one head per task: say which
            return self.heads[str(task)](x)
        return self.head(x) if hasattr(self, "head") else x
'''

_PROMPTED = '''

class PromptedNetwork(Network):
    """With learned tokens beside the patches (visual prompt tuning): one set for all tasks, or one each."""

    def __init__(self, tensors):
        super().__init__(tensors)
        sets = {name.removeprefix("prompts."): t for name, t in tensors.items() if name.startswith("prompts.")}
        self.prompts = nn.ParameterDict({name: torch.empty_like(t) for name, t in sets.items()})

    def forward(self, x, task=None):
        by_task = config["network"]["tasks"] is not None
        prompts, encoder = self.prompts[str(task) if by_task else "shared"], self.backbone.encoder
        patches = self.backbone.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.backbone.class_token.expand(len(x), -1, -1), patches], dim=1) + encoder.pos_embedding
        for i, block in enumerate(encoder.layers):
            if i < len(prompts):  # in place of those before; none are before the first block
                patches = x[:, 1 if i == 0 else 1 + prompts.shape[1] :]
                x = torch.cat([x[:, :1], prompts[i].expand(len(x), -1, -1), patches], dim=1)
            x = block(x)
        x = encoder.ln(x)[:, 0]
        return (self.heads[str(task)] if len(self.heads) else self.head)(x)
'''

_NEAREST_MEAN = '''

class NearestMeanNetwork(Network):
    """Answers with the class whose mean is nearest (iCaRL): minus the squared distance to each, between unit vectors."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.register_buffer("class_means", torch.empty_like(tensors["class_means"]))

    def forward(self, x, task=None):
        x, means = F.normalize(self.backbone(x)), self.class_means
        if len(self.heads):  # the means of all tasks' classes, one task after the other
            sizes = {head["task"]: len(head["classes"]) for head in config["heads"]}
            means = dict(zip(sizes, means.split(list(sizes.values()))))[task]
        return 2 * x @ means.T - means.square().sum(1) - x.square().sum(1, keepdim=True)
'''

_LINEARISED = '''

from torch.nn.attention import SDPBackend, sdpa_kernel

torch.backends.mha.set_fastpath_enabled(False)  # it has no derivative


def edited(module):
    """With leaky activations and, where its weights are frozen, each batch norm within the convolution before it."""
    before, slope = None, config["network"]["slope"]
    for name, child in list(module.named_children()):
        if isinstance(child, nn.ReLU):
            setattr(module, name, nn.LeakyReLU(slope))
        elif isinstance(child, nn.BatchNorm2d) and config["network"]["frozen"]:
            before.bias = nn.Parameter(torch.zeros(before.out_channels))
            setattr(module, name, nn.Identity())
        edited(child)
        before = child
    return module


class LinearisedNetwork(Network):
    """The backbone's first-order expansion around frozen weights, in the displacement that was learned (DLCFT)."""

    def __init__(self, tensors):
        super().__init__(tensors)
        edited(self.backbone)
        self.displacement = edited(Backbone(tensors)) if config["network"]["frozen"] else None
        rows = {name.removeprefix("reference."): t for name, t in tensors.items() if name.startswith("reference.")}
        self.reference = nn.ParameterDict({name: torch.empty_like(t) for name, t in rows.items()})

    def forward(self, x, task=None):
        if self.displacement is None:
            return super().forward(x, task)
        weights, moved = (dict(net.named_parameters()) for net in (self.backbone, self.displacement))
        with sdpa_kernel(SDPBackend.MATH):
            value, tangent = torch.func.jvp(
                lambda w: torch.func.functional_call(self.backbone, w, (x,)), (weights,), (moved,)
            )
        head = self.heads[str(task)] if len(self.heads) else self.head
        if not len(self.reference):
            return head(value + tangent)
        return head(value) + tangent @ self.reference[str(task) if len(self.heads) else "shared"].T
'''

_GROWING = '''

class GrowingNetwork(Network):
    """An expert for each task, the newest last, and one classifier over the features of all."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.head = nn.Linear(*tensors["head.weight"].T.shape)
        later = config["network"]["experts"]
        self.experts = nn.ModuleList(EXPERTS)

    def forward(self, x, task=None):
        return self.head(FEATURES)
'''

_DENSE = _GROWING.replace("EXPERTS", 'Expert(tensors, f"experts.{i}") for i in range(len(later))').replace(
    "FEATURES", "chain([self.backbone.expert, *self.experts], x)"
)
_PARALLEL = _GROWING.replace("EXPERTS", "Backbone(tensors) for _ in range(later)").replace(
    "FEATURES", "torch.cat([expert(x) for expert in [self.backbone, *self.experts]], 1)"
)

_END = '''

def normalise(pixels):
    """uint8 [B, size, size, channels] to the network's input."""
    shift = torch.tensor([255 * mean for mean in config["normalise"]["mean"]])
    scale = torch.tensor([1 / (255 * std) for std in config["normalise"]["std"]])
    return ((pixels.float() - shift) * scale).permute(0, 3, 1, 2)


tensors = load_file("model.safetensors")
network = {network}(tensors)
network.load_state_dict(tensors)
network.eval()
'''

# How a version answers: the class of the network and the code for it.
_NETWORKS = {
    "plain": ("Network", ""),
    "vpt": ("PromptedNetwork", _PROMPTED),
    "linearised": ("LinearisedNetwork", _LINEARISED),
    "dne": ("GrowingNetwork", _DENSE),
    "der-net": ("GrowingNetwork", _PARALLEL),
    "means": ("NearestMeanNetwork", _NEAREST_MEAN),
}
_CLASSIFIERS = {"dne": ("head.",), "resnet": ("fc.",), "vit": ("heads.",), "convnext": ("classifier.2.",)}


def family(manifest: Mapping[str, Any]) -> str | None:
    """The family whose loading code fits the manifest's architecture, or None."""
    name = str(manifest["architecture"]["name"])
    if name in BACKBONES:
        return name
    return next((f for f in ("resnet", "vit", "convnext") if name.startswith(f)), None)


def classifier_prefixes(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Names in an uploaded base that are its own classifier and not part of the backbone."""
    return _CLASSIFIERS.get(family(manifest) or "", ())


def loading_code(manifest: Mapping[str, Any]) -> str | None:
    """Python that rebuilds the network from the unpacked download, or None for an unknown family."""
    found = family(manifest)
    kind = (manifest.get("network") or {}).get("family", "plain")  # what the method made of the network
    if (manifest.get("method") or {}).get("name") == "icarl" and _has_part(manifest, "own"):
        kind = "means"
    if found is None or kind not in _NETWORKS:
        return None
    name, code = _NETWORKS[kind]
    return _START + "\n" + BACKBONES[found] + _NETWORK + code + _END.replace("{network}", name)


def _has_part(manifest: Mapping[str, Any], kind: str) -> bool:
    return any(part["type"] == kind for part in manifest.get("parts") or [])
