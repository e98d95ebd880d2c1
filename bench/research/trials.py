"""Regret of trials: the held-out accuracy that the chosen recipe lacks to the best candidate.

    python -m bench.research.trials --data DIR [--source left-out selection] [--per-class 150]

DIR has `classes_60-69.zip` to `classes_90-99.zip` of CIFAR-100, which the base has never seen, and
MNIST as idx files. Each of five streams has five batches of two new classes, sent to a model of its
own with `trials=auto`. Held-out images judge the choice, and never make it: regret is the best
candidate's mean accuracy on them, over all tasks so far, less that of the chosen one. A table shows
each batch, and at last the mean regret beside that of the first and of the worst candidate.
"""

import argparse
import gzip
import io
import random
import struct
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
from PIL import Image

from perennial import Perennial
from tools import service

CIFAR = ("60-69", "70-79", "80-89", "90-99")
PER_BATCH = 2
"""New classes of a batch."""
HELD_OUT = 50
"""Held-out images of a class."""


@dataclass(frozen=True)
class RecipeChoiceOutcome:
    """Outcome of choosing between candidate recipes for a batch: accuracies, choice, regret."""

    stream: str
    batch: int
    accuracies: list[float]
    chosen: int
    methods: list[str]

    @property
    def regret(self) -> float:
        """Accuracy that the chosen recipe loses to the best candidate."""
        return max(self.accuracies) - self.accuracies[self.chosen - 1]


def main() -> None:
    """Measure how well trials choose between recipes, on streams of batches; print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--source", nargs="+", choices=("left-out", "selection"), default=["left-out", "selection"]
    )
    parser.add_argument("--per-class", type=int, default=150, help="training images of a class")
    parser.add_argument("--epochs", type=int, default=3, help="of candidates that train")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder), {}) as running,
        Perennial(api_key=running.key, base_url=running.url) as client,
    ):
        for source in options.source:
            print(f"\n{source}\n\n| stream | batch | candidates | chosen | regret |", flush=True)
            print("| --- | ---: | --- | --- | ---: |")
            outcomes = [
                outcome
                for name, batches in iterate_named_batch_streams(options.data, options.per_class)
                for outcome in measure_trial_choices_of_stream(
                    client, f"{source}-{name}", batches, options.epochs
                )
            ]
            print_mean_regrets(outcomes)


def measure_trial_choices_of_stream(
    client: Perennial, name: str, batches: list[bytes], epochs: int
) -> Iterator[RecipeChoiceOutcome]:
    """Submit a stream's batches with trials, and print a line for each."""
    client.models.create(
        name,
        "class",
        base="perennial/resnet20-cifar100",
        image={"size": 32, "channels": 3},
        recipe={"epochs": epochs, "data_report": "off"},
        gate={"checks": "off"},
        selection=name.startswith("selection"),
    )
    for number, batch in enumerate(batches, start=1):
        handle = client.submit(name, batch, trials="auto")
        handle.wait()
        trials = handle.trials()
        methods = [_format_method(one.recipe.method) for one in trials.items]
        measured = [one.acc or 0.0 for one in trials.items]
        assert trials.chosen is not None
        outcome = RecipeChoiceOutcome(name, number, measured, trials.chosen, methods)
        listed = ", ".join(
            f"{method} {share:.3f}" for method, share in zip(methods, measured, strict=True)
        )
        chosen = methods[trials.chosen - 1]
        print(f"| {name} | {number} | {listed} | {chosen} | {outcome.regret:.3f} |", flush=True)
        yield outcome


def print_mean_regrets(outcomes: list[RecipeChoiceOutcome]) -> None:
    """Print the mean regret of the trials' choice, of the first and of the worst candidate."""
    first = [max(one.accuracies) - one.accuracies[0] for one in outcomes]
    worst = [max(one.accuracies) - min(one.accuracies) for one in outcomes]
    regrets = [one.regret for one in outcomes]
    best = sum(regret == 0 for regret in regrets)
    print(
        f"\n{len(outcomes)} batches: mean regret {mean(regrets):.4f}, largest {max(regrets):.3f}, "
        f"none in {best}; always the first candidate {mean(first):.4f}, the worst one "
        f"{mean(worst):.4f}.",
        flush=True,
    )


def iterate_named_batch_streams(data: Path, per_class: int) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the name and batches of each stream."""
    for name in CIFAR:
        with zipfile.ZipFile(data / "cifar100" / f"classes_{name}.zip") as archive:
            yield (
                f"cifar-{name}",
                pack_two_class_archives(_read_images_by_part_and_class(archive), per_class),
            )
    yield "mnist", pack_two_class_archives(_read_mnist(data / "mnist"), per_class)


def pack_two_class_archives(
    images: dict[str, dict[str, list[bytes]]], per_class: int
) -> list[bytes]:
    """Pack images as archives of two classes each, with train and test parts."""
    classes, batches = sorted(images["train"]), []
    limits = {"train": per_class, "test": HELD_OUT}
    for start in range(0, len(classes), PER_BATCH):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for part, limit in limits.items():
                for label in classes[start : start + PER_BATCH]:
                    for number, png in enumerate(images[part][label][:limit]):
                        archive.writestr(f"{part}/{label}/{number}.png", png)
        batches.append(out.getvalue())
    return batches


def _read_images_by_part_and_class(archive: zipfile.ZipFile) -> dict[str, dict[str, list[bytes]]]:
    images: dict[str, dict[str, list[bytes]]] = {
        "train": defaultdict(list),
        "test": defaultdict(list),
    }
    names = sorted(name for name in archive.namelist() if name.endswith(".png"))
    random.Random(0).shuffle(names)
    for name in names:
        part, label, _ = name.split("/")
        images[part][label].append(archive.read(name))
    return images


def _read_mnist(folder: Path) -> dict[str, dict[str, list[bytes]]]:
    images: dict[str, dict[str, list[bytes]]] = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        pixels = gzip.decompress((folder / f"{prefix}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / f"{prefix}-labels-idx1-ubyte.gz").read_bytes())[8:]
        _, count, height, width = struct.unpack(">4I", pixels[:16])
        rows = np.frombuffer(pixels, np.uint8, offset=16).reshape(count, height, width)
        images[part] = defaultdict(list)
        # The first thousands have more of each digit than any run asks for.
        for row, label in zip(rows[:10_000], labels[:10_000], strict=True):
            out = io.BytesIO()
            Image.fromarray(row).save(out, "PNG")
            images[part][str(label)].append(out.getvalue())
    return images


def _format_method(method: object) -> str:
    if not isinstance(method, dict):
        return str(method)
    details = [str(value) for name, value in method.items() if name not in ("name", "adapt")]
    adapted = ["adapt"] if "adapt" in method else []
    return " ".join([str(method["name"]), *details, *adapted])


if __name__ == "__main__":
    main()
