"""The same images as every kind of source, each written as its own tools write it."""

import csv
import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES = ["cat", "dog"]
BOXES = {"cat": [(1, 2, 8, 9), (10, 10, 8, 6)], "dog": [(0, 0, 6, 6), (9, 3, 7, 12)]}
"""Left, top, width and height."""
SCENE = 20
"""Pixels of the side of an image with boxes."""


class Sample(NamedTuple):
    """One image: its part, label, file name and file."""

    part: str
    label: str
    name: str
    data: bytes


def make_noise_png(seed: str, side: int = 8) -> bytes:
    """Make an image of noise as PNG."""
    out = io.BytesIO()
    Image.frombytes("RGB", (side, side), random.Random(seed).randbytes(3 * side * side)).save(
        out, "PNG"
    )
    return out.getvalue()


def make_samples(side: int = 8) -> list[Sample]:
    """Make images of two classes, sorted as their files are: `part/label/name`."""
    return [
        Sample(part, label, f"{label}-{number}.png", make_noise_png(f"{part}{label}{number}", side))
        for part, count in (("test", 2), ("train", 5))
        for label in CLASSES
        for number in range(count)
    ]


def write_class_folders(at: Path) -> Path:
    """Write train/<class>/… and test/<class>/…."""
    for sample in make_samples():
        write_file(at / sample.part / sample.label / sample.name, sample.data)
    return at


def write_csv_list(at: Path) -> Path:
    """Write a list of paths outside class folders as Excel writes it, with a byte order mark and
    CRLF line ends.
    """
    rows = [["path", "label", "split"]]
    for sample in make_samples():
        path = f"all images/{sample.part}, {sample.name}"
        write_file(at / path, sample.data)
        rows.append([path, sample.label, sample.part])
    with (at / "list.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(rows)
    return at / "list.csv"


def write_labelled_folder(at: Path) -> Path:
    """Write a folder with a labels.csv."""
    write_csv_list(at).rename(at / "labels.csv")
    return at


def write_shards(at: Path) -> Path:
    """Write WebDataset shards: `<key>.png` and a number in `<key>.cls`, names in classnames.txt."""
    write_file(at / "classnames.txt", "\n".join(CLASSES).encode())
    for shard, part, rows in (("train-000000", "train", slice(0, 4)), ("train-000001", "train", slice(4, None)),
                              ("val-000000", "test", slice(None))):  # fmt: skip
        with tarfile.open(at / f"{shard}.tar", "w") as tar:
            for number, sample in enumerate([s for s in make_samples() if s.part == part][rows]):
                add_member(tar, f"{number:06d}.cls", str(CLASSES.index(sample.label)).encode())
                add_member(tar, f"{number:06d}.png", sample.data)
    return at


def write_json_shards(at: Path) -> Path:
    """Write shards compressed with gzip, with names of classes in JSON."""
    at.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        with tarfile.open(at / f"birds-{part}-0.tar.gz", "w:gz") as tar:
            for sample in (s for s in make_samples() if s.part == part):
                key = f"{sample.part}/{sample.name.removesuffix('.png')}"
                add_member(tar, f"{key}.png", sample.data)
                add_member(tar, f"{key}.json", json.dumps({"label": sample.label, "w": 8}).encode())
    return at


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_parquet(at: Path) -> Path:
    """Write the files that `datasets` pushes to the Hub: bytes and path, ClassLabel, several row
    groups and files.
    """
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {"image": {"_type": "Image"}, "label": {"names": CLASSES, "_type": "ClassLabel"}}
    schema = pa.schema(
        [("image", kind), ("label", pa.int64())],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    for file, part in (("train-00000-of-00001", "train"), ("validation-00000-of-00001", "test")):
        rows = [
            {"image": {"bytes": s.data, "path": s.name}, "label": CLASSES.index(s.label)}
            for s in make_samples()
            if s.part == part
        ]
        (at / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.Table.from_pylist(rows, schema), at / f"data/{file}.parquet", row_group_size=3
        )
    return at


def write_imagefolder(at: Path) -> Path:
    """Write Hugging Face's imagefolder with metadata.jsonl in each part."""
    for part in ("train", "test"):
        own = [s for s in make_samples() if s.part == part]
        for sample in own:
            write_file(at / part / sample.name, sample.data)
        lines = [json.dumps({"file_name": s.name, "label": s.label}) for s in reversed(own)]
        write_file(at / part / "metadata.jsonl", "\n".join(lines).encode())
    return at


def build_image_mapping(at: Path) -> dict[str, dict[str, list[bytes | Path]]]:
    """Build a mapping of parts and labels to images, some as bytes, some as paths."""
    found: dict[str, dict[str, list[bytes | Path]]] = {}
    for number, sample in enumerate(make_samples()):
        path = at / sample.part / sample.name
        write_file(path, sample.data)
        images = found.setdefault(sample.part, {}).setdefault(sample.label, [])
        images.append(path if number % 2 else sample.data)
    return found


def write_coco(at: Path, boxes: bool = True) -> Path:
    """Write `annotations/instances_<part>.json` and the images beside it, with `boxes` scenes of
    two boxes, else images of one box.
    """
    for part in ("train", "test"):
        document: dict[str, list[dict[str, object]]] = {"images": [], "annotations": []}
        document["categories"] = [
            {"id": 10 * (n + 1), "name": name} for n, name in enumerate(CLASSES)
        ]
        own = [s for s in make_samples(SCENE if boxes else 8) if s.part == part]
        for number, s in enumerate(own):
            write_file(at / part / s.name, s.data)
            side = SCENE if boxes else 8
            document["images"].append(
                {"id": number, "file_name": s.name, "width": side, "height": side}
            )
            for box in BOXES[s.label] if boxes else [(0, 0, 8, 8)]:
                category = 10 * (CLASSES.index(s.label) + 1)
                identity = len(document["annotations"])
                box_of = {
                    "id": identity,
                    "image_id": number,
                    "category_id": category,
                    "bbox": [*map(float, box)],
                }
                document["annotations"].append(box_of)
        write_file(at / f"annotations/instances_{part}.json", json.dumps(document).encode())
    return at


def write_coco_with_single_boxes(at: Path) -> Path:
    """Write images with one box each as COCO."""
    return write_coco(at, boxes=False)


def write_yolo(at: Path) -> Path:
    """Write scenes of two boxes as Ultralytics does, with paths in data.yaml as Roboflow writes
    them.
    """
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CLASSES))
    text = (
        f"# made for a test\ntrain: ../train/images\nval: ../valid/images  # held out\n\nnc: "
        f"2\nnames:\n{names}"
    )
    write_file(at / "data.yaml", text.encode())
    for s in make_samples(SCENE):
        part = "train" if s.part == "train" else "valid"
        write_file(at / part / "images" / s.name, s.data)
        lines = [
            f"{CLASSES.index(s.label)} {(x + w / 2) / SCENE} {(y + h / 2) / SCENE} {w / SCENE} "
            f"{h / SCENE}"
            for x, y, w, h in BOXES[s.label]
        ]
        write_file(at / part / "labels" / s.name.replace(".png", ".txt"), "\n".join(lines).encode())
    return at


def write_crops(at: Path) -> Path:
    """Write the boxes of the same scenes, cropped here, as a folder of classes."""
    for s in make_samples(SCENE):
        with Image.open(io.BytesIO(s.data)) as scene:
            for number, (x, y, w, h) in enumerate(BOXES[s.label]):
                out = io.BytesIO()
                scene.crop((x, y, x + w, y + h)).save(out, "PNG")
                write_file(
                    at / s.part / s.label / f"{s.name.removesuffix('.png')}-{number}.png",
                    out.getvalue(),
                )
    return at


def write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


KINDS: dict[str, tuple[Callable[[Path], object], dict[str, object]]] = {
    "folder": (write_class_folders, {}),
    "csv": (write_csv_list, {}),
    "labels.csv": (write_labelled_folder, {}),
    "webdataset": (write_shards, {}),
    "webdataset-json": (write_json_shards, {}),
    "parquet": (write_parquet, {}),
    "imagefolder": (write_imagefolder, {}),
    "mapping": (build_image_mapping, {}),
    "coco-whole": (write_coco_with_single_boxes, {"whole": True}),
    "coco": (write_coco, {}),
    "yolo": (write_yolo, {}),
}
"""Name → what writes it, and the options to open it with."""
CROPS = ("coco", "yolo")
"""Those whose images are crops of the scenes."""
