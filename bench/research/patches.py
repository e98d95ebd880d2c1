"""Accuracy lost where classes are merged or dropped without images, against learning them again.

    python -m bench.research.patches --data DIR [--images 60] [--epochs 5] [--rows "sums;der++"]

Each stream is learned twice through HTTP, by the same recipe and seed: once without keeping images
or features, so that the edit is a patch, and once with them, so that it is recomputed or learned
again. DIR holds `mnist` and `cifar100`. Each class has `--images` images to learn from and 50 held
out. Printed: the share of all held-out images that is right after the patch and after the exact way,
and the share of those of the merged class.
"""

import argparse
import io
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.research.closed_forms import read_idx_byte_array
from perennial import Perennial
from tools import service

Json = dict[str, Any]
Batch = Mapping[str, Sequence[bytes]]
HELD_OUT = 50
BASE = "perennial/resnet20-cifar100"
"""It has seen none of the classes, and images of its 32 pixels are quick."""
ROWS: dict[str, Json] = {
    "sums": {"name": "analytic"},
    "sums, ridge": {"name": "analytic", "head": "ridge"},
    "sums, lda": {"name": "analytic", "head": "lda"},
    "sums, ncm": {"name": "analytic", "head": "ncm"},
    "der++": {"name": "der++", "buffer": 200},
    "er": {"name": "er", "buffer": 200},
    "icarl": {"name": "icarl", "exemplars": 200},
    "slca": {"name": "slca"},
    "lwf": {"name": "lwf"},
    "finetune": {"name": "finetune"},
}


def main() -> None:
    """Measure edits of learned models on each data set, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, default=60, help="to learn from, of each class")
    parser.add_argument("--epochs", type=int, default=5, help="of methods that train")
    parser.add_argument("--streams", default="MNIST;CIFAR-100", help="some of these")
    parser.add_argument("--rows", default=";".join(ROWS), help="; ".join(ROWS))
    options = parser.parse_args()
    stream_loaders = {
        "MNIST": lambda: iterate_digit_batches(options.data / "mnist", options.images),
        "CIFAR-100": lambda: iterate_cifar_batches(options.data / "cifar100", options.images),
    }
    streams = {name: list(stream_loaders[name]()) for name in options.streams.split(";")}
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        for name, batches in streams.items():
            print(f"\n| {name} | edit | patch | exact | merged: patch | exact |")
            print("| --- | --- |" + " ---: |" * 4, flush=True)
            for row in options.rows.split(";"):
                for line in measure_edits_of_stream(client, name, row, batches, options.epochs):
                    print(line, flush=True)


def iterate_digit_batches(folder: Path, images: int) -> Iterator[Batch]:
    """Yield batches of two new digits each."""
    pixels, labels = (read_idx_byte_array(folder, f"train-{kind}") for kind in ("images", "labels"))
    for first in range(0, 10, 2):
        yield {
            str(digit): [
                encode_grey_png(one) for one in pixels[labels == digit][: images + HELD_OUT]
            ]
            for digit in (first, first + 1)
        }


def iterate_cifar_batches(folder: Path, images: int) -> Iterator[Batch]:
    """Yield batches of five new CIFAR-100 classes each."""
    for tens in ("60-69", "70-79"):
        by_class: dict[str, list[bytes]] = {}
        with zipfile.ZipFile(folder / f"classes_{tens}.zip") as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".png"):
                    rows = by_class.setdefault(name.split("/")[-2], [])
                    if len(rows) < images + HELD_OUT:
                        rows.append(archive.read(name))
        names = sorted(by_class)
        for part in (names[:5], names[5:]):
            yield {name: by_class[name] for name in part}


def encode_grey_png(pixels: np.ndarray) -> bytes:
    """Encode grey pixels as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def pack_batch_archive(batch: Batch) -> bytes:
    """Pack a batch, of which the last images of each class are held out."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for label, images in batch.items():
            for number, image in enumerate(images):
                part = "test" if number >= len(images) - HELD_OUT else "train"
                archive.writestr(f"{part}/{label}/{number:04}.png", image)
    return file.getvalue()


def list_measured_edits(batches: Sequence[Batch]) -> dict[str, list[Json]]:
    """Return the edits to measure, made one after the other."""
    first, second, *_, last = (list(batch) for batch in batches)
    return {
        "merge 2 of one batch": [{"merge": {"from": first[:2], "into": first[0]}}],
        "then 2 of two batches": [{"merge": {"from": [second[0], last[0]], "into": "both"}}],
        "then drop 1 of each of these": [{"drop": {"class": one[1]}} for one in (second, last)],
    }


def measure_edits_of_stream(
    client: Perennial, stream: str, row: str, batches: Sequence[Batch], epochs: int
) -> Iterator[str]:
    """Learn a stream with and without retained images, apply edits, and yield a table row for each."""
    models = {}
    for has_retained_images in (False, True):
        method = dict(ROWS[row])
        if method["name"] == "analytic":
            method["keep"] = "features" if has_retained_images else "sums"
        name = (
            f"{stream}-{row}-{has_retained_images}".replace(" ", "")
            .replace(",", "-")
            .replace("+", "p")
        )
        client.models.create(
            name.lower(),
            architecture={"name": "resnet20", "width": 32},
            base=BASE,
            recipe={"method": method, "epochs": epochs, "data_report": "off"},
            gate={"checks": "off"},
            training_data_days=7 if has_retained_images else 0,
        )
        for batch in batches:
            client.submit(name.lower(), pack_batch_archive(batch)).wait(3600)
        models[has_retained_images] = name.lower()
    for words, operations in list_measured_edits(batches).items():
        patched, exact = (
            apply_and_measure_edit(client, model, operations) for model in models.values()
        )
        figures = [patched[0], exact[0], patched[1], exact[1]]
        listed = " | ".join("–" if one is None else f"{one:.3f}" for one in figures)
        yield f"| {row} | {words} | {listed} |"


def apply_and_measure_edit(
    client: Perennial, model: str, operations: Sequence[Json]
) -> tuple[float | None, float | None]:
    """Apply an edit; return the new version's accuracy overall and on the merged class."""
    submitted_edit = client.edits.create(model, operations)
    client.job(submitted_edit.job).wait(3600)
    edit = client.edits.retrieve(model, submitted_edit.number)
    assert edit.version is not None, "its job has succeeded"
    target = next((one["merge"]["into"] for one in operations if "merge" in one), None)
    right = total = merged_right = merged_total = 0
    for cell in client.versions.results(model, edit.version):
        right, total = right + cell.correct, total + cell.total
        for label, (correct, count) in cell.per_class.items():
            if label == target:
                merged_right, merged_total = merged_right + correct, merged_total + count
    return (
        right / total if total else None,
        merged_right / merged_total if merged_total else None,
    )


if __name__ == "__main__":
    main()
