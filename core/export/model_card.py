"""The model card of a download: a description of the version, and code that loads it.

Everything here is a pure function of the manifest. The code does not need Perennial.
"""

import json
from collections.abc import Sequence
from typing import cast

from pydantic import JsonValue

from core.contract.document import JsonObject
from core.contract.manifest import Manifest
from core.contract.pretrained import build_pretrained_weights_from_row
from core.export.card_code import (
    build_image_reading_code,
    build_loading_code,
    find_architecture_family,
)
from core.export.format import VersionToExport
from core.export.image_reader import FIRST, get_image_decoding_version

SHOWN_CLASSES = 50
# As in `core.learning.precision`, which cannot be imported without torch.
DEFAULT_MEAN, DEFAULT_STD = 0.5, 0.25
_PREDICT = """

with torch.inference_mode():
    probabilities = {logits}.softmax(1)
print({classes}[int(probabilities[0].argmax())])
"""
_SURE = """
print("sure" if float(probabilities[0].max()) >= config["answers"]["threshold"] else "not sure")
"""

_LOGITS = 'network(normalise(torch.stack([read("cat.png")])){task})'
_ATTENTION_HEADS = {"vit_b_16": 12, "vit_b_32": 12, "vit_l_16": 16}
_KEPT = [
    *(
        "model",
        "version",
        "parent",
        "task",
        "scenario",
        "architecture",
        "image",
        "recipe",
        "datasets",
    ),
    *("seed", "threads", "code_version", "environment"),
]


def build_download_config(version: VersionToExport) -> JsonObject:
    """Build the content of an export's `config.json`."""
    manifest, part_names = version.manifest, {part.name for part in version.parts}
    manifest_json, channels, method = manifest.to_json(), manifest.image.channels, manifest.method
    content: JsonObject = {
        "format": 1,
        **{key: manifest_json.get(key) for key in _KEPT},
        "method": None if method is None else {"name": method.name, "hyper": method.hyper},
        "normalise": manifest_json.get("normalise")
        or {"mean": [DEFAULT_MEAN] * channels, "std": [DEFAULT_STD] * channels},
        "classes": manifest_json.get("classes"),
        "heads": manifest_json.get("heads") or [],
        "parts": [part.to_json() for part in manifest.parts if part.name in part_names],
    }
    # Left out if absent, since null would change the bytes of older versions' downloads.
    content |= {
        key: manifest_json[key]
        for key in ("name", "network", "anytime")
        if manifest_json.get(key) is not None
    }
    if manifest.temperature is not None:
        content["temperature"] = manifest.temperature.to_json()
    if version.sure is not None:
        content["answers"] = cast(JsonObject, version.sure)
    if find_architecture_family(manifest, version.catalogue) == "vit":
        architecture = manifest.architecture
        # The shapes of the tensors do not reveal the number of heads.
        content["attention_heads"] = architecture.hyper.get("heads") or _ATTENTION_HEADS.get(
            architecture.name, 3
        )
    if find_architecture_family(manifest, version.catalogue) == "timm":
        name = str(manifest.architecture.hyper["model"])
        weights = build_pretrained_weights_from_row(name, version.catalogue["pretrained"][name])
        content["timm"] = dict(weights.build_timm_arguments(manifest.image.size))
    return content


def render_download_readme(version: VersionToExport) -> str:
    """Render the `README.md` (model card) of a weights export."""
    manifest = version.manifest
    title, summary = _build_model_card_title_and_summary(manifest)
    image = manifest.image
    facts = {
        "model": manifest.model,
        "scenario": manifest.scenario,
        "architecture": manifest.architecture.to_json(),
        "input": f"{image.size} x {image.size} pixels, {image.channels} channels",
        "learned with": None if manifest.method is None else manifest.method.name,
        "task": manifest.task,
        "parent version": manifest.parent,
        "code version": manifest.code_version,
    }
    readme_lines = [f"# {escape_markdown_inline(title)}", "", summary, ""]
    readme_lines += ["| | |", "| --- | --- |"]
    readme_lines += [
        f"| {key} | {escape_markdown_inline(value)} |"
        for key, value in facts.items()
        if value is not None
    ]
    readme_lines += ["", "## Classes", "", *_render_class_list(manifest), ""]
    readme_lines += ["`config.json` has them in the order of the network's outputs.", ""]
    return "\n".join([*readme_lines, *_render_usage_section(version)])


def _render_usage_section(version: VersionToExport) -> list[str]:
    """Render the model card's section about loading the network and predicting."""
    manifest, code = version.manifest, build_loading_code(version.manifest, version.catalogue)
    if code is None:
        return ["## Load it", "", "`model.safetensors` holds the tensors by name.", ""]
    needs = (
        "torch, timm"
        if "import timm" in code
        else "torch, torchvision"
        if "torchvision" in code
        else "torch"
    )
    unpack = f"Unpack the archive; in its folder, with {needs} and safetensors installed:"
    load = ["## Load it", "", unpack, "", "```python", code.rstrip(), "```", ""]
    if manifest.version == 0:
        return [*load, "No class was learned yet: the network gives features.", ""]
    by_task = manifest.scenario == "task"
    number = manifest.heads[0].task if by_task and manifest.heads else 1
    logits = (
        _LOGITS if manifest.temperature is None else f'({_LOGITS} / config["temperature"]["value"])'
    )
    replacements = {
        "{logits}": logits,
        "{task}": f", task={number}" if by_task else "",
        "{classes}": 'config["heads"][0]["classes"]' if by_task else 'config["classes"]',
    }
    has_sure = version.sure is not None and version.sure["threshold"] is not None
    predict = _PREDICT.rstrip() + (_SURE if has_sure else "")
    for name, text in replacements.items():
        predict = predict.replace(name, text)
    predict = build_image_reading_code(manifest.image) + predict.rstrip()
    needs = "Needs pillow and numpy as well:"
    if get_image_decoding_version(manifest.image) != FIRST:
        needs = (
            "Needs pillow, numpy and, for HEIC, pi-heif as well; `image_file.py` is the "
            "service's own reader:"
        )
    return [*load, "## Predict", "", needs, "", "```python", predict, "```", ""]


def _build_model_card_title_and_summary(manifest: Manifest) -> tuple[str, str]:
    """Return the model card's title and first sentence, for a version or a running job's state."""
    state = manifest.anytime
    name = manifest.name or manifest.model  # older manifests have only the id
    if state is None:
        title = f"{name} version {manifest.version}"
        return title, "A version of an image classifier, exported by Perennial."
    job, step = state.job, state.step
    correct, total = state.validation.correct, state.validation.total
    return f"{name}, {job} at step {step}", (
        f"An unfinished state of {escape_markdown_inline(job)}, exported by Perennial while the job runs: "
        f"its network after step "
        f"{step}, the best validated so far, with a validation accuracy of {correct / total:.4f} "
        f"({correct} of {total} images held back from training). It is not a version: no gate has "
        "judged it, and the next download may hold another state."
    )


def _render_class_list(manifest: Manifest) -> list[str]:
    if manifest.scenario == "task":
        return [
            f"- task {head.task}: {_join_first_class_names(head.classes)}"
            for head in manifest.heads or []
        ] or ["none yet"]
    return [_join_first_class_names(manifest.classes or [])]


def _join_first_class_names(classes: Sequence[str]) -> str:
    first_names = ", ".join(escape_markdown_inline(name) for name in classes[:SHOWN_CLASSES])
    more = len(classes) - SHOWN_CLASSES
    return (first_names or "none yet") + (f" and {more} more" if more > 0 else "")


def escape_markdown_inline(value: JsonValue) -> str:
    """Escape text for Markdown, so that it cannot break out of its line or table cell."""
    text = (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    )
    # A line break would end a row of a table, or begin a heading.
    text = "".join(c if c.isprintable() else " " for c in text)
    # The backslash is first, or those added for the other marks would be escaped again.
    for mark in "\\`*_<>[]|#":
        text = text.replace(mark, "\\" + mark)
    return text
