"""The same file gives the same array in training, a check, a prediction, by a download's card and
by its ONNX code.

All kinds of `test_picture_kinds` go through each of the five as they are in the service: the first
three decode in processes of their own, the last two run what the download holds.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from api.predict.decoder import DecodeRequest, ImageDecoder
from core.contract.architecture import ImageSettings as ImageSpec
from core.contract.manifest import Manifest
from core.database.tables import Model
from core.execution.validate import (
    StoredUploadArchive,
    decode_batch_within_limits,
    fetch_uploaded_archive,
)
from core.export import onnx_card
from core.export.card_code import build_image_reading_code
from core.export.format import VersionToExport
from core.export.formats.onnx_zip import OnnxZipFormat
from core.export.formats.safetensors_zip import SafetensorsZipFormat
from core.export.image_reader import build_image_reader_files
from core.ingest import image_file
from core.ingest.dataset import memory_map_image_dataset
from core.ingest.decoding.resizing import FIRST, LATEST, SquareResizingSettings
from core.ingest.first_report import build_batch_report_before_decoding
from core.ingest.ingest import DecodingCallbacks, IngestOptions, decode_archive_to_datasets
from core.ingest.limits import ArchiveLimits
from core.learning.catalogue import build_recipe_catalogue
from core.settings import Settings
from core.storage import FolderStore
from perennial.cli.models.unpack import open_downloaded_version_zip
from tests.core.ingest.hostile_corpus import build_zip
from tests.core.ingest.test_picture_kinds import SIDE, Kind, decode_kind, load_kinds

IMAGE = {"size": SIDE, "channels": 3, "decoding": LATEST}
GOOD = [kind for kind in load_kinds() if kind.pixels is not None]


@pytest.fixture(scope="module")
def right() -> np.ndarray:
    """uint8 [N, 16, 16, 3], compared with other programs in `test_picture_kinds`."""
    return np.stack([decode_kind(kind) for kind in GOOD])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batch") / "batch.zip"
    files = {f"{'cat' if i % 2 else 'dog'}/{i:03}.png": kind.data for i, kind in enumerate(GOOD)}
    path.write_bytes(build_zip(files))
    return path


def test_training_has_these_pixels(right: np.ndarray, archive: Path, tmp_path: Path) -> None:
    resizing = SquareResizingSettings.from_json(IMAGE)
    options = IngestOptions(
        SIDE, 3, ArchiveLimits(), resizing=resizing, held_out_share=0.0, processes=1
    )
    made = decode_archive_to_datasets(archive, "zip", tmp_path, options)
    assert np.array_equal(memory_map_image_dataset(made.train)[0], right)
    assert "3 images have a colour profile that is damaged" in " ".join(made.report["notes"])
    assert "several frames; the first was taken" in " ".join(made.report["notes"])


def test_a_check_has_these_pixels(right: np.ndarray, archive: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    data = archive.read_bytes()
    store.put_bytes("archives/one", data)
    model = Model(id="mdl_one", image=IMAGE, scenario="class", base="random")
    report = build_batch_report_before_decoding(0, [], [], "keep")
    batch = StoredUploadArchive("archives/one", hashlib.sha256(data).hexdigest(), "zip", report)
    folder = tmp_path / "made"
    database: Any = None  # it is asked only about damage
    path = fetch_uploaded_archive(database, store, model.id, batch, folder)
    made = decode_batch_within_limits(path, batch, model, Settings(), folder, DecodingCallbacks())
    found = np.concatenate(
        [memory_map_image_dataset(made.train)[0], memory_map_image_dataset(made.held_out)[0]]
    )
    assert sorted(one.tobytes() for one in found) == sorted(one.tobytes() for one in right)


def test_a_prediction_has_these_pixels(right: np.ndarray) -> None:
    decoder = ImageDecoder(Settings(predict_turn_s=60))
    try:
        bodies = [kind.data for kind in GOOD]
        found = decoder.decode_images(
            DecodeRequest("files", bodies, 0, len(bodies), SIDE, 3, 60.0, decoding=LATEST)
        ).images
    finally:
        decoder.close()
    wrong = [
        kind.name for kind, one, own in zip(GOOD, found, right, strict=True) if one != own.tobytes()
    ]
    assert not wrong


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A download's folder, where its code runs."""
    for name, text in build_image_reader_files(ImageSpec.from_json(IMAGE)).items():
        (tmp_path / name).write_text(text)
    for name in [name for name in sys.modules if name.startswith("image_file")]:
        monkeypatch.delitem(sys.modules, name)  # of another download
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("image_file")]:
        assert str(tmp_path) in str(sys.modules[name].__file__)
        del sys.modules[name]


def write_photo(kind: Kind, folder: Path) -> Path:
    path = folder / "photo"
    path.write_bytes(kind.data)
    return path


def test_a_card_has_these_pixels(right: np.ndarray, unpacked: Path) -> None:
    scope: dict[str, Any] = {"torch": torch, "config": {"image": IMAGE}}
    exec(compile(build_image_reading_code(ImageSpec.from_json(IMAGE)), "README.md", "exec"), scope)
    found = [scope["read"](write_photo(kind, unpacked)).numpy() for kind in GOOD]
    assert np.array_equal(np.stack(found), right)


def test_onnx_code_has_these_pixels(
    right: np.ndarray, unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, _, _ = onnx_card.build_onnx_prediction_code(ImageSpec.from_json(IMAGE)).partition(
        "with open("
    )
    program, found = compile(reads, "README.md", "exec"), []
    for kind in GOOD:
        monkeypatch.setattr(sys, "argv", ["run.py", str(write_photo(kind, unpacked))])
        scope: dict[str, Any] = {}
        exec(program, scope)
        found.append(scope["pixels"][0].transpose(1, 2, 0))
    assert np.array_equal(np.stack(found), right)


BEFORE = {"size": SIDE, "channels": 3}
"""The images of a model that was made before its manifest named how files are decoded."""
OF_PHONES = [
    kind for kind in GOOD if kind.name in ("jpeg Display P3", "webp Display P3", "png Display P3")
]


def test_a_display_p3_photo_stays_as_it_was_on_a_model_of_before(
    unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In all five places, and on a new model it is another picture."""
    before = np.stack([decode_kind(kind, FIRST) for kind in OF_PHONES])
    today = np.stack([decode_kind(kind, LATEST) for kind in OF_PHONES])
    assert all(
        np.abs(one.astype(int) - two).max() > 20 for one, two in zip(before, today, strict=True)
    )
    image = ImageSpec.from_json(BEFORE)
    assert image.decoding is None and image.to_json() == BEFORE
    path = unpacked / "batch.zip"
    path.write_bytes(build_zip({f"cat/{i}.png": kind.data for i, kind in enumerate(OF_PHONES)}))
    resizing = SquareResizingSettings.from_json(BEFORE)
    options = IngestOptions(SIDE, 3, ArchiveLimits(), resizing=resizing, held_out_share=0.0)
    made = decode_archive_to_datasets(path, "zip", unpacked / "made", options)
    assert np.array_equal(memory_map_image_dataset(made.train)[0], before), (
        "training, and a check: both call ingest"
    )
    decoder = ImageDecoder(Settings(predict_turn_s=60))
    try:
        bodies = [kind.data for kind in OF_PHONES]
        wanted = DecodeRequest(
            "files", bodies, 0, len(bodies), SIDE, 3, 60.0, decoding=image.decoding
        )
        assert decoder.decode_images(wanted).images == [one.tobytes() for one in before], (
            "a prediction"
        )
    finally:
        decoder.close()
    scope: dict[str, Any] = {"torch": torch, "config": {"image": BEFORE}}
    exec(compile(build_image_reading_code(image), "README.md", "exec"), scope)
    reads, _, _ = onnx_card.build_onnx_prediction_code(image).partition("with open(")
    for kind, right in zip(OF_PHONES, before, strict=True):
        photo = write_photo(kind, unpacked)
        assert np.array_equal(scope["read"](photo).numpy(), right), "a card"
        monkeypatch.setattr(sys, "argv", ["run.py", str(photo)])
        ran: dict[str, Any] = {}
        exec(compile(reads, "README.md", "exec"), ran)
        assert np.array_equal(ran["pixels"][0].transpose(1, 2, 0), right), (
            "code of an ONNX download"
        )


def test_a_download_holds_the_readers_own_lines() -> None:
    """Beside its imports nothing of the service's code differs, and clients unpack plain names
    alone.
    """
    files = build_image_reader_files(ImageSpec.from_json(IMAGE))
    package = Path(image_file.__file__).parent
    assert len(files) == len(list(package.glob("*.py"))) and not any("/" in name for name in files)
    for path in package.glob("*.py"):
        name = "image_file.py" if path.stem == "__init__" else f"image_file_{path.stem}.py"
        own, copied = path.read_text().splitlines(), files[name].splitlines()
        assert [line for line in own if "import" not in line] == [
            line for line in copied if "import" not in line
        ]
        assert (
            "core." not in files[name].replace("`core.ingest.", "") and "from ." not in files[name]
        )


def test_downloads_of_both_formats_hold_the_reader_and_clients_unpack_them(tmp_path: Path) -> None:
    given = {
        "scenario": "class",
        "architecture": {"name": "mlp"},
        "classes": ["cat", "dog"],
        "version": 1,
    }
    made = tmp_path / "made"
    made.mkdir()
    (made / "model.onnx").write_bytes(b"a graph")
    for image, reads in (
        (IMAGE, set(build_image_reader_files(ImageSpec.from_json(IMAGE)))),
        (BEFORE, set()),
    ):
        manifest = Manifest.from_json({**given, "image": image})
        for form in (SafetensorsZipFormat(), OnnxZipFormat()):
            path = tmp_path / "download.zip"
            form.write_download(path, VersionToExport(manifest, [], build_recipe_catalogue(), made))
            with open_downloaded_version_zip(path) as package:
                assert {name for name in package.names if name.endswith(".py")} == reads
                assert json.loads(package.read_small_file("config.json"))["image"] == image
                assert (
                    "from image_file import read_array"
                    in package.read_small_file("README.md").decode()
                ) == bool(reads)
