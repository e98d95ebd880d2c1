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


def png(seed: str, side: int = 8) -> bytes:
    """An image of noise."""
    out = io.BytesIO()
    Image.frombytes("RGB", (side, side), random.Random(seed).randbytes(3 * side * side)).save(
        out, "PNG"
    )
    return out.getvalue()


def samples(side: int = 8) -> list[Sample]:
    """Images of two classes, sorted as their files are: `part/label/name`."""
    return [
        Sample(part, label, f"{label}-{number}.png", png(f"{part}{label}{number}", side))
        for part, count in (("test", 2), ("train", 5))
        for label in CLASSES
        for number in range(count)
    ]


def folder(at: Path) -> Path:
    """train/<class>/… and test/<class>/…."""
    for sample in samples():
        write(at / sample.part / sample.label / sample.name, sample.data)
    return at


def csv_list(at: Path) -> Path:
    """A list of paths outside class folders, as Excel writes it: with a byte order mark
    and \\r\\n.
    """
    rows = [["path", "label", "split"]]
    for sample in samples():
        path = f"all images/{sample.part}, {sample.name}"
        write(at / path, sample.data)
        rows.append([path, sample.label, sample.part])
    with (at / "list.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(rows)
    return at / "list.csv"


def own_format(at: Path) -> Path:
    """A folder with a labels.csv."""
    csv_list(at).rename(at / "labels.csv")
    return at


def shards(at: Path) -> Path:
    """WebDataset: `<key>.png` and a number in `<key>.cls`; names in classnames.txt."""
    write(at / "classnames.txt", "\n".join(CLASSES).encode())
    for shard, part, rows in (("train-000000", "train", slice(0, 4)), ("train-000001", "train", slice(4, None)),
                              ("val-000000", "test", slice(None))):  # fmt: skip
        with tarfile.open(at / f"{shard}.tar", "w") as tar:
            for number, sample in enumerate([s for s in samples() if s.part == part][rows]):
                member(tar, f"{number:06d}.cls", str(CLASSES.index(sample.label)).encode())
                member(tar, f"{number:06d}.png", sample.data)
    return at


def json_shards(at: Path) -> Path:
    """Shards that are packed by gzip, with names of classes in JSON."""
    at.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        with tarfile.open(at / f"birds-{part}-0.tar.gz", "w:gz") as tar:
            for sample in (s for s in samples() if s.part == part):
                key = f"{sample.part}/{sample.name.removesuffix('.png')}"
                member(tar, f"{key}.png", sample.data)
                member(tar, f"{key}.json", json.dumps({"label": sample.label, "w": 8}).encode())
    return at


def member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def parquet(at: Path) -> Path:
    """The files that `datasets` pushes to the Hub: bytes and path, ClassLabel, several row groups
    and files.
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
            for s in samples()
            if s.part == part
        ]
        (at / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.Table.from_pylist(rows, schema), at / f"data/{file}.parquet", row_group_size=3
        )
    return at


def imagefolder(at: Path) -> Path:
    """Hugging Face's imagefolder with metadata.jsonl in each part."""
    for part in ("train", "test"):
        own = [s for s in samples() if s.part == part]
        for sample in own:
            write(at / part / sample.name, sample.data)
        lines = [json.dumps({"file_name": s.name, "label": s.label}) for s in reversed(own)]
        write(at / part / "metadata.jsonl", "\n".join(lines).encode())
    return at


def mapping(at: Path) -> dict[str, dict[str, list[bytes | Path]]]:
    """Some images as bytes, some as paths."""
    found: dict[str, dict[str, list[bytes | Path]]] = {}
    for number, sample in enumerate(samples()):
        path = at / sample.part / sample.name
        write(path, sample.data)
        images = found.setdefault(sample.part, {}).setdefault(sample.label, [])
        images.append(path if number % 2 else sample.data)
    return found


def coco(at: Path, boxes: bool = True) -> Path:
    """`annotations/instances_<part>.json` and images beside; with `boxes` scenes of two boxes, else
    one each.
    """
    for part in ("train", "test"):
        document: dict[str, list[dict[str, object]]] = {"images": [], "annotations": []}
        document["categories"] = [
            {"id": 10 * (n + 1), "name": name} for n, name in enumerate(CLASSES)
        ]
        own = [s for s in samples(SCENE if boxes else 8) if s.part == part]
        for number, s in enumerate(own):
            write(at / part / s.name, s.data)
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
        write(at / f"annotations/instances_{part}.json", json.dumps(document).encode())
    return at


def coco_whole(at: Path) -> Path:
    """Each image with one box."""
    return coco(at, boxes=False)


def yolo(at: Path) -> Path:
    """Scenes of two boxes as Ultralytics has them, the paths of data.yaml as Roboflow
    writes them.
    """
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CLASSES))
    text = (
        f"# made for a test\ntrain: ../train/images\nval: ../valid/images  # held out\n\nnc: "
        f"2\nnames:\n{names}"
    )
    write(at / "data.yaml", text.encode())
    for s in samples(SCENE):
        part = "train" if s.part == "train" else "valid"
        write(at / part / "images" / s.name, s.data)
        lines = [
            f"{CLASSES.index(s.label)} {(x + w / 2) / SCENE} {(y + h / 2) / SCENE} {w / SCENE} "
            f"{h / SCENE}"
            for x, y, w, h in BOXES[s.label]
        ]
        write(at / part / "labels" / s.name.replace(".png", ".txt"), "\n".join(lines).encode())
    return at


def crops(at: Path) -> Path:
    """The boxes of the same scenes, cut out by hand, as a folder of classes."""
    for s in samples(SCENE):
        with Image.open(io.BytesIO(s.data)) as scene:
            for number, (x, y, w, h) in enumerate(BOXES[s.label]):
                out = io.BytesIO()
                scene.crop((x, y, x + w, y + h)).save(out, "PNG")
                write(
                    at / s.part / s.label / f"{s.name.removesuffix('.png')}-{number}.png",
                    out.getvalue(),
                )
    return at


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


KINDS: dict[str, tuple[Callable[[Path], object], dict[str, object]]] = {
    "folder": (folder, {}),
    "csv": (csv_list, {}),
    "labels.csv": (own_format, {}),
    "webdataset": (shards, {}),
    "webdataset-json": (json_shards, {}),
    "parquet": (parquet, {}),
    "imagefolder": (imagefolder, {}),
    "mapping": (mapping, {}),
    "coco-whole": (coco_whole, {"whole": True}),
    "coco": (coco, {}),
    "yolo": (yolo, {}),
}
"""Name → what writes it, and the options to open it with."""
CROPS = ("coco", "yolo")
"""Those whose images are crops of the scenes."""
