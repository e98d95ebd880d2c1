"""The model repository of Triton Inference Server from a download in the format onnx."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

from perennial.errors import PerennialError

INPUT = "images"


def lay_out(archive: Path, folder: Path, model: str, version: int) -> Path:
    """Write `<model>/<version>/model.onnx`, `<model>/config.pbtxt` and the labels; returns `<model>`.

    Raises:
        PerennialError: the archive has no model.onnx.
    """
    root = folder / model
    target = root / str(version)
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as opened:
        names = set(opened.namelist())
        if not names >= {"model.onnx", "labels.json", "config.json"}:
            raise PerennialError(
                f"The download has no model.onnx and labels.json; it holds {', '.join(sorted(names))}."
            )
        for name in sorted(names):
            if name == "model.onnx" or name.startswith(
                "model.onnx."
            ):  # with weights beside it where they are large
                with opened.open(name) as source, (target / Path(name).name).open("wb") as file:
                    shutil.copyfileobj(source, file)
        labels = json.loads(opened.read("labels.json"))
        config = json.loads(opened.read("config.json"))
    outputs = {str(name): [str(label) for label in each] for name, each in labels.items()}
    for name, each in outputs.items():
        (root / f"{name}.txt").write_text("\n".join(each) + "\n")
    (root / "config.pbtxt").write_text(config_text(model, config, outputs))
    return root


def config_text(model: str, config: dict[str, Any], outputs: dict[str, list[str]]) -> str:
    """Triton's description of the model: a batch of uint8 images in, probabilities out."""
    shape = config["onnx"]["inputs"][INPUT]["shape"][
        1:
    ]  # the first dimension is the batch's, which Triton adds
    lines = [
        f'name: "{model}"',
        'backend: "onnxruntime"',
        "max_batch_size: 64",
        f'input [{{ name: "{INPUT}", data_type: TYPE_UINT8, dims: [ {", ".join(map(str, shape))} ] }}]',
        "output [",
        ",\n".join(
            f'  {{ name: "{name}", data_type: TYPE_FP32, dims: [ {len(each)} ], label_filename: "{name}.txt" }}'
            for name, each in outputs.items()
        )
        + "".join(
            f',\n  {{ name: "{name}", data_type: TYPE_BOOL, dims: [ 1 ], reshape: {{ shape: [ ] }} }}'
            for name, each in config["onnx"].get("outputs", {}).items()
            if each["dtype"] == "bool"
        ),
        "]",
        "dynamic_batching { }",
    ]
    return "\n".join(lines) + "\n"
