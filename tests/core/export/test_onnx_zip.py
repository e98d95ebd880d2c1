"""The ONNX download: what stands beside the graph, and that its README reads images as the service
does.
"""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bench.service.exported_networks import CHANNELS, NORMALISE, QUICK
from core.contract.architecture import ImageSettings as ModelImage
from core.contract.manifest import Manifest
from core.errors import StoredObjectDamaged
from core.export import onnx_card
from core.export.format import VersionToExport
from core.export.formats.onnx_zip import OnnxZipFormat
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.images import decode_image_to_square_pixels
from core.learning.evaluation import predicting
from core.learning.export import graph
from tests.learning_catalogue import copy_catalogue

CATALOGUE = copy_catalogue()
WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None; sys.argv = ['run.py', *sys.argv[1:]]; "
    "exec(open('run.py').read())"
)
BASE = {"name": "resnet18.a1_in1k", "repository": "timm/resnet18.a1_in1k", "licence": "apache-2.0"}


def build_manifest(**fields: Any) -> Manifest:
    given: dict[str, Any] = {
        "model": "mdl_x",
        "name": "birds",
        "version": 3,
        "scenario": "class",
        "architecture": {"name": "mlp", "hidden": [24, 16]},
        "image": {"size": 8, "channels": 3},
        "normalise": NORMALISE.to_json(),
        "classes": ["cat", "dog", "emu"],
        "heads": [],
    }
    return Manifest.from_json({**given, **fields})


def extract_python_code(text: str) -> str:
    """Return the block of Python of a README."""
    return text.partition("```python\n")[2].partition("```")[0]


def read_pixels_with_card_code(image: ModelImage, folder: Path, path: Path) -> np.ndarray:
    """Read an image file as the README's code does, as uint8 [size, size, channels]."""
    reads, _, _ = onnx_card.build_onnx_prediction_code(image).partition("with open(")
    scope: dict[str, Any] = {}
    before, sys.argv = sys.argv, ["run.py", str(path)]
    try:
        exec(compile(reads, "README.md", "exec"), scope)
    finally:
        sys.argv = before
    return np.asarray(scope["pixels"][0].transpose(1, 2, 0))


def write_pictures(folder: Path) -> list[Path]:
    """Write image files of many kinds and shapes, one of them rotated by its EXIF."""
    rng, made = np.random.default_rng(0), []

    def save_picture(name: str, image: Image.Image, **options: Any) -> None:
        image.save(folder / name, **options)
        made.append(folder / name)

    for number, (width, height) in enumerate(
        [(40, 64), (301, 97), (32, 32), (224, 224), (9, 200), (700, 533)]
    ):
        colours = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        save_picture(f"{number}.png", colours)
        save_picture(f"{number}.jpg", colours, quality=90)
        save_picture(f"{number}.webp", colours)
    photo = Image.fromarray(rng.integers(0, 256, (50, 80, 3), dtype=np.uint8))
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        save_picture(f"turned-{turn}.jpg", photo, exif=exif)
    save_picture("alpha.png", Image.fromarray(rng.integers(0, 256, (50, 80, 4), dtype=np.uint8)))
    save_picture("grey.png", photo.convert("L"))
    save_picture("grey-alpha.png", photo.convert("LA"))
    save_picture("palette.png", photo.convert("P"))
    save_picture("palette-transparent.png", photo.convert("P"), transparency=3)
    save_picture("bilevel.png", photo.convert("1"))
    save_picture("cmyk.jpg", photo.convert("CMYK"))
    save_picture("photo.tif", photo)
    return made


@pytest.mark.parametrize(
    "image",
    [
        ModelImage(size=32, channels=3),
        ModelImage(size=32, channels=1),
        ModelImage(size=112, channels=3),
        ModelImage(size=48, channels=3, crop=0.875, interpolation="bicubic"),
        ModelImage(size=32, channels=3, crop=1.0, interpolation="nearest"),
    ],
    ids=lambda image: f"{image.size}-{image.channels}-{image.crop}-{image.interpolation}",
)
def test_the_readmes_code_reads_images_to_the_pixel_as_the_service_does(
    tmp_path: Path, image: ModelImage
) -> None:
    resizing, wrong = SquareResizingSettings(image.crop, image.interpolation), []
    for path in write_pictures(tmp_path):
        ours = decode_image_to_square_pixels(
            path.read_bytes(), image.size, image.channels, 1 << 24, resizing
        )
        if not np.array_equal(read_pixels_with_card_code(image, tmp_path, path), ours):
            wrong.append(path.name)
    assert not wrong


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with a graph, as a job process leaves it."""
    folder = tmp_path / "made"
    folder.mkdir()
    graph.write_onnx_graph(QUICK["mlp"].build_prediction_module(), CHANNELS, 8, folder)
    return folder


@pytest.mark.campaign  # tests/e2e/test_onnx.py runs it
@pytest.mark.slow
def test_the_readmes_code_runs_without_torch_and_prints_what_the_version_says(
    tmp_path: Path, made: Path
) -> None:
    OnnxZipFormat().write_download(
        tmp_path / "out.zip", VersionToExport(build_manifest(), [], CATALOGUE, made)
    )
    with zipfile.ZipFile(tmp_path / "out.zip") as packed:
        for name in packed.namelist():
            (tmp_path / name).write_bytes(packed.read(name))
    (tmp_path / "run.py").write_text(extract_python_code((tmp_path / "README.md").read_text()))
    pixels = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "cat.png"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    read = decode_image_to_square_pixels((tmp_path / "cat.png").read_bytes(), 8, 3, 1 << 24)
    (label,), (probabilities,) = predicting.predict_images(
        QUICK["mlp"].build_prediction_module().network, read[None], None, NORMALISE
    )
    assert [name for name, _, _ in said] == ["probabilities"] * 3 and said[0][1] == label
    told = {name: float(p) for _, name, p in said}
    ours = dict(zip(("cat", "dog", "emu"), probabilities.tolist(), strict=True))
    assert all(abs(told[name] - ours[name]) <= 1e-5 for name in ours)


@pytest.mark.slow
def test_the_same_graph_gives_the_same_bytes_and_names_what_it_takes_and_gives(
    tmp_path: Path, made: Path
) -> None:
    for name in ("1.zip", "2.zip"):
        OnnxZipFormat().write_download(
            tmp_path / name, VersionToExport(build_manifest(base=BASE), [], CATALOGUE, made)
        )
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "1.zip") as packed:
        assert packed.namelist() == ["model.onnx", "labels.json", "config.json", "README.md"]
        assert json.loads(packed.read("labels.json")) == {"probabilities": ["cat", "dog", "emu"]}
        told = json.loads(packed.read("config.json"))["onnx"]
        card = packed.read("README.md").decode()
    assert told["inputs"] == {"images": {"dtype": "uint8", "shape": ["batch", 3, 8, 8]}}
    assert told["outputs"] == {"probabilities": {"dtype": "float32", "shape": ["batch", 3]}}
    assert (
        "began from | resnet18.a1\\_in1k of timm/resnet18.a1\\_in1k; licence: apache-2.0 |" in card
    )


@pytest.mark.slow
def test_weights_of_a_second_file_are_in_the_zip(tmp_path: Path, made: Path) -> None:
    (made / "model.onnx.data").write_bytes(b"weights")
    OnnxZipFormat().write_download(
        tmp_path / "out.zip", VersionToExport(build_manifest(), [], CATALOGUE, made)
    )
    with zipfile.ZipFile(tmp_path / "out.zip") as packed:
        assert packed.namelist()[:2] == ["model.onnx", "model.onnx.data"]


def test_every_head_has_labels_of_its_own() -> None:
    heads = [{"task": 2, "classes": ["emu", "fox"]}, {"task": 5, "classes": ["gnu"]}]
    found = build_manifest(scenario="task", classes=[], heads=heads)
    assert onnx_card.collect_labels_of_graph_outputs(found) == {
        "task_2": ["emu", "fox"],
        "task_5": ["gnu"],
    }
    assert (
        "one for each task, `task_2`: float32 [batch, 2], `task_5`: float32 [batch, 1]"
        in onnx_card.render_onnx_readme(found)
    )


@pytest.mark.parametrize(
    "fields", [{"version": 0}, {"classes": []}, {"scenario": "task", "heads": []}]
)
def test_a_version_without_classes_is_refused_with_what_to_do(fields: dict[str, Any]) -> None:
    assert "Submit a task first" in str(
        OnnxZipFormat().explain_unavailability(build_manifest(**fields))
    )
    assert OnnxZipFormat().explain_unavailability(build_manifest()) is None


def test_without_a_graph_there_is_no_download(tmp_path: Path) -> None:
    with pytest.raises(StoredObjectDamaged):
        OnnxZipFormat().write_download(
            tmp_path / "out.zip", VersionToExport(build_manifest(), [], CATALOGUE)
        )
