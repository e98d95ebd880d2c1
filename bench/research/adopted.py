"""Old classes that an adopted classifier keeps when it learns new ones without an old image.

    python -m bench.research.adopted --data DIR [--streams "CIFAR-100, 60–74"] [--rows "default;…"]

A plain ResNet-20 learns the old classes of a stream by a script of its own, and is adopted. Then one
batch of new classes is sent, by each recipe of `--rows`. DIR holds `mnist` and `cifar100`. Printed:
accuracy on held-out images of the old classes before and after, of the new ones, and the mean over
all classes. `--cache` keeps trained classifiers.
"""

import argparse
import io
import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from bench.research.closed_forms import read_idx_byte_array
from perennial import Perennial
from tests.e2e.plain_resnet import MEAN, STD, PlainResNet, normalise_images, train_briefly
from tools import service

Json = dict[str, Any]
Images = Mapping[str, Sequence[np.ndarray]]
"""Images uint8 [S, S, 3] by class."""
HELD_OUT, SIDE, WIDTH = 50, 32, 8
ROWS: dict[str, Json] = {
    "default": {},
    "finetune": {"method": "finetune"},
    "head only": {"depth": 1},
}


def main() -> None:
    """Compare ways to continue an adopted classifier with new classes, on each stream of data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--streams", default="CIFAR-100, 60–74;CIFAR-100, 80–94;MNIST")
    parser.add_argument("--rows", default=";".join(ROWS), help="; ".join(ROWS))
    parser.add_argument("--more", type=json.loads, default={}, help="further recipes by name")
    parser.add_argument("--old", type=int, default=200, help="images of an old class")
    parser.add_argument("--new", type=int, default=60, help="images of a new class")
    parser.add_argument("--classes", type=int, default=5, help="new classes")
    parser.add_argument("--epochs", type=int, default=8, help="of the script")
    parser.add_argument("--cache", type=Path, default=Path("build/adopted"))
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        for number, stream in enumerate(options.streams.split(";")):
            old, new = read_old_and_new_classes(options.data, stream, options.old, options.new)
            new = {name: new[name] for name in sorted(new)[: options.classes]}
            weights = options.cache / f"{stream}-{options.old}-{options.epochs}.safetensors"
            if not weights.exists():
                save_file(
                    train_classifier_on_old_classes(old, options.old, options.epochs), weights
                )
            print(f"\n| {stream} | old before | old after | new | all classes |")
            print("| --- | ---: | ---: | ---: | ---: |", flush=True)
            recipes = {**ROWS, **options.more}
            for row, words in enumerate([*options.rows.split(";"), *options.more]):
                name = f"adopted-{number}-{row}"
                figures = measure_accuracy_before_and_after_adoption(
                    client, name, weights, (old, new), recipes[words]
                )
                listed = " | ".join(f"{one:.3f}" for one in figures)
                print(f"| {words} | {listed} |", flush=True)


def read_old_and_new_classes(data: Path, stream: str, old: int, new: int) -> tuple[Images, Images]:
    """Read a stream's old and new classes, with 50 extra images per class to hold out."""
    if stream == "MNIST":
        pixels, labels = (
            read_idx_byte_array(data / "mnist", f"train-{kind}") for kind in ("images", "labels")
        )
        sizes = {digit: old if digit < 6 else new for digit in range(10)}
        images = {
            str(digit): [
                _place_digit_in_colour_image(one)
                for one in pixels[labels == digit][: size + HELD_OUT]
            ]
            for digit, size in sizes.items()
        }
        names = sorted(images)
        return {n: images[n] for n in names[:6]}, {n: images[n] for n in names[6:]}
    first = int(stream.split()[-1].split("–")[0])
    old_classes = read_cifar_images_by_class(data, f"{first}-{first + 9}", old)
    later = read_cifar_images_by_class(data, f"{first + 10}-{first + 19}", new)
    return old_classes, {name: later[name] for name in sorted(later)[:5]}


def read_cifar_images_by_class(data: Path, tens: str, count: int) -> dict[str, list[np.ndarray]]:
    """Read the first images of each class in a CIFAR archive."""
    by_class: dict[str, list[np.ndarray]] = {}
    with zipfile.ZipFile(data / "cifar100" / f"classes_{tens}.zip") as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".png"):
                rows = by_class.setdefault(name.split("/")[-2], [])
                if len(rows) < count + HELD_OUT:
                    rows.append(np.array(Image.open(io.BytesIO(archive.read(name))).convert("RGB")))
    return by_class


def _place_digit_in_colour_image(pixels: np.ndarray) -> np.ndarray:
    """Place a digit in the middle of a colour image of 32 pixels."""
    return np.repeat(np.pad(pixels, 2)[:, :, None], 3, 2)


def train_classifier_on_old_classes(
    old: Images, count: int, epochs: int
) -> dict[str, torch.Tensor]:
    """Train a classifier on the old classes outside the service; return its state dict."""
    torch.manual_seed(0)
    net = PlainResNet(len(old), WIDTH)
    pixels = [one for label in sorted(old) for one in old[label][:count]]
    labels = torch.arange(len(old)).repeat_interleave(count)
    train_briefly(net, normalise_images(torch.from_numpy(np.stack(pixels))), labels, epochs)
    return {name: tensor.contiguous() for name, tensor in net.state_dict().items()}


def measure_accuracy_before_and_after_adoption(
    client: Perennial,
    name: str,
    weights: Path,
    images: tuple[Images, Images],
    recipe: Json,
) -> list[float]:
    """Adopt a classifier in the service, send new classes, and return accuracies before and after."""
    old, new = images
    load_file(weights)  # a damaged cache fails here
    client.models.adopt(
        name,
        weights,
        {"name": "resnet20", "width": WIDTH},
        sorted(old),
        image_size=SIDE,
        config={"mean": MEAN, "std": STD, "crop": 1},
        recipe={"data_report": "off", **recipe},
    )
    client.models.update(name, gate={"checks": "off"})
    client.submit(name, pack_batch_archive({}, old)).wait(3600)
    client.submit(name, pack_batch_archive(new, new)).wait(3600)
    before, after = client.metrics.retrieve(name).accuracy_matrix[-2:]
    retained_accuracy, learned = after
    assert before[0] is not None and retained_accuracy is not None and learned is not None
    share = len(old) / (len(old) + len(new))
    return [
        before[0],
        retained_accuracy,
        learned,
        share * retained_accuracy + (1 - share) * learned,
    ]


def pack_batch_archive(training: Images, held_out: Images) -> bytes:
    """Pack a batch as an archive, with the last images of each class held out."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        parts = (("train", training, slice(-HELD_OUT)), ("test", held_out, slice(-HELD_OUT, None)))
        for part, classes, rows in parts:
            for label, pictures in classes.items():
                for number, pixels in enumerate(pictures[rows]):
                    png = io.BytesIO()
                    Image.fromarray(pixels).save(png, "PNG")
                    archive.writestr(f"{part}/{label}/{number:04}.png", png.getvalue())
    return file.getvalue()


if __name__ == "__main__":
    main()
