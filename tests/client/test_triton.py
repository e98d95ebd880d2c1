"""A download in the format onnx becomes a folder that Triton Inference Server reads."""

import json
import zipfile
from pathlib import Path

import pytest

from perennial import PerennialError
from perennial.cli.models.triton import write_triton_folder

CONFIG = {"onnx": {"inputs": {"images": {"dtype": "uint8", "shape": ["batch", 3, 32, 32]}}}}


def write_model_zip(folder: Path, labels: dict[str, list[str]], **files: bytes) -> Path:
    archive = folder / "model.zip"
    with zipfile.ZipFile(archive, "w") as to:
        to.writestr("labels.json", json.dumps(labels))
        to.writestr("config.json", json.dumps(CONFIG))
        for name, content in files.items():
            to.writestr(name.replace("_", "."), content)
    return archive


def test_the_graph_its_weights_and_the_labels_are_where_triton_looks(tmp_path: Path) -> None:
    labels = {"probabilities": ["cat", "owl"]}
    archive = write_model_zip(tmp_path, labels, model_onnx=b"graph", model_onnx_data=b"weights")
    root = write_triton_folder(archive, tmp_path / "models", "birds", 3)
    assert {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    } == {
        "3/model.onnx": b"graph",
        "3/model.onnx.data": b"weights",
        "probabilities.txt": b"cat\nowl\n",
        "config.pbtxt": (root / "config.pbtxt").read_bytes(),
    }
    assert (root / "config.pbtxt").read_text() == (
        'name: "birds"\nbackend: "onnxruntime"\nmax_batch_size: 64\n'
        'input [{ name: "images", data_type: TYPE_UINT8, dims: [ 3, 32, 32 ] }]\n'
        "output [\n"
        '  { name: "probabilities", data_type: TYPE_FP32, dims: [ 2 ], label_filename: '
        '"probabilities.txt" }\n'
        "]\n"
        "dynamic_batching { }\n"
    )


def test_every_head_of_the_task_scenario_is_an_output(tmp_path: Path) -> None:
    archive = write_model_zip(
        tmp_path, {"task_1": ["a", "b"], "task_2": ["c"]}, model_onnx=b"graph"
    )
    config = (write_triton_folder(archive, tmp_path, "birds", 3) / "config.pbtxt").read_text()
    assert 'name: "task_1", data_type: TYPE_FP32, dims: [ 2 ]' in config
    assert 'name: "task_2", data_type: TYPE_FP32, dims: [ 1 ]' in config


def test_a_download_of_another_format_is_told(tmp_path: Path) -> None:
    archive = write_model_zip(tmp_path, {})
    with pytest.raises(PerennialError, match=r"no model\.onnx"):
        write_triton_folder(archive, tmp_path, "birds", 3)
