"""Perennial's default beside the usual ways to update a classifier, on streams that need no
download.

    python -m bench.research.compare [--data DIR] [--photos DIR] [--images 20] [--held-out 30]
        [--epochs 5]

The streams are scikit-learn's digits; with `--data`, which holds `mnist/` and `cifar100/`, MNIST's
digits and ten classes of CIFAR-100 that the packaged base was not trained on; with `--photos`, a
folder of class folders. Each is a folder for `perennial compare-methods`, whose rows these are: up
to `--images` of a class to learn from and `--held-out` to measure on, in five batches of new
classes (photos: three). Prints a table for each stream, as Markdown. `--without full` makes it
shorter.
"""

import argparse
import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from bench.experiment.data import read_idx_array
from tools import digits
from tools.compare_methods.comparison import ComparisonOptions, compare_methods, count_usable_cores
from tools.compare_methods.outcome import WORDS, render_outcome_table
from tools.compare_methods.split import SplitSettings

CIFAR_FILE = "classes_60-69.zip"
"""Classes that `perennial/resnet20-cifar100` was not trained on."""
MNIST_IMAGES = 200
"""Of each class and part that are written as PNG; a sample of them is used."""


@dataclass(frozen=True)
class ComparedDataSet:
    """A folder of class folders to compare methods on, and the batches of its classes."""

    name: str
    folder: Path
    batches: int


def main() -> None:
    """Compare update methods on each data set, print a table each, and write all figures."""
    options = _parse_arguments()
    rows = tuple(row for row in WORDS if row not in options.without)
    torch.set_num_threads(count_usable_cores())
    documents = {}
    with tempfile.TemporaryDirectory() as scratch:
        for stream in write_compared_data_sets(Path(scratch), options.data, options.photos):
            sample = SplitSettings(stream.batches, options.images, options.held_out, options.seed)
            chosen = ComparisonOptions(sample, options.epochs, rows=rows, model=options.model)
            comparison = compare_methods(stream.folder, chosen, _print_to_stderr)
            documents[stream.name] = comparison.document
            learned, held_out = comparison.document["learned"], comparison.document["held_out"]
            print(
                f"\n{stream.name}: {len(comparison.document['classes'])} classes in {stream.batches} "
                f"batches, {learned:,} images to learn from, {held_out:,} held "
                f"out\n\n{render_outcome_table(comparison.outcomes)}",
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps(documents, ensure_ascii=False, indent=2) + "\n")


def write_compared_data_sets(
    scratch: Path, data: Path | None, photos: Path | None
) -> Iterator[ComparedDataSet]:
    """Write each available data set as a folder of class folders, and yield it."""
    yield ComparedDataSet("digits", write_digit_folders(scratch / "digits"), 5)
    if data is not None and (data / "mnist").is_dir():
        yield ComparedDataSet("MNIST", write_mnist_folders(data / "mnist", scratch / "mnist"), 5)
    if data is not None and (data / "cifar100" / CIFAR_FILE).is_file():
        yield ComparedDataSet(
            "CIFAR-100",
            unpack_images_to_folder(data / "cifar100" / CIFAR_FILE, scratch / "cifar100"),
            5,
        )
    if photos is not None:
        yield ComparedDataSet("photos", photos, 3)


def write_digit_folders(folder: Path) -> Path:
    """Write scikit-learn's digits as `folder/<digit>/<image>.png`."""
    for _, archive in digits.build_digit_archives():
        unpack_images_to_folder(io.BytesIO(archive), folder)
    return folder


def write_mnist_folders(source: Path, folder: Path) -> Path:
    """Write the first images of each digit and part as `folder/<part>/<digit>/<image>.png`."""
    for part, prefix in (("train", "train"), ("test", "t10k")):
        pixels = read_idx_array(source / f"{prefix}-images-idx3-ubyte.gz")
        labels = read_idx_array(source / f"{prefix}-labels-idx1-ubyte.gz")
        for digit in range(10):
            below = folder / part / str(digit)
            below.mkdir(parents=True)
            for row in np.flatnonzero(labels == digit)[:MNIST_IMAGES].tolist():
                Image.fromarray(pixels[row]).save(below / f"{row:05}.png")
    return folder


def unpack_images_to_folder(archive: Path | io.BytesIO, folder: Path) -> Path:
    """Write the images of a zip into a folder, under their names."""
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if not name.endswith("/"):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(opened.read(name))
    return folder


def _print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        type=_parse_existing_folder,
        help="holds mnist/ and cifar100/; without it: digits alone",
    )
    parser.add_argument("--photos", type=_parse_existing_folder, help="a folder of class folders")
    parser.add_argument("--images", type=int, default=20, help="of a class, to learn from")
    parser.add_argument("--held-out", type=int, default=30, help="of a class, to measure on")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", action="append", choices=list(WORDS), default=[])
    parser.add_argument(
        "--model", type=_parse_model_fields, default={}, help="fields of Perennial's model, as JSON"
    )
    parser.add_argument("--json", type=Path, help="write all figures there")
    return parser.parse_args()


def _parse_model_fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    return fields


def _parse_existing_folder(text: str) -> Path | None:
    """Parse a command-line argument as an existing folder; None for an empty text."""
    if text and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return Path(text) if text else None


if __name__ == "__main__":
    main()
