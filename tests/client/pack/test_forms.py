"""Forms in which tools really write what is read: turned photos, numbers as floats, columns of many
types.
"""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps
from sources import (
    BOXES,
    CLASSES,
    SCENE,
    add_member,
    make_noise_png,
    make_samples,
    write_file,
    write_shards,
    write_yolo,
)

from perennial.pack import PackedBatch, PackError, open_batch
from perennial.pack.kinds import detect_data_set_kind


def read_members(batch: PackedBatch) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(batch.read_chunks()))) as tar:
        return {m.name: file.read() for m in tar if (file := tar.extractfile(m))}


def write_rotated_photo(at: Path, orientation: int) -> Image.Image:
    """Write a photo of 30 × 20 stored pixels, all different, that EXIF rotates. Return it upright."""
    stored = Image.new("RGB", (30, 20))
    stored.putdata([(8 * x, 12 * y, 100) for y in range(20) for x in range(30)])
    exif = Image.Exif()
    exif[0x0112] = orientation
    at.parent.mkdir(parents=True, exist_ok=True)
    stored.save(at, exif=exif)
    with Image.open(at) as again:
        return ImageOps.exif_transpose(again)


def write_single_coco(at: Path, box: list[int], **size: int) -> Path:
    document = {
        "images": [{"id": 1, "file_name": "a.png", **size}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": box}],
    }
    write_file(at / "coco.json", json.dumps(document).encode())
    return at


def write_single_yolo(at: Path, box: list[float]) -> Path:
    write_file(at / "data.yaml", b"train: .\nnames: [cat]\n")
    write_file(at / "a.txt", f"0 {' '.join(map(str, box))}\n".encode())
    return at


def read_single_crop(batch: PackedBatch) -> Image.Image:
    (name,) = [name for name in read_members(batch) if name.endswith(".png")]
    return Image.open(io.BytesIO(read_members(batch)[name]))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("counted", ["stored", "turned", "nothing", "stored size", "turned size"])
def test_crops_of_a_turned_photo_are_its_boxes_upright(
    counted: str, orientation: int, tmp_path: Path
) -> None:
    upright = write_rotated_photo(tmp_path / "a.png", orientation)
    size = upright.size if counted == "turned size" else (30, 20)
    said = dict(zip(("width", "height"), size, strict=True)) if "size" in counted else {}
    options = {"boxes": counted} if counted in ("stored", "turned") else {}
    is_stored = counted != "turned" and not (counted == "turned size" and size != (30, 20))
    box = (2, 3, 9, 7)  # x, y, width, height
    area = (box[0], box[1], box[0] + box[2], box[1] + box[3])
    with Image.open(tmp_path / "a.png") as stored:
        expected = stored.crop(area) if is_stored else upright.crop(area)
    if is_stored and orientation > 1:
        turns = {
            2: 0,
            3: 3,
            4: 1,
            5: 5,
            6: 4,
            7: 6,
            8: 2,
        }  # Image.Transpose, from the EXIF standard
        expected = expected.transpose(Image.Transpose(turns[orientation]))
    batch = open_batch(write_single_coco(tmp_path, list(box), **said), **options)
    assert read_single_crop(batch).tobytes() == expected.convert("RGB").tobytes()
    is_settled = orientation == 1 or ("size" in counted and upright.size != (30, 20))
    assert bool(batch.warnings) == (not is_settled)


@pytest.mark.parametrize(("counted", "option"), [("stored", {}), ("turned", {"boxes": "turned"})])
def test_yolo_counts_stored_pixels_unless_it_is_said(
    counted: str, option: dict[str, str], tmp_path: Path
) -> None:
    upright = write_rotated_photo(tmp_path / "a.png", 6)
    batch = open_batch(write_single_yolo(tmp_path, [0.25, 0.25, 0.5, 0.5]), **option)
    quarter = (10, 0, 20, 15) if counted == "stored" else (0, 0, 10, 15)  # turned by 90° clockwise
    assert read_single_crop(batch).tobytes() == upright.crop(quarter).tobytes()
    other = "turned" if counted == "stored" else "stored"
    assert batch.warnings == [
        "1 image is turned by EXIF, and nothing says of which pixels the boxes are: they were "
        "taken as "
        f"{counted}. If the crops are wrong: -o boxes={other}."
    ]


def test_an_unknown_count_of_boxes_is_refused(tmp_path: Path) -> None:
    write_rotated_photo(tmp_path / "a.png", 6)
    with pytest.raises(PackError, match="no boxes=upright; possible are stored and turned"):
        open_batch(write_single_yolo(tmp_path, [0.5, 0.5, 1, 1]), boxes="upright")


@pytest.mark.parametrize(
    "form",
    [
        "{n}.0 {x:.6f} {y:.6f} {w:.6f} {h:.6f}",
        "{n:.18e} {x:.18e} {y:.18e} {w:.18e} {h:.18e}",  # numpy.savetxt
        "{n} {x} {y} {w} {h} 0.873",  # predictions with their confidence
        "\ufeff{n} {x} {y} {w} {h}",
        "{n}\t{x}  {y} {w} {h} \r",
    ],
)
def test_lines_of_yolo_as_tools_write_them(form: str, tmp_path: Path) -> None:
    plain = read_members(open_batch(write_yolo(tmp_path)))
    for s in (s for s in make_samples(SCENE) if s.part == "train"):
        lines = [
            form.format(
                n=CLASSES.index(s.label),
                x=(x + w / 2) / SCENE,
                y=(y + h / 2) / SCENE,
                w=w / SCENE,
                h=h / SCENE,
            ).removeprefix("\ufeff" if number else "")
            for number, (x, y, w, h) in enumerate(BOXES[s.label])
        ]
        write_file(
            tmp_path / "train/labels" / s.name.replace(".png", ".txt"), "\n".join(lines).encode()
        )
    batch = open_batch(tmp_path)
    assert read_members(batch) == plain and batch.warnings == []


IMAGES = [make_noise_png("1"), make_noise_png("2")]
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
ROWS = [{"bytes": data, "path": None} for data in IMAGES]


def write_image_table(at: Path, image: pa.Array, label: pa.Array, **more: pa.Array) -> Path:
    pq.write_table(pa.table({"image": image, "label": label, **more}), at / "some.parquet")
    return at / "some.parquet"


@pytest.mark.parametrize(
    ("label", "classes"),
    [
        (pa.array([0, 1], pa.uint8()), "“0” 1, “1” 1"),
        (pa.array([0.0, 1.0]), "“0” 1, “1” 1"),
        (pa.array(["print", "int"]), "“int” 1, “print” 1"),
        (pa.array(["a", "b"], pa.large_string()), "“a” 1, “b” 1"),
        (pa.array(["a", "b"]).dictionary_encode(), "“a” 1, “b” 1"),
    ],
)
def test_labels_of_parquet_by_their_type(label: pa.Array, classes: str, tmp_path: Path) -> None:
    assert (
        f"({classes})"
        in open_batch(write_image_table(tmp_path, pa.array(ROWS, STRUCT), label)).describe()
    )


@pytest.mark.parametrize(
    "image",
    [
        pa.array(IMAGES, pa.binary()),
        pa.array(IMAGES, pa.large_binary()),
        pa.array(ROWS, STRUCT),
        pa.array([{"bytes": data} for data in IMAGES], pa.struct([("bytes", pa.large_binary())])),
    ],
)
def test_images_of_parquet_by_their_type(image: pa.Array, tmp_path: Path) -> None:
    sent = read_members(open_batch(write_image_table(tmp_path, image, pa.array(["a", "b"]))))
    assert [data for name, data in sent.items() if name != "labels.csv"] == IMAGES


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (
            pa.array([[0, 1], [1]]),
            r"is list<.*int64>: several labels for one image \(multi-label\)",
        ),
        (pa.array([["a"], []]), "is list<.*string>: several labels for one image"),
        (pa.array([{"int": 1}, {"int": 2}]), "is struct<.*>: several labels"),
        (pa.array([True, False]), "is bool; labels are numbers or names"),
        (pa.array([b"int", b"string"]), "is binary; labels are numbers or names"),
    ],
)
def test_labels_of_other_types_are_refused(label: pa.Array, said: str, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=said):
        open_batch(write_image_table(tmp_path, pa.array(ROWS, STRUCT), label))


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (pa.array(["a.png", "b.png"]), "is string; images are bytes of files"),
        (pa.array([[b"1"], [b"2"]]), "is list<.*binary>; images are bytes"),
        (pa.array([{"binary": "a"}] * 2), "has no bytes, but “binary"),
        (pa.array([{"bytes": "a", "path": "b"}] * 2), r"has no bytes, but “bytes \(string\)”"),
    ],
)
def test_images_of_other_types_are_refused(image: pa.Array, said: str, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=said):
        open_batch(write_image_table(tmp_path, image, pa.array(["a", "b"])))


def test_a_column_of_one_label_is_offered_beside_one_of_several(tmp_path: Path) -> None:
    image, labels = pa.array(ROWS, STRUCT), pa.array([[0, 1], [1]])
    file = write_image_table(tmp_path, image, labels, main=pa.array([0, 1]))
    with pytest.raises(PackError, match="or name one of “main” with -o label="):
        open_batch(file)
    assert "2 images" in open_batch(file, label="main").describe()


@pytest.mark.parametrize("packed", ["", ":gz"])
def test_tars_written_one_after_another_are_read_one_after_another(
    packed: str, tmp_path: Path
) -> None:
    plain = read_members(open_batch(write_shards(tmp_path / "two")))
    write_shards(tmp_path / "one")
    second = tmp_path / "one/train-000001.tar"
    whole = (tmp_path / "one/train-000000.tar").read_bytes() + second.read_bytes()
    if packed:
        first = len((tmp_path / "one/train-000000.tar").read_bytes())
        whole = gzip.compress(whole[:first]) + gzip.compress(whole[first:])
    write_file(tmp_path / "one/train-000000.tar", whole)
    second.unlink()
    batch = open_batch(tmp_path / "one", kind="webdataset")
    assert read_members(batch) == plain and batch.warnings == []
    assert b"".join(batch.read_chunks(9000)) == b"".join(batch.read_chunks())[9000:]


def test_samples_of_one_key_in_two_tars_stay_two(tmp_path: Path) -> None:
    whole = b""
    for number in range(2):
        with tarfile.open(tmp_path / "part", "w") as tar:
            add_member(tar, "0.cls", b"cat" if number else b"dog")
            add_member(tar, "0.png", IMAGES[number])
        whole += (tmp_path / "part").read_bytes()
    write_file(tmp_path / "both.tar", whole)
    assert detect_data_set_kind(tmp_path / "both.tar") == "webdataset"
    assert "(“cat” 1, “dog” 1)" in open_batch(tmp_path / "both.tar").describe()


def test_what_follows_a_tar_and_is_none_is_said(tmp_path: Path) -> None:
    write_shards(tmp_path)
    file = tmp_path / "val-000000.tar"
    file.write_bytes(file.read_bytes() + b"a signature")
    (warning,) = open_batch(tmp_path).warnings
    assert "has a damaged header, or is no part of a tar" in warning


def test_a_crop_is_upright_in_every_kind(tmp_path: Path) -> None:
    upright = write_rotated_photo(tmp_path / "a.png", 8)
    for name, make in {
        "coco": lambda: write_single_coco(tmp_path, [0, 0, 30, 20], width=30, height=20),
        "yolo": lambda: write_single_yolo(tmp_path, [0.5, 0.5, 1, 1]),
    }.items():
        assert read_single_crop(open_batch(make(), kind=name)).tobytes() == upright.tobytes()
