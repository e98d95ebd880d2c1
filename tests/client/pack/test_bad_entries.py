"""One bad entry of a source costs one entry, and is listed; too many end the batch, with the option
to allow more.
"""

import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources import (
    add_member,
    make_noise_png,
    write_coco,
    write_file,
    write_imagefolder,
    write_parquet,
    write_shards,
    write_yolo,
)

from perennial.pack import PackedBatch, PackError, open_batch

Damage = Callable[[Path], None]


def change_json_row(file: str, where: str, **change: object) -> Damage:
    """Change the first row of a list in a JSON file. A value of None removes the key."""

    def change_first_row(at: Path) -> None:
        document = json.loads((at / file).read_text())
        row = {**document[where][0], **change}
        document[where][0] = {key: value for key, value in row.items() if value is not None}
        (at / file).write_text(json.dumps(document))

    return change_first_row


def overwrite_file(file: str, data: bytes) -> Damage:
    return lambda at: write_file(at / file, data)


def append_to_file(file: str, data: bytes) -> Damage:
    return lambda at: write_file(at / file, (at / file).read_bytes() + data)


def remove_file(file: str) -> Damage:
    return lambda at: (at / file).unlink()


def replace_columns(**columns: list[object]) -> Damage:
    def replace_column_values(at: Path) -> None:
        file = at / "data/train-00000-of-00001.parquet"
        table = pq.read_table(file)
        for name, values in columns.items():
            number = table.column_names.index(name)
            kind = table.schema.field(name)
            found = [*values, *table.column(name).to_pylist()[len(values) :]]
            table = table.set_column(number, kind, pa.array(found, kind.type))
        pq.write_table(table, file)

    return replace_column_values


def add_shard_with_member(name: str, data: bytes) -> Damage:
    """Add a shard whose first sample has the label `data`."""

    def add_shard(at: Path) -> None:
        with tarfile.open(at / "train-000002.tar", "w") as tar:
            add_member(tar, name, data)
            add_member(tar, "bad.png", make_noise_png("bad"))

    return add_shard


def damage_member_header(at: Path) -> None:
    """Damage the header of the second sample's image, so that only its label remains."""
    file = at / "train-000000.tar"
    with tarfile.open(file) as tar:
        begin = tar.getmembers()[3].offset
    data = bytearray(file.read_bytes())
    data[begin : begin + 8] = b"\xff" * 8
    file.write_bytes(bytes(data))


ANNOTATIONS = "annotations/instances_train.json"
LABELS = "train/labels/cat-0.txt"
TWO = b"0 0.25 0.325 0.4 0.45\n"
CASES: list[tuple[Callable[[Path], Path], Damage, int, str]] = [
    (write_coco, change_json_row(ANNOTATIONS, "annotations", image_id=99), 27, "is of the image 99, which it "
        "lacks"),
    (write_coco, change_json_row(ANNOTATIONS, "annotations", image_id=None), 27, "The annotation number 1 .* "
        "misses image_id"),
    (write_coco, change_json_row(ANNOTATIONS, "annotations", bbox=[1, 2]), 27, r"number 1 .* has the bbox “\[1, "
        r"2\]” instead of"),
    (write_coco, change_json_row(ANNOTATIONS, "annotations", bbox="none"), 27, "has the bbox “none”"),
    (write_coco, change_json_row(ANNOTATIONS, "annotations", category_id=7), 27, "has the category 7, which "
        "categories do not"),
    (write_coco, change_json_row(ANNOTATIONS, "images", file_name="none.png"), 26, "none.png” names an image "
        "that is not there"),
    (write_coco, change_json_row(ANNOTATIONS, "images", width=99), 26, "has 20 × 20 pixels, and its boxes are "
        "for 99 × 20"),
    (write_coco, overwrite_file("train/cat-0.png", make_noise_png("x", 20)[:60]), 26, r"cat-0\.png” cannot be decoded"),
    (write_yolo, overwrite_file(LABELS, TWO + b"0 0.5 0.5\n"), 27, "Line 2 of .*cat-0.txt” has 3 numbers; it "
        "must be class x y"),
    (write_yolo, overwrite_file(LABELS, TWO + b"cat 0.5 0.5 1 1\n"), 27, "Line 2 .* it must be numbers"),
    (write_yolo, overwrite_file(LABELS, TWO + b"-1 0.5 0.5 1 1\n"), 27, "Line 2 .* has the class -1, but "
        "“data.yaml” names 2"),
    (write_yolo, overwrite_file(LABELS, TWO + b"0.5 0.5 0.5 1 1\n"), 27, "Line 2 .* it must be numbers"),
    (write_yolo, overwrite_file(LABELS, TWO + b"0 5 5 12 12\n"), 27, "beyond 0 to 1; they are shares of width "
        "and height, not pix"),
    (write_yolo, overwrite_file(LABELS, b"\xff\xfe0"), 26, "A file of boxes: .*cat-0.txt” cannot be read"),
    (write_yolo, overwrite_file("train/images/cat-0.png", b"no image"), 26, "cat-0.png” cannot be decoded"),
    (write_parquet, replace_columns(label=[2]), 13, "Row 0 .* has the class 2, but the schema names 2 "
        "classes"),
    (write_parquet, replace_columns(image=[{"bytes": None, "path": "a.png"}]), 13, "Row 0 .* has no image in "
        "it"),
    (write_parquet, replace_columns(image=[None]), 13, "Row 0 .* has no image in it"),
    (write_imagefolder, append_to_file("train/metadata.jsonl", b"\n{broken"), 14, "Line 11 of "
        "“train/metadata.jsonl” is no JSON"),
    (write_imagefolder, append_to_file("train/metadata.jsonl", b"\n[1]"), 14, "Line 11 .* is no JSON object"),
    (write_imagefolder, append_to_file("train/metadata.jsonl", b'\n{"file_name": '
        b'"a.png"}'), 14, "Line 11 .* has no “label”"),
    (write_imagefolder, append_to_file("train/metadata.jsonl", b'\n{"file_name": "a.png", "label": [1, '
        b'2]}'), 14, "multi-label"),
    (write_imagefolder, append_to_file("train/metadata.jsonl", b'\n{"file_name": "a.png", "label": '
        b'1}'), 14, "that is not there"),
    (write_imagefolder, append_to_file("train/metadata.jsonl", b'\n{"file_name": "cat-0.png", "label": '
        b'"cat"}'), 14, "already"),
    (write_imagefolder, remove_file("train/cat-0.png"), 13, "names an image that is not there"),
    (write_shards, add_shard_with_member("bad.cls", b"\xff"), 14, "The sample “bad” of .*train-000002.tar” has "
        "“bad.cls”, which is no"),
    (write_shards, add_shard_with_member("bad.cls", b"7"), 14, "The sample “bad” .* has the class 7, but"),
    (write_shards, add_shard_with_member("bad.json", b'{"label": [0, 1]}'), 14, "multi-label"),
    (write_shards, add_shard_with_member("bad.json", b"{"), 14, "“bad.json”, which is no label"),
    (write_shards, damage_member_header, 13, "at byte .* has a damaged header"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "damage", "images", "said"), CASES)
def test_one_bad_entry_costs_one_entry(
    make: Callable[[Path], Path], damage: Damage, images: int, said: str, tmp_path: Path
) -> None:
    damage(make(tmp_path))
    batch = open_batch(tmp_path, max_bad=0.1)
    sent = list_member_names(batch)
    assert len(sent) - 1 == images and f"{images} images" in batch.describe()
    assert re.search(said, " ".join(batch.warnings)), batch.warnings
    with pytest.raises(PackError, match=r"cannot be used, more than 0 %: .*-o max_bad="):
        list_member_names(open_batch(tmp_path, max_bad=0))


@pytest.mark.parametrize("share", [2, -0.1, True, "5 %"])
def test_a_share_that_is_none_is_refused(share: object, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"is a share from 0 to 1, such as 0\.05"):
        open_batch(write_yolo(tmp_path), max_bad=share)


def test_up_to_a_twentieth_may_be_bad_and_one_always(tmp_path: Path) -> None:
    lines = [json.dumps({"file_name": f"{number}.png", "label": "cat"}) for number in range(60)]
    for number in range(58):
        write_file(tmp_path / f"{number}.png", make_noise_png(str(number)))
    write_file(tmp_path / "metadata.jsonl", "\n".join(lines).encode())
    (warning,) = open_batch(tmp_path).warnings
    assert (
        warning.startswith("2 entries of the imagefolder")
        and "Line 59 of “metadata.jsonl”" in warning
    )
    (tmp_path / "0.png").unlink()
    (tmp_path / "1.png").unlink()
    with pytest.raises(
        PackError, match=r"4 entries of 60 .* more than 5 %: .*; .* -o max_bad=0\.067"
    ):
        open_batch(tmp_path)
    write_file(tmp_path / "metadata.jsonl", "\n".join([*lines[2:5], "{"]).encode())
    assert "3 images" in open_batch(tmp_path).describe()


def test_a_class_that_loses_its_last_image_to_learn_is_told(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path)
    for number in range(5):
        write_file(folder / f"train/images/dog-{number}.png", b"no image")
    with pytest.raises(PackError, match="the class “dog” has test images but none to learn"):
        list_member_names(open_batch(folder, max_bad=0.9))


def list_member_names(batch: PackedBatch) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(batch.read_chunks()))) as tar:
        return tar.getnames()
