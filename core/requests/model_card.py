"""The model card of a download: what the version is, and code that loads it without Perennial.

The code needs torch and safetensors (torchvision for its families) and reads all sizes from the tensors
themselves. Everything here is a pure function of the manifest.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

SHOWN_CLASSES = 50
DEFAULT_MEAN, DEFAULT_STD = 0.5, 0.25
SMALL_SIDE = 96
"""Images up to this side are resized to it exactly; larger ones keep the usual 256:224 margin."""

_MLP = """class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.count = sum(name.startswith("backbone.fc") and name.endswith(".weight") for name in tensors)
        for i in range(1, self.count + 1):
            outputs, inputs = tensors[f"backbone.fc{i}.weight"].shape
            self.add_module(f"fc{i}", nn.Linear(inputs, outputs))
        self.width = outputs

    def forward(self, x):
        x = x.flatten(1)
        for i in range(1, self.count + 1):
            x = self.get_submodule(f"fc{i}")(x).relu()
        return x
"""

_SMALL_CNN = """class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.conv1 = nn.Conv2d(config["image"]["channels"], 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.fc1 = nn.Linear(1152, 128)
        self.width = 128

    def forward(self, x):
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        x = F.adaptive_avg_pool2d(self.conv3(x).relu(), 3)
        return self.fc1(x.flatten(1)).relu()
"""

_SMALL_RESNET = """class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(out)) + shortcut).relu()


class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        width = tensors["backbone.conv1.weight"].shape[0]
        self.conv1 = nn.Conv2d(config["image"]["channels"], width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages, inputs = 0, width
        while f"backbone.layer{self.stages + 1}.0.conv1.weight" in tensors:
            stage, outputs, blocks = self.stages + 1, width * 2**self.stages, []
            while f"backbone.layer{stage}.{len(blocks)}.conv1.weight" in tensors:
                blocks.append(Block(inputs, outputs, 2 if stage > 1 and not blocks else 1))
                inputs = outputs
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            self.stages = stage
        self.width = inputs

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x.mean((2, 3))
"""

_RESNET = """from torchvision import models


def Backbone(tensors):
    net = getattr(models, config["architecture"]["name"])(weights=None)
    kernel = tensors["backbone.conv1.weight"].shape[-1]
    net.conv1 = nn.Conv2d(
        config["image"]["channels"], 64, kernel, stride=1 if kernel == 3 else 2, padding=kernel // 2, bias=False
    )
    if kernel == 3:  # the stem for small images has no pooling
        net.maxpool = nn.Identity()
    net.width = net.fc.in_features
    net.fc = nn.Identity()
    return net
"""

_VIT = """from torchvision import models


class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.width, channels, patch, _ = tensors["backbone.conv_proj.weight"].shape
        first = "backbone.encoder.layers.encoder_layer_"
        net = models.VisionTransformer(
            image_size=config["image"]["size"] // patch * patch,
            patch_size=patch,
            num_layers=sum(n.startswith(first) and n.endswith("ln_1.weight") for n in tensors),
            num_heads=config["attention_heads"],
            hidden_dim=self.width,
            mlp_dim=tensors[first + "0.mlp.0.weight"].shape[0],
        )
        self.conv_proj = nn.Conv2d(channels, self.width, patch, stride=patch)
        self.class_token = net.class_token
        self.encoder = net.encoder

    def forward(self, x):
        tokens = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(tokens), -1, -1), tokens], dim=1)
        return self.encoder(tokens)[:, 0]
"""

_CONVNEXT = """from torchvision import models


def Backbone(tensors):
    net = getattr(models, config["architecture"]["name"])(weights=None, stochastic_depth_prob=0.0)
    outputs, channels, kernel, _ = tensors["backbone.features.0.0.weight"].shape
    net.features[0][0] = nn.Conv2d(channels, outputs, kernel, stride=kernel)
    net.width = net.classifier[2].in_features
    net.classifier = nn.Sequential(net.classifier[0], nn.Flatten(1))
    return net
"""

_START = """import json

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

with open("config.json", encoding="utf-8") as file:
    config = json.load(file)

"""

_END = '''

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


def normalise(pixels):
    """uint8 [B, size, size, channels] to the network's input."""
    mean = torch.tensor(config["normalise"]["mean"]).view(1, -1, 1, 1)
    std = torch.tensor(config["normalise"]["std"]).view(1, -1, 1, 1)
    return (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std


tensors = load_file("model.safetensors")
network = Network(tensors)
network.load_state_dict(tensors)
network.eval()
'''

_PREDICT = '''import numpy
from PIL import Image, ImageOps


def read(path):
    """An image file as uint8 [size, size, channels]: shorter side resized, centre cropped."""
    size = config["image"]["size"]
    side = size if size <= {small} else round(size * 256 / 224)
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB" if config["image"]["channels"] == 3 else "L")
    scale = side / min(image.size)
    image = image.resize([max(side, round(n * scale)) for n in image.size], Image.Resampling.BILINEAR)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    pixels = numpy.asarray(image.crop((left, top, left + size, top + size)))
    return torch.from_numpy(pixels.reshape(size, size, -1).copy())


with torch.inference_mode():
    probabilities = network(normalise(torch.stack([read("cat.png")])){task}).softmax(1)
print({classes}[int(probabilities[0].argmax())])
'''

_FAMILIES = {
    "mlp": _MLP,
    "small-cnn": _SMALL_CNN,
    "resnet20": _SMALL_RESNET,
    "slim-resnet18": _SMALL_RESNET,
    "resnet": _RESNET,
    "vit": _VIT,
    "convnext": _CONVNEXT,
}
_ATTENTION_HEADS = {"vit_b_16": 12, "vit_b_32": 12, "vit_l_16": 16}
_CLASSIFIERS = {"resnet": ("fc.",), "vit": ("heads.",), "convnext": ("classifier.2.",)}
_KEPT = [
    *("model", "version", "parent", "task", "scenario", "architecture", "image", "recipe", "datasets"),
    *("seed", "threads", "code_version", "environment"),
]


def config(manifest: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """The download's `config.json`; `parts` are the names of the parts it holds."""
    channels = int(manifest["image"]["channels"])
    method = manifest.get("method") or {}
    answer = {
        "format": 1,
        **{key: manifest.get(key) for key in _KEPT},
        "method": {"name": method.get("name"), "hyper": method.get("hyper")} if method else None,
        "normalise": manifest.get("normalise")
        or {"mean": [DEFAULT_MEAN] * channels, "std": [DEFAULT_STD] * channels},
        "classes": manifest.get("classes"),
        "heads": manifest.get("heads") or [],
        "parts": [p for p in manifest.get("parts") or [] if p["name"] in set(parts)],
    }
    if family(manifest) == "vit":
        architecture = manifest["architecture"]
        answer["attention_heads"] = architecture.get("heads") or _ATTENTION_HEADS.get(architecture["name"], 3)
    return answer


def family(manifest: Mapping[str, Any]) -> str | None:
    """The family whose loading code fits the manifest's architecture, or None."""
    name = str(manifest["architecture"]["name"])
    if name in _FAMILIES:
        return name
    return next((f for f in ("resnet", "vit", "convnext") if name.startswith(f)), None)


def classifier_prefixes(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Names in an uploaded base that are its own classifier and not part of the backbone."""
    return _CLASSIFIERS.get(family(manifest) or "", ())


def loading_code(manifest: Mapping[str, Any]) -> str | None:
    """Python that rebuilds the network from the unpacked download, or None for an unknown family."""
    found = family(manifest)
    return None if found is None else _START + "\n" + _FAMILIES[found] + _END


def card(manifest: Mapping[str, Any]) -> str:
    """The download's `README.md`."""
    title = f"{manifest.get('model')} version {manifest.get('version')}"
    method = (manifest.get("method") or {}).get("name")
    image = manifest["image"]
    facts = {
        "scenario": manifest["scenario"],
        "architecture": manifest["architecture"],
        "input": f"{image['size']} x {image['size']} pixels, {image['channels']} channels",
        "learned with": method,
        "task": manifest.get("task"),
        "parent version": manifest.get("parent"),
        "code version": manifest.get("code_version"),
    }
    lines = [f"# {_inline(title)}", "", "A version of an image classifier, exported by Perennial.", ""]
    lines += ["| | |", "| --- | --- |"]
    lines += [f"| {key} | {_inline(value)} |" for key, value in facts.items() if value is not None]
    lines += ["", "## Classes", "", *_classes(manifest), ""]
    lines += ["`config.json` has them in the order of the network's outputs.", ""]
    code = loading_code(manifest)
    if code is None:
        lines += ["## Load it", "", "`model.safetensors` holds the tensors by name.", ""]
        return "\n".join(lines)
    needs = "torch, torchvision" if "torchvision" in code else "torch"
    by_task = manifest["scenario"] == "task"
    number = manifest["heads"][0]["task"] if by_task and manifest.get("heads") else 1
    predict = (
        _PREDICT.replace("{small}", str(SMALL_SIDE))
        .replace("{task}", f", task={number}" if by_task else "")
        .replace("{classes}", 'config["heads"][0]["classes"]' if by_task else 'config["classes"]')
    )
    lines += [
        "## Load it",
        "",
        f"Unpack the archive; in its folder, with {needs} and safetensors installed:",
        "",
    ]
    lines += ["```python", code.rstrip(), "```", "", "## Predict", "", "Needs pillow as well:", ""]
    lines += ["```python", predict.rstrip(), "```", ""]
    return "\n".join(lines)


def _classes(manifest: Mapping[str, Any]) -> list[str]:
    if manifest["scenario"] == "task":
        return [f"- task {h['task']}: {_names(h['classes'])}" for h in manifest.get("heads") or []] or [
            "none yet"
        ]
    return [_names(manifest.get("classes") or [])]


def _names(classes: Sequence[str]) -> str:
    shown = ", ".join(_inline(name) for name in classes[:SHOWN_CLASSES])
    more = len(classes) - SHOWN_CLASSES
    return (shown or "none yet") + (f" and {more} more" if more > 0 else "")


def _inline(value: Any) -> str:
    """Text that cannot break out of its line or table cell."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    text = "".join(c if c.isprintable() else " " for c in text)
    for mark in "\\`*_<>[]|#":
        text = text.replace(mark, "\\" + mark)
    return text
