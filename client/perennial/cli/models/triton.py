"""A model repository for Triton Inference Server from a download in the format onnx."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perennial.cli.models.unpack import open_downloaded_version_zip
from perennial.errors import BadAnswer, PerennialError
from perennial.guard import require_safe_filename, require_whole_number_in_response
from perennial.responses import parse_json
from perennial.text import make_text_one_line

INPUT = "images"


def write_triton_folder(archive: Path, folder: Path, model: str, version: int) -> Path:
    """Write a downloaded ONNX model as a model folder for Triton Inference Server; return the
    folder.

    Raises:
        BadAnswer: a name in the archive is unsafe, or its documents do not describe a model.
        PerennialError: the archive has no model.onnx.
    """
    root = folder / require_safe_filename(model)
    target = root / str(require_whole_number_in_response(version, "version"))
    target.mkdir(parents=True, exist_ok=True)
    with open_downloaded_version_zip(archive) as package:
        if not {"model.onnx", "labels.json", "config.json"} <= {*package.names}:
            raise PerennialError(
                f"The download has no model.onnx and labels.json; it holds "
                f"{', '.join(package.names)}."
            )
        for name in package.names:
            # Large weights are in files beside the graph.
            if name == "model.onnx" or name.startswith("model.onnx."):
                package.unpack_file(name, target)
        labels, config = (
            parse_json(package.read_small_file("labels.json")),
            parse_json(package.read_small_file("config.json")),
        )
    outputs = _parse_labels_of_onnx_outputs(labels)
    text = build_triton_config(model, config, outputs)
    for name, each in outputs.items():
        (root / f"{name}.txt").write_text("".join(f"{label}\n" for label in each))
    (root / "config.pbtxt").write_text(text)
    return root


def _parse_labels_of_onnx_outputs(labels: Any) -> dict[str, list[str]]:
    """Return the class labels of each model output, whose name becomes a file name. Raises
    BadAnswer.
    """
    if not isinstance(labels, dict) or not all(isinstance(each, list) for each in labels.values()):
        raise BadAnswer("labels.json of the download does not name the labels of each output.")
    return {
        require_safe_filename(name): [make_text_one_line(str(label)) for label in each]
        for name, each in labels.items()
    }


def build_triton_config(model: str, config: dict[str, Any], outputs: dict[str, list[str]]) -> str:
    """Return the text of Triton's config.pbtxt: a batch of uint8 images in, probabilities out."""
    try:
        # The first dimension is the batch size, which Triton adds itself.
        shape = config["onnx"]["inputs"][INPUT]["shape"][1:]
        sides = [require_whole_number_in_response(side, "side of an image") for side in shape]
        flags = [
            str(name)
            for name, each in config["onnx"].get("outputs", {}).items()
            if each["dtype"] == "bool"
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadAnswer("config.json of the download does not describe an ONNX model.") from error
    config_lines = [
        f"name: {json.dumps(model)}",
        'backend: "onnxruntime"',
        "max_batch_size: 64",
        f'input [{{ name: "{INPUT}", data_type: TYPE_UINT8, dims: [ {", ".join(map(str, sides))} ] '
        f"}}]",
        "output [",
        ",\n".join(
            f"  {{ name: {json.dumps(name)}, data_type: TYPE_FP32, dims: [ {len(each)} ], "
            f"label_filename: {json.dumps(f'{name}.txt')} }}"
            for name, each in outputs.items()
        )
        + "".join(
            # Triton takes no empty dims; the reshape makes it one value per image.
            f",\n  {{ name: {json.dumps(name)}, data_type: TYPE_BOOL, dims: [ 1 ], reshape: {{ "
            f"shape: [ ] }} }}"
            for name in flags
        ),
        "]",
        "dynamic_batching { }",
    ]
    return "\n".join(config_lines) + "\n"
