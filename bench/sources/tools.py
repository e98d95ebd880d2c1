"""Data sets that other tools write, read by them and by the client: the same images, labels and
crops?

    python -m venv tools
    tools/bin/pip install datasets webdataset pycocotools supervision opencv-python-headless \
        pillow pyarrow ./client
    PYTHONPATH=.:client tools/bin/python -m bench.sources.tools

Each line is one question, with `same` or `DIFFERENT` and the counts of both sides; it ends with
status 1 where one that must be the same differs. Boxes under EXIF are asked about in both readings,
since tools differ about them.
"""

import argparse
import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from perennial.pack import PackError, open_batch

LABELS = ["cat", "dog"]
Found = list[tuple[str, bytes]]
"""(label, pixels or bytes) of each image, sorted."""


def main() -> int:
    """Compare how the client and other libraries read the same data sets."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    ).parse_args()
    failed = 0
    for question in (
        compare_parquet,
        compare_multi_label_refusal,
        compare_imagefolder,
        compare_webdataset_shards,
        compare_concatenated_webdataset_shards,
        compare_coco_crops,
        compare_exif_rotated_coco_crops,
        compare_yolo_crops,
        compare_exif_rotated_yolo_crops,
    ):
        with tempfile.TemporaryDirectory() as folder:
            for what, theirs, ours, must in question(Path(folder)):
                is_same = theirs == ours
                failed += must and not is_same
                shown = (
                    f"{len(theirs)} and {len(ours)}"
                    if isinstance(theirs, list)
                    else f"{theirs!r} and {ours!r}"
                )
                note = "" if must or is_same else " (tools differ here)"
                print(f"{what}: {'same' if is_same else 'DIFFERENT'}{note}, {shown}", flush=True)
    return 1 if failed else 0


Answers = Iterator[tuple[str, Any, Any, bool]]
"""Tuples of what is asked, what the tool says, what the client says, and whether they must be the
same.
"""


def draw_photo_with_distinct_pixels(number: int, size: tuple[int, int] = (30, 20)) -> Image.Image:
    """Draw a photo whose pixels are all different."""
    image = Image.new("RGB", size)
    image.putdata(
        [((8 * x + number) % 256, 12 * y, 100) for y in range(size[1]) for x in range(size[0])]
    )
    return image


def encode_png_with_orientation(number: int, orientation: int = 1) -> bytes:
    """Encode a photo as PNG that EXIF rotates."""
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    draw_photo_with_distinct_pixels(number).save(out, "PNG", exif=exif)
    return out.getvalue()


def read_packed_images_and_labels(batch: Any) -> Found:
    """Read the labels and image bytes of a packed batch."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(batch.read_chunks()))) as tar:
        files = {one.name: file.read() for one in tar if (file := tar.extractfile(one))}
    rows = files.pop("labels.csv").decode().splitlines()[1:]
    return sorted((row.split(",")[1], files[row.split(",")[0]]) for row in rows)


def decode_packed_images_to_rgb(packed_images: Found) -> Found:
    """Decode the images of a packed batch; return their labels with RGB pixels."""
    return sorted(
        (label, Image.open(io.BytesIO(data)).convert("RGB").tobytes())
        for label, data in packed_images
    )


def compare_parquet(at: Path) -> Answers:
    """Compare parquet files of `datasets` with the client's reading of them."""
    import datasets

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=LABELS)}
    )
    rows = {
        "image": [{"bytes": encode_png_with_orientation(n), "path": f"{n}.png"} for n in range(8)],
        "label": [n % 2 for n in range(8)],
    }
    datasets.Dataset.from_dict(rows, features=features).to_parquet(at / "train.parquet")
    data_set = datasets.load_dataset(
        "parquet", data_files=str(at / "train.parquet"), split="train", cache_dir=str(at / "c")
    )
    theirs = sorted(
        (data_set.features["label"].int2str(row["label"]), row["image"].convert("RGB").tobytes())
        for row in data_set
    )
    yield (
        "datasets, parquet with ClassLabel",
        theirs,
        decode_packed_images_to_rgb(
            read_packed_images_and_labels(open_batch(at / "train.parquet"))
        ),
        True,
    )


def compare_multi_label_refusal(at: Path) -> Answers:
    """Check that the client refuses a list of ClassLabels as multi-label."""
    import datasets

    features = datasets.Features(
        {"image": datasets.Image(), "labels": datasets.List(datasets.ClassLabel(names=LABELS))}
    )
    rows = {
        "image": [{"bytes": encode_png_with_orientation(n), "path": None} for n in range(4)],
        "labels": [[0, 1], [1], [0], []],
    }
    datasets.Dataset.from_dict(rows, features=features).to_parquet(at / "train.parquet")
    try:
        outcome = open_batch(at / "train.parquet").describe()
    except PackError as error:
        outcome = "multi-label" if "multi-label" in str(error) else str(error)
    yield "datasets, a list of ClassLabels", "multi-label", outcome, True


def compare_imagefolder(at: Path) -> Answers:
    """Compare how `datasets` and the client read an image folder with metadata.jsonl."""
    import datasets

    (at / "in/train").mkdir(parents=True)
    lines = []
    for number in range(8):
        (at / f"in/train/{number}.png").write_bytes(encode_png_with_orientation(number))
        lines.append(json.dumps({"file_name": f"{number}.png", "label": LABELS[number % 2]}))
    (at / "in/train/metadata.jsonl").write_text("\n".join(lines))
    data_set = datasets.load_dataset(
        "imagefolder", data_dir=str(at / "in"), split="train", cache_dir=str(at / "c")
    )
    theirs = sorted((row["label"], row["image"].convert("RGB").tobytes()) for row in data_set)
    yield (
        "datasets, imagefolder",
        theirs,
        decode_packed_images_to_rgb(read_packed_images_and_labels(open_batch(at / "in"))),
        True,
    )


def write_webdataset_shards(at: Path) -> list[Path]:
    """Write two WebDataset shards by the library webdataset."""
    import webdataset

    at.mkdir(exist_ok=True)
    paths = []
    for shard in range(2):
        paths.append(at / f"train-{shard:06d}.tar")
        with webdataset.TarWriter(str(paths[-1])) as writer:
            for number in range(4):
                writer.write(
                    {
                        "__key__": f"{4 * shard + number:06d}",
                        "png": encode_png_with_orientation(number),
                        "cls": number % 2,
                    }
                )
    return paths


def read_shards_by_webdataset(paths: list[Path]) -> Found:
    """Read shards by the library webdataset; return labels and images."""
    import webdataset

    samples = webdataset.WebDataset([str(path) for path in paths], shardshuffle=False)
    return sorted((sample["cls"].decode(), sample["png"]) for sample in samples)


def compare_webdataset_shards(at: Path) -> Answers:
    """Compare how the client and the library webdataset read shards."""
    paths = write_webdataset_shards(at / "in")
    yield (
        "webdataset, two shards",
        read_shards_by_webdataset(paths),
        read_packed_images_and_labels(open_batch(at / "in")),
        True,
    )


def compare_concatenated_webdataset_shards(at: Path) -> Answers:
    """Compare the reading of two shards concatenated in one file."""
    paths = write_webdataset_shards(at / "in")
    (at / "both.tar").write_bytes(b"".join(path.read_bytes() for path in paths))
    with tarfile.open(at / "both.tar", ignore_zeros=True) as tar:
        members = sorted(tar.extractfile(one).read() for one in tar if one.name.endswith(".png"))  # type: ignore[union-attr]
    ours = read_packed_images_and_labels(open_batch(at / "both.tar"))
    yield (
        "webdataset, shards in one file, beside both",
        read_shards_by_webdataset(paths),
        ours,
        True,
    )
    yield "tar --ignore-zeros, shards in one file", members, sorted(data for _, data in ours), True
    yield (
        "webdataset, shards in one file",
        read_shards_by_webdataset([at / "both.tar"]),
        ours,
        False,
    )


BOX = (3, 4, 10, 6)
AREA = (BOX[0], BOX[1], BOX[0] + BOX[2], BOX[1] + BOX[3])


def write_coco_photos(at: Path, orientation: int, size: tuple[int, int] | None) -> Path:
    """Write four photos with a COCO bounding box each."""
    at.mkdir(exist_ok=True)
    document: dict[str, Any] = {"images": [], "annotations": []}
    document["categories"] = [
        {"id": 7 + number, "name": label} for number, label in enumerate(LABELS)
    ]
    for number in range(4):
        (at / f"{number}.png").write_bytes(encode_png_with_orientation(number, orientation))
        sizes = {} if size is None else {"width": size[0], "height": size[1]}
        document["images"].append({"id": number, "file_name": f"{number}.png", **sizes})
        document["annotations"].append(
            {
                "id": number,
                "image_id": number,
                "category_id": 7 + number % 2,
                "bbox": BOX,
                "area": 60,
                "iscrowd": 0,
            }
        )
    (at / "annotations.json").write_text(json.dumps(document))
    return at


def cut_crops_by_pycocotools(at: Path, load: Callable[[Path], Image.Image]) -> Found:
    """Cut out COCO boxes by pycocotools, as the expected crops."""
    from pycocotools.coco import COCO

    api = COCO(str(at / "annotations.json"))
    labelled_crops = []
    for one in api.loadAnns(api.getAnnIds()):
        x, y, width, height = map(int, one["bbox"])
        image = load(at / api.loadImgs(one["image_id"])[0]["file_name"])
        label = api.loadCats(one["category_id"])[0]["name"]
        labelled_crops.append(
            (label, image.crop((x, y, x + width, y + height)).convert("RGB").tobytes())
        )
    return sorted(labelled_crops)


def compare_coco_crops(at: Path) -> Answers:
    """Compare the client's crops of COCO boxes with pycocotools'."""
    write_coco_photos(at / "in", 1, (30, 20))
    yield (
        "pycocotools, crops",
        cut_crops_by_pycocotools(at / "in", Image.open),
        decode_packed_images_to_rgb(read_packed_images_and_labels(open_batch(at / "in"))),
        True,
    )


def compare_exif_rotated_coco_crops(at: Path) -> Answers:
    """Compare crops of COCO boxes in photos that EXIF rotates."""
    write_coco_photos(at / "stored", 6, (30, 20))
    theirs = cut_crops_by_pycocotools(
        at / "stored", Image.open
    )  # as torchvision's CocoDetection opens them
    upright = sorted(
        (
            label,
            Image.frombytes("RGB", BOX[2:], data).transpose(Image.Transpose.ROTATE_270).tobytes(),
        )
        for label, data in theirs
    )
    yield (
        "pycocotools, turned, sizes as stored",
        upright,
        decode_packed_images_to_rgb(read_packed_images_and_labels(open_batch(at / "stored"))),
        True,
    )
    write_coco_photos(at / "turned", 6, (20, 30))
    theirs = cut_crops_by_pycocotools(
        at / "turned", lambda path: ImageOps.exif_transpose(Image.open(path))
    )
    yield (
        "pycocotools, turned, sizes as turned",
        theirs,
        decode_packed_images_to_rgb(read_packed_images_and_labels(open_batch(at / "turned"))),
        True,
    )


def write_yolo_photos(at: Path, orientation: int) -> Path:
    """Write four photos with a YOLO bounding box each."""
    (at / "train/images").mkdir(parents=True)
    (at / "train/labels").mkdir()
    width, height = (20, 30) if orientation == 6 else (30, 20)
    x, y, w, h = BOX
    for number in range(4):
        (at / f"train/images/{number}.png").write_bytes(
            encode_png_with_orientation(number, orientation)
        )
        shares = f"{(x + w / 2) / width} {(y + h / 2) / height} {w / width} {h / height}"
        (at / f"train/labels/{number}.txt").write_text(f"{number % 2} {shares}\n")
    (at / "data.yaml").write_text(f"train: train/images\nnames: {LABELS}\n")
    return at


def cut_crops_by_supervision(at: Path) -> Found:
    """Cut out YOLO boxes by the library supervision, as the expected crops."""
    import supervision

    data = supervision.DetectionDataset.from_yolo(
        str(at / "train/images"), str(at / "train/labels"), str(at / "data.yaml")
    )
    labelled_crops = []
    for _, image, boxes in data:
        for (left, top, right, bottom), kind in zip(boxes.xyxy, boxes.class_id, strict=True):
            crop = image[round(top) : round(bottom), round(left) : round(right), ::-1]
            labelled_crops.append((data.classes[kind], crop.tobytes()))
    return sorted(labelled_crops)


def compare_yolo_crops(at: Path) -> Answers:
    """Compare the client's crops of YOLO boxes with supervision's."""
    write_yolo_photos(at / "in", 1)
    yield (
        "supervision, crops of YOLO",
        cut_crops_by_supervision(at / "in"),
        decode_packed_images_to_rgb(read_packed_images_and_labels(open_batch(at / "in"))),
        True,
    )


def compare_exif_rotated_yolo_crops(at: Path) -> Answers:
    """Compare crops of YOLO boxes in photos that EXIF rotates."""
    write_yolo_photos(at / "in", 6)
    theirs = cut_crops_by_supervision(at / "in")
    yield (
        "supervision, turned, boxes=turned",
        theirs,
        decode_packed_images_to_rgb(
            read_packed_images_and_labels(open_batch(at / "in", boxes="turned"))
        ),
        True,
    )
    yield (
        "supervision, turned, as it comes",
        theirs,
        decode_packed_images_to_rgb(read_packed_images_and_labels(open_batch(at / "in"))),
        False,
    )


if __name__ == "__main__":
    sys.exit(main())
