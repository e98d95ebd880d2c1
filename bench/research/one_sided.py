"""Effect of a batch with twenty times as many images of one class on the classes that a model
knows.

    python -m bench.research.one_sided --data DIR [--base small] [--rows "default;lda"]
        [--cases even,several]

DIR holds `mnist` and `cifar100`. The product's job learns the batches of a case one after the
other, by the recipe of a new model. In the last one known classes come alone, with 120 images of
one of them. The table shows the mean accuracy over the known classes on held-out images, before →
after the last batch: the mean over the draws of images and of the large class, and in brackets the
largest loss of a draw. Features of a backbone that no step moves are computed once.
"""

import argparse
import hashlib
import itertools
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets
import torch
from torch import Tensor

from bench.job_run import complete_job_spec
from bench.research import closed_forms
from bench.research.new_user import encode_photo_as_jpeg
from core.contract.manifest import PER_TASK, REST
from core.ingest.images import decode_image_to_square_pixels
from core.learning.catalogue import build_recipe_catalogue
from core.learning.data.known_features import FeatureCachingInputNormaliser
from core.learning.methods.method import Method
from core.learning.methods.registry import METHODS
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.learning.state import load_tensors, save_tensors
from core.learning.training.control import EmptyControlRequestSource
from core.learning.training.job import LearningJob
from core.packaged import imagenet_base, packaged_base
from core.recipe.model_defaults import build_recipe_of_new_model
from core.recipe.resolve import resolve_recipe

Json = dict[str, Any]
FEW, BULK = 6, 120
"""Images of a class in a batch, and of the class that is large in the last one."""
HELD_OUT = 50
"""Of a class at most."""
PIXELS = 64
"""A side of what is shown as photos."""
ROWS: dict[str, Json] = {
    "default": {},
    "ridge": {"method": {"name": "analytic", "head": "ridge"}},
    "ridge, not balanced": {"method": {"name": "analytic", "head": "ridge", "balanced": False}},
    "lda": {"method": {"name": "analytic", "head": "lda"}},
    "ncm": {"method": {"name": "analytic", "head": "ncm"}},
    "er": {"method": "er"},
    "er-ace": {"method": "er-ace"},
    "der++": {"method": "der++"},
    "icarl": {"method": "icarl"},
}
Batches = list[list[tuple[int, slice]]]
"""Batches of a case, in their order: classes and which of each one's images, in the order of a
draw.
"""


@dataclass(frozen=True)
class EncodedImagesByClass:
    """A data set of encoded images by class, shuffled."""

    name: str
    train: list[list[bytes]]
    held_out: list[list[bytes]]

    @property
    def class_count(self) -> int:
        return len(self.train)


def plan_batches_with_one_large_class(classes: int, large: int) -> Batches:
    """Plan batches: one with all classes, then one with 120 images of a single class."""
    last = [(c, slice(FEW, FEW + (BULK if c == large else FEW))) for c in range(classes)]
    return [[(c, slice(FEW)) for c in range(classes)], last]


def plan_three_batches_then_one_class_alone(classes: int, large: int) -> Batches:
    """Plan batches: three with new classes, then one with 120 images of one class."""
    cuts = [classes * part // 3 for part in range(4)]
    parts = [[(c, slice(FEW)) for c in range(*cut)] for cut in itertools.pairwise(cuts)]
    return [*parts, plan_batches_with_one_large_class(classes, large)[1]]


def plan_rare_class_then_that_class_alone(classes: int, large: int) -> Batches:
    """Plan batches: one with a rare class, then one of that class alone."""
    first = [(c, slice(FEW if c == large else 2 * FEW)) for c in range(classes)]
    return [first, [(large, slice(FEW, FEW + BULK))]]


CASES: dict[str, Callable[[int, int], Batches]] = {
    "even": plan_batches_with_one_large_class,
    "several": plan_three_batches_then_one_class_alone,
    "rarest": plan_rare_class_then_that_class_alone,
}


def main() -> None:
    """Measure learning of batches with mostly one class, and print a table per case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--photos", type=Path, help="a further stream")
    parser.add_argument("--cache", type=Path, default=Path("build/one-sided"))
    parser.add_argument("--base", choices=("photos", "small"), default="photos")
    parser.add_argument("--streams", help="some of their names; all by default")
    parser.add_argument("--rows", default="default", help="; ".join(ROWS))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5, help="of methods that train")
    parser.add_argument("--recipe", type=json.loads, default={}, help="a patch over each row's")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.cache.mkdir(parents=True, exist_ok=True)
    names = options.streams and options.streams.split(";")
    streams = [
        each
        for each in iterate_imbalance_study_data_sets(options.data, options.photos)
        if not names or each.name in names
    ]
    for case in options.cases.split(","):
        print(
            f"\n| {options.base}, {case} | " + " | ".join(stream.name for stream in streams) + " |"
        )
        print("| --- |" + " ---: |" * len(streams))
        for row in options.rows.split(";"):
            patch = {**ROWS[row], "epochs": options.epochs, **options.recipe}
            print(f"| {row} ", end="", flush=True)
            for stream in streams:
                base = BatchPlanAccuracyBenchmark(options.base, patch, stream, options.cache)
                print(
                    f"| {base.measure_and_format_plan_accuracy(CASES[case], options.draws)} ",
                    end="",
                    flush=True,
                )
            print("|", flush=True)


def iterate_imbalance_study_data_sets(
    data: Path, photos: Path | None
) -> Iterator[EncodedImagesByClass]:
    """Yield the data sets: digits, MNIST, CIFAR-100 classes new to the base, photos."""
    digits = sklearn.datasets.load_digits()
    pixels = (digits.images * (255 / 16)).astype(np.uint8)
    yield hold_out_images_of_each_class("digits", _encode_labelled_images(pixels, digits.target))
    mnist_arrays = (
        closed_forms.read_idx_byte_array(data / "mnist", f"train-{kind}")[:6000]
        for kind in ("images", "labels")
    )
    yield hold_out_images_of_each_class("MNIST", _encode_labelled_images(*mnist_arrays))
    yield hold_out_images_of_each_class("CIFAR-100, 60–69", read_cifar_archives(data, "60-69"))
    yield hold_out_images_of_each_class("CIFAR-100, 70–79", read_cifar_archives(data, "70-79"))
    enlarged = [
        (encode_photo_as_jpeg(image, PIXELS), c)
        for image, c in read_cifar_archives(data, "80-89", "90-99")
        if c < 12
    ]
    yield hold_out_images_of_each_class("photos", enlarged)
    if photos is not None:
        stream = closed_forms.read_photo_data_set(photos)
        yield hold_out_images_of_each_class(photos.name, stream.train + stream.held_out)


def _encode_labelled_images(pixels: np.ndarray, labels: np.ndarray) -> closed_forms.Labelled:
    return [
        (closed_forms.encode_grey_png(image), int(c))
        for image, c in zip(pixels, labels, strict=True)
    ]


def read_cifar_archives(data: Path, *tens: str) -> closed_forms.Labelled:
    """Read the first 250 images of each class in CIFAR archives."""
    labelled_images: closed_forms.Labelled = []
    for number, ten in enumerate(tens):
        with zipfile.ZipFile(data / "cifar100" / f"classes_{ten}.zip") as archive:
            by_class: dict[str, list[str]] = {}
            for name in sorted(archive.namelist()):
                if name.endswith(".png"):
                    by_class.setdefault(name.split("/")[-2], []).append(name)
            for c, label in enumerate(sorted(by_class)):
                labelled_images += [
                    (archive.read(name), 10 * number + c) for name in by_class[label][:250]
                ]
    return labelled_images


def hold_out_images_of_each_class(name: str, images: closed_forms.Labelled) -> EncodedImagesByClass:
    """Split each class into held-out images and those to learn."""
    by_class: dict[int, list[bytes]] = {}
    for row in np.random.default_rng(0).permutation(len(images)):
        by_class.setdefault(images[row][1], []).append(images[row][0])
    lists = [by_class[c] for c in sorted(by_class)]
    needed = FEW + BULK
    held_out = [rows[: min(HELD_OUT, max(0, len(rows) - needed))] for rows in lists]
    train = [
        rows[len(held_out_images) :] for rows, held_out_images in zip(lists, held_out, strict=True)
    ]
    return EncodedImagesByClass(name, train, held_out)


class BatchPlanAccuracyBenchmark:
    """Learns batches from one of the two bases by a recipe, and measures accuracies."""

    def __init__(self, base: str, patch: Json, stream: EncodedImagesByClass, cache: Path) -> None:
        self._stream = stream
        self._cache = cache
        name = imagenet_base.NAME if base == "photos" else packaged_base.PACKAGED
        self._prepared = prepared = closed_forms.load_packaged_backbones(cache)[name]
        architecture = (
            imagenet_base.ARCHITECTURE
            if base == "photos"
            else packaged_base.load_packaged_base_description().architecture
        )
        catalogue = build_recipe_catalogue()
        self._recipe = resolve_recipe(
            catalogue, "class", build_recipe_of_new_model(catalogue, patch, name)
        ).recipe
        self._normalise = prepared.inputs.normalise
        self._model = {
            "architecture": architecture,
            "image": {"size": prepared.size, "channels": 3},
            "scenario": "class",
            "normalise": self._normalise.to_json() if self._normalise else None,
            "recipe": {**self._recipe, "data_report": "off"},
        }
        self._weights = cache / f"{base}.safetensors"
        if not self._weights.exists():
            save_tensors(dict(prepared.network.state_dict()), self._weights)
        self._decoded: dict[bytes, Tensor] = {}
        self._known = FeatureCachingInputNormaliser(self._normalise, 3, torch.device("cpu"))
        self._features = cache / f"{base}-{stream.name}.features.safetensors"
        self._computed: dict[str, Tensor] = (
            load_tensors(self._features) if self._features.exists() else {}
        )

    def measure_and_format_plan_accuracy(
        self, case: Callable[[int, int], Batches], draws: int
    ) -> str:
        """Measure mean accuracy before and after a case's last batch, over several random draws."""
        accuracy_pairs = [self._measure_accuracy_of_batch_plan(case, seed) for seed in range(draws)]
        before, after = (float(np.mean(part)) for part in zip(*accuracy_pairs, strict=True))
        loss = max(first - last for first, last in accuracy_pairs)
        return f"{before:.3f} → {after:.3f} ({loss:.3f})"

    def _measure_accuracy_of_batch_plan(
        self, case: Callable[[int, int], Batches], seed: int
    ) -> tuple[float, float]:
        classes = self._stream.class_count
        batches = case(classes, (3 * seed + 1) % classes)
        orders = [
            np.random.default_rng([seed, c]).permutation(len(rows))
            for c, rows in enumerate(self._stream.train)
        ]
        if self._is_backbone_frozen:
            self._compute_missing_features(
                [
                    image
                    for c, order in enumerate(orders)
                    for image in self._select_class_images(c, order, batches)
                ]
            )
        accuracies: list[float] = []
        with tempfile.TemporaryDirectory(dir=self._cache) as scratch:
            folder = Path(scratch)
            parent = base = {
                "version": 0,
                "manifest": {"classes": [], "heads": [], "init": {"kind": "random", "seed": 0}},
                "parts": [{"name": "base", "type": "base", "path": str(self._weights)}],
            }
            task_parts: list[Json] = []
            for number, batch in enumerate(batches, 1):
                images = [
                    (self._stream.train[c][row], c) for c, rows in batch for row in orders[c][rows]
                ]
                out = folder / str(number)
                out.mkdir()
                parent = self._learn_batch_as_version(
                    images, number, parent, base, out, task_parts, accuracies
                )
        return accuracies[-2], accuracies[-1]

    def _learn_batch_as_version(
        self,
        images: closed_forms.Labelled,
        number: int,
        parent: Json,
        base: Json,
        out: Path,
        task_parts: list[Json],
        accuracies: list[float],
    ) -> Json:
        present = sorted({c for _, c in images})
        pixels = torch.stack([self._decode_image(content) for content, _ in images])
        labels = torch.tensor([present.index(c) for _, c in images])
        save_tensors({"images": pixels, "labels": labels}, out / "train.safetensors")
        spec: Json = {
            **self._model,
            "task": {
                "number": number,
                "classes": [f"{c:02}" for c in present],
                "train": str(out / "train.safetensors"),
            },
            "history": [],
            "parent": parent,
            "base": base,
            "out": str(out),
            "threads": 1,
            "device": "cpu",
        }

        def record_accuracy(network: Network, method: Method, inputs: InputNormaliser) -> None:
            accuracies.append(self._measure_mean_class_accuracy(network, method, inputs))

        caching_normaliser = self._known if self._is_backbone_frozen else None
        learning = LearningJob(
            complete_job_spec(spec),
            lambda event: None,
            EmptyControlRequestSource(),
            record_accuracy,
            inputs=caching_normaliser,
        )
        with learning.numerics.use_numerics_flags():
            learning.run_job_phases()
        return self._describe_result_as_parent_version(out / "result", number, task_parts)

    def _measure_mean_class_accuracy(
        self, network: Network, method: Method, inputs: InputNormaliser
    ) -> float:
        """Return the mean accuracy over the classes that the network knows."""
        network.eval()
        recalls = []
        with torch.inference_mode():
            for row, name in enumerate(network.classes):
                pixels = torch.stack(
                    [self._decode_image(content) for content in self._stream.held_out[int(name)]]
                )
                predicted_rows = method.predict_logits(network, inputs(pixels), None).argmax(1)
                recalls.append(float((predicted_rows == row).double().mean()))
        return float(np.mean(recalls))

    def _describe_result_as_parent_version(
        self, folder: Path, number: int, task_parts: list[Json]
    ) -> Json:
        """Describe a job's result as the next batch's parent; add its task's parts to `task_parts`."""
        result = json.loads((folder / "result.json").read_text())
        parts = [
            {"name": part["name"], "type": part["type"], "path": str(folder / part["file"])}
            for part in result["parts"]
        ]
        manifest = {
            name: result[name] for name in ("classes", "heads", "method", "normalise", "network")
        }
        per_task = [part for part in parts if part["type"] in PER_TASK]
        task_parts += [part for part in per_task if not part["name"].endswith(REST)]
        shared_parts = [part for part in parts if part not in per_task]
        return {
            "version": number,
            "manifest": {"version": number, **manifest},
            "parts": [*shared_parts, *task_parts],
        }

    @property
    def _is_backbone_frozen(self) -> bool:
        return METHODS[self._recipe["method"]["name"]].inference == "analytic"

    def _select_class_images(self, c: int, order: np.ndarray, batches: Batches) -> list[bytes]:
        """Select a class's images for a draw: held-out ones, and those of its batches."""
        rows = sorted(
            {row for batch in batches for which, part in batch if which == c for row in order[part]}
        )
        return [*self._stream.held_out[c], *(self._stream.train[c][row] for row in rows)]

    def _compute_missing_features(self, images: list[bytes]) -> None:
        """Compute the features of images that have none yet."""
        new = {hashlib.sha256(image).hexdigest(): image for image in images}
        missing = [key for key in new if key not in self._computed]
        if missing:
            rows = closed_forms.compute_image_features(
                [(new[key], 0) for key in missing], self._prepared
            )
            self._computed |= dict(zip(missing, rows, strict=True))
            save_tensors(self._computed, self._features)
        pixels = torch.stack([self._decode_image(image) for image in new.values()])
        self._known.add_features(pixels, torch.stack([self._computed[key] for key in new]))

    def _decode_image(self, content: bytes) -> Tensor:
        """Decode an image to uint8 [S, S, 3]."""
        if content not in self._decoded:
            pixels = decode_image_to_square_pixels(
                content, self._prepared.size, 3, 1 << 26, self._prepared.resizing
            )
            self._decoded[content] = torch.from_numpy(np.ascontiguousarray(pixels))
        return self._decoded[content]


if __name__ == "__main__":
    main()
