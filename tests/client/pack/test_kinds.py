"""Recognition of the kind of a source, its description, and the error if there is no kind."""

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sources import (
    add_member,
    build_image_mapping,
    make_noise_png,
    write_class_folders,
    write_coco,
    write_csv_list,
    write_file,
    write_imagefolder,
    write_json_shards,
    write_labelled_folder,
    write_parquet,
    write_shards,
    write_yolo,
)

from perennial.pack import ExtraMissing, PackError, extras, open_batch
from perennial.pack.kinds import detect_data_set_kind

Make = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (write_class_folders, "folder"),
        (write_csv_list, "csv"),
        (write_labelled_folder, "csv"),
        (write_shards, "webdataset"),
        (write_json_shards, "webdataset"),
        (write_parquet, "parquet"),
        (write_imagefolder, "imagefolder"),
        (write_coco, "coco"),
        (write_yolo, "yolo"),
    ],
)
def test_a_kind_is_recognised_by_its_look(make: Make, kind: str, tmp_path: Path) -> None:
    assert detect_data_set_kind(make(tmp_path)) == kind


@pytest.mark.parametrize(
    ("make", "file", "kind"),
    [
        (write_shards, "train-000000.tar", "webdataset"),
        (write_parquet, "data/train-00000-of-00001.parquet", "parquet"),
        (write_coco, "annotations/instances_train.json", "coco"),
        (write_yolo, "data.yaml", "yolo"),
    ],
)
def test_a_single_file_of_a_kind_is_recognised(
    make: Make, file: str, kind: str, tmp_path: Path
) -> None:
    make(tmp_path)
    assert detect_data_set_kind(tmp_path / file) == kind
    assert open_batch(tmp_path / file).size > 2048


CUT = "28 images of 2 classes (“cat” 14, “dog” 14), 20 to learn and 8 held out, from"
WHOLE = "14 images of 2 classes (“cat” 7, “dog” 7), 10 to learn and 4 held out, from"


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (write_class_folders, {}, f"{WHOLE} the folder “in”."),
        (write_shards, {}, f"{WHOLE} 3 WebDataset shards in “in”."),
        (write_coco, {}, f"{CUT} 2 COCO files in “in”."),
        (write_coco, {"whole": True}, f"{WHOLE} 2 COCO files in “in”."),
        (build_image_mapping, {}, f"{WHOLE} a mapping."),
    ],
)
def test_one_sentence_says_what_is_sent(
    make: Make, options: dict[str, bool], said: str, tmp_path: Path
) -> None:
    assert open_batch(make(tmp_path / "in"), **options).describe() == said


@pytest.mark.parametrize(
    ("make", "file"),
    [
        (write_shards, "val-000000.tar"),
        (write_parquet, "data/validation-00000-of-00001.parquet"),
        (write_coco, "annotations/instances_test.json"),
    ],
)
def test_a_single_file_is_learned_whatever_part_it_is_called_by(
    make: Make, file: str, tmp_path: Path
) -> None:
    make(tmp_path)
    assert "of which the service holds out a share" in open_batch(tmp_path / file).describe()


def test_without_a_test_part_it_is_said_who_holds_out() -> None:
    said = "2 images of 1 class (“cat” 2), of which the service holds out a share, from a mapping."
    assert open_batch({"cat": [make_noise_png("1"), make_noise_png("2")]}).describe() == said


def test_archives_are_sent_as_they_are(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "own.tar", "w") as tar:
        add_member(tar, "cat/1.png", make_noise_png("1"))
        add_member(tar, "dog/1.png", make_noise_png("2"))
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as archive:
        archive.writestr("cat/1.png", make_noise_png("1"))
    for name in ("own.tar", "own.zip"):
        data = (tmp_path / name).read_bytes()
        for batch in (
            open_batch(tmp_path / name),
            open_batch(str(tmp_path / name)),
            open_batch(data),
        ):
            assert b"".join(batch.read_chunks()) == data
            assert b"".join(batch.read_chunks(100)) == data[100:]
            assert batch.describe().endswith("sent as it is.")


def test_what_is_no_kind_is_told_what_was_found_and_what_is_possible(tmp_path: Path) -> None:
    write_file(tmp_path / "a/report.docx", b"x")
    write_file(tmp_path / "a/letter.docx", b"x")
    write_file(tmp_path / "words.txt", b"just words")
    write_file(tmp_path / "loose/1.png", b"x")
    write_file(tmp_path / "saved/data-0.arrow", b"x")
    (tmp_path / "empty").mkdir()
    for name, found in (
        ("a", "it holds 2 files, most of them “.docx”"),
        ("words.txt", "it begins with “just words”"),
        ("loose", "images need class folders, a labels.csv or a metadata.csv"),
        ("saved", "rows.to_parquet"),
        ("empty", "it is empty"),
    ):
        with pytest.raises(PackError, match=found) as said:
            open_batch(tmp_path / name)
        for kind in (
            "folder",
            "csv",
            "webdataset",
            "parquet",
            "imagefolder",
            "coco",
            "yolo",
            "archive",
        ):
            assert f"({kind})" in str(said.value)
    with pytest.raises(PackError, match="There is no file or folder"):
        open_batch(tmp_path / "nothing")
    with pytest.raises(PackError, match="There is no kind “zip”; possible are folder, csv"):
        open_batch(tmp_path / "a", kind="zip")


def test_what_looks_like_two_kinds_must_be_said(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    write_coco(tmp_path)
    with pytest.raises(PackError, match="looks like parquet and like coco: say which with kind="):
        open_batch(tmp_path)
    assert "parquet file" in open_batch(tmp_path, kind="parquet").describe()


def test_an_option_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"kind folder, which has no option whole; it has layout, .*allow_outside"
    ):
        open_batch(write_class_folders(tmp_path), whole=True)


@pytest.mark.parametrize(
    ("make", "module"), [(write_parquet, "pyarrow"), (write_coco, "PIL"), (write_yolo, "PIL")]
)
def test_a_missing_library_is_named_with_the_command(
    make: Make, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_import_error(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extras.importlib, "import_module", raise_import_error)
    with pytest.raises(
        ExtraMissing, match=rf"needs {module}.*pip install 'perennial-client\[data\]'"
    ):
        open_batch(make(tmp_path))


def test_whole_images_need_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_coco(tmp_path)
    monkeypatch.setattr(extras.importlib, "import_module", None)
    assert open_batch(tmp_path, whole=True).size > 0
