"""Manifests and parts of versions as older code stored them: each architecture with each way to
answer.

`digests(write)` gives one digest for each pair, over the downloads of every scenario, of version 0
and a later one. What today's code makes of them is compared with `download-digests.json`, which the
code of commit 678d427 wrote.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Parts = list[tuple[str, Path, str]]
"""Name, path and sha256 of each."""
Write = Callable[[Path, Json, Parts], None]

ARCHITECTURES: dict[str, Json] = {
    "mlp": {"hidden": [24, 16]},
    "small-cnn": {},
    "resnet20": {"width": 8},
    "slim-resnet18": {"width": 8},
    **{f"resnet{layers}": {"stem": "small"} for layers in (18, 34, 50, 101, 152)},
    **{name: {"patch": 16} for name in ("vit_b_16", "vit_b_32", "vit_l_16")},
    "vit": {"layers": 2, "hidden": 48, "heads": 4, "mlp": 64},
    "dne": {"layers": 2, "head_dim": 8, "heads": 3},
    **{f"convnext_{size}": {} for size in ("tiny", "small", "base", "large")},
}
LATER_ARCHITECTURES = {"timm"}
"""Those that came after that commit."""
METHODS: dict[str, tuple[str, Json | None]] = {
    "finetune": ("plain", None),
    "icarl": ("plain", None),
    "vpt": ("vpt", {"family": "vpt", "tokens": 3, "deep": True, "tasks": None}),
    "dlcft": ("linearised", {"family": "linearised", "slope": 0.1, "frozen": True}),
    "dne": ("dne", {"family": "dne", "experts": [{"heads": 1}]}),
    "der-net": ("der-net", {"family": "der-net", "experts": 2}),
    "of a later service": ("strange", {"family": "strange"}),
}
"""Method → what it makes of the network, and how a manifest describes that."""
LATER = {"analytic"}
"""Methods with code of their own that came after that commit."""
RECORDED = Path(__file__).parent / "download-digests.json"
_BASE = [
    "conv1.weight",
    "fc.weight",
    "head.weight",
    "heads.head.weight",
    "classifier.0.weight",
    "classifier.2.weight",
]


def digest_downloads(folder: Path, write: Write) -> dict[str, str]:
    """Map `architecture, method` to the sha256 over its downloads, one after the other."""
    found = {}
    for name, rest in ARCHITECTURES.items():
        for method in METHODS:
            digest = hashlib.sha256()
            for manifest, parts in _build_versions({"name": name, **rest}, method, folder):
                write(folder / "download.zip", manifest, parts)
                digest.update((folder / "download.zip").read_bytes())
            found[f"{name}, {method}"] = digest.hexdigest()
    return found


def _build_versions(architecture: Json, method: str, folder: Path) -> Iterator[tuple[Json, Parts]]:
    family, network = METHODS[method]
    for scenario in ("data", "task", "class"):
        first = _build_manifest(architecture, scenario, 0, 3)
        yield first, _write_parts(folder, {"base": _BASE})
        tensors = {"backbone.1": ["backbone.conv1.weight"], "head": ["head.weight"]}
        kinds = {"own": "own"} if method == "icarl" else {}
        if kinds:
            tensors["own"] = ["class_means"]
        later = _build_manifest(architecture, scenario, 3, 1 if family == "plain" else 3)
        later["method"] = {
            "name": method,
            "hyper": {"strength": 0.5},
            "state": {},
            "predicts_with": list(kinds),
        }
        later["parts"] = [
            {"name": name, "type": name.partition(".")[0], "sha256": "0" * 64, "bytes": 1}
            for name in tensors
        ]
        yield (
            later | ({} if network is None else {"network": network}),
            _write_parts(folder, tensors),
        )
    if method == "icarl":  # some class has no exemplars: the head answers
        yield later | {"parts": later["parts"][:2]}, _write_parts(folder, {"head": ["head.weight"]})
    yield (
        later | {"anytime": {"job": "job_1", "step": 20, "validation": {"correct": 3, "total": 4}}},
        _write_parts(folder, tensors),
    )


def _build_manifest(architecture: Json, scenario: str, version: int, channels: int) -> Json:
    classes = (
        [f"class {i}" for i in range(60)]
        if scenario == "data"
        else ["cat", "``` | <b>\n# title", "Füchse"]
    )
    manifest: Json = {
        "format": 1,
        "model": "mdl_x",
        "version": version,
        "scenario": scenario,
        "architecture": architecture,
        "image": {"size": 32, "channels": channels},
        "classes": [] if scenario == "task" or not version else classes,
        "heads": [],
        "recipe": {"epochs": 1},
        "seed": 4,
    }
    if version:
        manifest |= {
            "name": "birds",
            "parent": version - 1,
            "task": version,
            "code_version": "c" * 64,
            "threads": 1,
        }
        manifest["normalise"] = {"mean": [0.4] * channels, "std": [0.2] * channels}
        if scenario == "task":
            manifest["heads"] = [{"task": 2, "classes": classes}, {"task": 3, "classes": ["gnu"]}]
    return manifest


def _write_parts(folder: Path, tensors: dict[str, list[str]]) -> Parts:
    parts = []
    for name, names in tensors.items():
        data = _build_safetensors(names)
        path = folder / name
        path.write_bytes(data)
        parts.append((name, path, hashlib.sha256(data).hexdigest()))
    return parts


def _build_safetensors(names: list[str]) -> bytes:
    """Build a safetensors file with two numbers under each name."""
    header = {
        n: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]}
        for i, n in enumerate(names)
    }
    text = json.dumps(header).encode()
    return (
        struct.pack("<Q", len(text))
        + text
        + struct.pack(f"<{2 * len(names)}f", *range(2 * len(names)))
    )
