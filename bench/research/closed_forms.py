"""Heads in closed form on features of the two bases: accuracy, rare classes, and one-sided batches.

    python -m bench.research.closed_forms --data DIR --photos FOLDER [--cache FOLDER] [--threads 2]

DIR holds `mnist` and `cifar100`; FOLDER has photos as `<class>/<image>`. scikit-learn brings the
digits. Every head is made of the same features, with all images of a class at once: the closed
forms do not depend on order or cut.
"""

import argparse
import gzip
import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import sklearn.datasets
import torch
from PIL import Image
from safetensors.torch import load
from torch import Tensor

from core.contract.architecture import Normalisation
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.images import decode_image_to_square_pixels
from core.learning.analytic import balance, choice, discriminant, ridge
from core.learning.analytic.linear import (
    append_column_of_ones,
    draw_projection_matrix,
    project_to_random_features,
)
from core.learning.analytic.sums import FeatureSums
from core.learning.networks import ImageSpec, build_initialised_backbone
from core.learning.networks.backbones.timm_names import get_timm_weights_properties
from core.learning.precision import InputNormaliser
from core.learning.state import load_tensors, save_tensors
from core.packaged import imagenet_base, packaged_base
from core.processes import helper_process

HELD_OUT, RARE, BULK, DRAWS = 50, (6, 12, 25, 50), 20, 3
"""Held-out images of a class at most; images of a rare class; the ratio of a one-sided batch, and
how often its images are drawn."""
BATCH = 32
Labelled = list[tuple[bytes, int]]


@dataclass(frozen=True)
class EncodedDataSet:
    """A data set of encoded images with class numbers, to learn from and held out."""

    name: str
    train: Labelled
    held_out: Labelled


@dataclass(frozen=True)
class DataSetFeatures:
    """Features of a data set's images, to learn from and held out, with labels."""

    train: Tensor
    labels: Tensor
    held_out: Tensor
    expected: Tensor

    @property
    def class_count(self) -> int:
        return int(self.labels.max()) + 1


def main() -> None:
    """Compare heads fitted in closed form on frozen features, and print their accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("build/closed-forms"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--wide", action="store_true", help="also a ridge on 5,000 columns, which takes minutes"
    )
    options = parser.parse_args()
    if not options.wide:
        del HEADS[WIDE]
    torch.set_num_threads(options.threads)
    options.cache.mkdir(parents=True, exist_ok=True)
    streams = [*iterate_closed_form_data_sets(options.data), read_photo_data_set(options.photos)]
    for base, backbone in load_packaged_backbones(options.cache).items():
        features_by_stream = {
            stream.name: compute_cached_features(stream, base, backbone, options.cache)
            for stream in streams
        }
        print_head_accuracies(base, features_by_stream)
        print_rare_class_recall(base, features_by_stream)
        print_imbalanced_batch_accuracy(base, features_by_stream)


def iterate_closed_form_data_sets(data: Path) -> Iterator[EncodedDataSet]:
    """Yield three data sets: digits, MNIST, and twenty CIFAR-100 classes new to the small base."""
    digits = sklearn.datasets.load_digits()
    pixels = (digits.images * (255 / 16)).astype(np.uint8)
    yield hold_out_images_of_data_set(
        "digits",
        [(encode_grey_png(image), int(c)) for image, c in zip(pixels, digits.target, strict=True)],
        40,
    )
    images, labels = (
        read_idx_byte_array(data / "mnist", f"train-{kind}") for kind in ("images", "labels")
    )
    mnist_images = [
        (encode_grey_png(image), int(c))
        for image, c in zip(images[:6000], labels[:6000], strict=True)
    ]
    yield hold_out_images_of_data_set("MNIST", mnist_images, 40)
    cifar_images: Labelled = []
    names: dict[str, int] = {}
    for archive in ("classes_60-69.zip", "classes_70-79.zip"):
        with zipfile.ZipFile(data / "cifar100" / archive) as zipped:
            for entry in sorted(name for name in zipped.namelist() if name.endswith(".png")):
                label = names.setdefault(entry.split("/")[-2], len(names))
                cifar_images.append((zipped.read(entry), label))
    yield hold_out_images_of_data_set("CIFAR-100", cifar_images, 25)


def read_photo_data_set(folder: Path) -> EncodedDataSet:
    """Read a data set of photos from `<class>/<image>` in a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    files = [
        (path, number)
        for number, name in enumerate(names)
        for path in sorted((folder / name).iterdir())
    ]
    return hold_out_images_of_data_set(
        "photos", [(path.read_bytes(), label) for path, label in files], 120
    )


def hold_out_images_of_data_set(name: str, images: Labelled, train_limit: int) -> EncodedDataSet:
    """Split images by a fixed seed into held-out ones and those to learn, with limits per class."""
    order = np.random.default_rng(0).permutation(len(images))
    by_class: dict[int, Labelled] = {}
    for row in order:
        by_class.setdefault(images[row][1], []).append(images[row])
    held_out = [
        image for rows in by_class.values() for image in rows[: min(HELD_OUT, len(rows) // 3)]
    ]
    train = [
        image
        for rows in by_class.values()
        for image in rows[min(HELD_OUT, len(rows) // 3) :][:train_limit]
    ]
    return EncodedDataSet(name, train, held_out)


def encode_grey_png(pixels: "np.ndarray") -> bytes:
    """Encode a grey image as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def read_idx_byte_array(folder: Path, start: str) -> "np.ndarray":
    """Read the array of bytes in an idx file, compressed or not."""
    path = next(path for path in sorted(folder.iterdir()) if path.name.startswith(start))
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


@dataclass(frozen=True)
class BackboneWithImagePreparation:
    """A backbone in evaluation mode, with the preparation of its images."""

    network: torch.nn.Module
    size: int
    resizing: SquareResizingSettings
    inputs: InputNormaliser


def load_converted_imagenet_base(cache: Path) -> dict[str, Tensor]:
    """Return the ImageNet base's weights, converted from the checkpoint on first use."""
    path = cache / "imagenet.safetensors"
    if not path.exists():
        ended = helper_process.run_module_in_helper_process(
            "core.bases.hub.imagenet", str(path.resolve()), 600
        )
        if ended.returncode:
            raise SystemExit(ended.stderr)
    return load_tensors(path)


def load_packaged_backbones(cache: Path) -> dict[str, BackboneWithImagePreparation]:
    """Load the two packaged backbones by name."""
    packaged = packaged_base.load_packaged_base_description()
    cpu = torch.device("cpu")
    draw = torch.Generator()
    small = build_initialised_backbone(packaged.architecture, ImageSpec(32, 3), draw)
    small.load_state_dict(load(packaged_base.load_packaged_base_weights(3)))
    weights_properties = get_timm_weights_properties(imagenet_base.MODEL)
    large = build_initialised_backbone(imagenet_base.ARCHITECTURE, ImageSpec(224, 3), draw)
    large.load_state_dict(load_converted_imagenet_base(cache))
    return {
        packaged_base.PACKAGED: BackboneWithImagePreparation(
            small.eval(), 32, SquareResizingSettings(), InputNormaliser(packaged.normalise, 3, cpu)
        ),
        imagenet_base.NAME: BackboneWithImagePreparation(
            large.eval(),
            224,
            SquareResizingSettings(
                float(weights_properties.crop), weights_properties.interpolation
            ),
            InputNormaliser(
                Normalisation(mean=weights_properties.mean, std=weights_properties.std), 3, cpu
            ),
        ),
    }


def compute_cached_features(
    stream: EncodedDataSet, base: str, prepared: BackboneWithImagePreparation, cache: Path
) -> DataSetFeatures:
    """Return the features of a data set's images, cached on disk."""
    path = cache / f"{base.replace('/', '-')}-{stream.name}.safetensors"
    if not path.exists():
        save_tensors(
            {
                "train": compute_image_features(stream.train, prepared),
                "labels": torch.tensor([label for _, label in stream.train]),
                "held_out": compute_image_features(stream.held_out, prepared),
                "expected": torch.tensor([label for _, label in stream.held_out]),
            },
            path,
        )
    return DataSetFeatures(**load_tensors(path))


def compute_image_features(images: Labelled, prepared: BackboneWithImagePreparation) -> Tensor:
    """Compute features float32 [n, D] of encoded images by a backbone."""
    feature_batches = []
    with torch.no_grad():
        for start in range(0, len(images), BATCH):
            rows = [
                decode_image_to_square_pixels(content, prepared.size, 3, 1 << 26, prepared.resizing)
                for content, _ in images[start : start + BATCH]
            ]
            feature_batches.append(
                prepared.network(prepared.inputs(torch.from_numpy(np.stack(rows))))
            )
    return torch.cat(feature_batches)


Scores = Callable[[Tensor], Tensor]


def fit_ridge_regression_head(
    h: Tensor, labels: Tensor, classes: int, columns: int = 0, balanced: bool = False
) -> Scores:
    """Fit a ridge-regression head on features, or on `columns` random features of them."""
    drawn = draw_projection_matrix(columns, h.shape[1], 0) if columns else None

    def widen_features(features: Tensor) -> Tensor:
        return (
            append_column_of_ones(features)
            if drawn is None
            else project_to_random_features(features, drawn)
        )

    sums = FeatureSums.make_empty_sums(columns or h.shape[1] + 1, classes)
    sums.add_examples(widen_features(h), labels)
    if balanced:
        strength = balance.RidgeLeaveOneOut(
            sums, widen_features(h).double(), labels
        ).choose_strength(balance.weigh_classes_equally_in_sums(sums))
        weight = ridge.solve_ridge_regression(balance.weigh_classes_equally_in_sums(sums), strength)
    else:
        _, weight = ridge.choose_ridge_strength_and_solve(sums)
    return lambda features: widen_features(features).double() @ weight


def fit_discriminant_head(h: Tensor, labels: Tensor, classes: int) -> Scores:
    """Fit a discriminant-analysis head: one Gaussian per class with a common covariance."""
    sums = FeatureSums.make_empty_sums(h.shape[1], classes)
    sums.add_examples(h, labels)
    linear = discriminant.solve_linear_discriminant_analysis(
        sums,
        share=discriminant.DiscriminantLeaveOneOut(sums, h.double(), labels).choose_shrinkage(),
    )
    return lambda features: linear(features.double())


def fit_class_covariance_head(h: Tensor, labels: Tensor, classes: int) -> Scores:
    """Fit a covariance for each class, half of it the common one (FeCAM, Goswami et al. 2023, arXiv
    2309.14062).
    """
    sums = FeatureSums.make_empty_sums(h.shape[1], classes)
    sums.add_examples(h, labels)
    mu, common = (
        sums.class_means,
        discriminant.compute_shared_covariance(sums),
    )
    inverses = []
    for c in range(classes):
        centred = h[labels == c].double() - mu[c]
        sigma = (centred.T @ centred / max(len(centred) - 1, 1) + common) / 2
        sigma = discriminant.shrink_covariance(
            sigma, discriminant.compute_oas_shrinkage(sigma, len(centred))
        )
        scale = sigma.diagonal().sqrt()
        inverses.append(torch.linalg.inv(sigma / scale[:, None] / scale) / scale[:, None] / scale)

    def compute_class_scores(features: Tensor) -> Tensor:
        away = (features.double() - mu[:, None]).unbind()
        return torch.stack(
            [-((r @ inverse) * r).sum(1) for r, inverse in zip(away, inverses, strict=True)], 1
        )

    return compute_class_scores


def choose_head_name_by_leave_one_out(
    h: Tensor, labels: Tensor, classes: int, current: str | None = None
) -> str:
    """Choose the better of two heads by leave-one-out predictions, as the method `auto` does.

    current: the head of the version before; None for a first one.
    """
    plain, sums = (
        FeatureSums.make_empty_sums(h.shape[1], classes),
        FeatureSums.make_empty_sums(h.shape[1] + 1, classes),
    )
    plain.add_examples(h, labels)
    sums.add_examples(append_column_of_ones(h), labels)
    strength = balance.RidgeLeaveOneOut(
        sums, append_column_of_ones(h).double(), labels
    ).choose_strength(balance.weigh_classes_equally_in_sums(sums))
    share = discriminant.DiscriminantLeaveOneOut(plain, h.double(), labels).choose_shrinkage()
    scores = {
        "lda": discriminant.DiscriminantLeaveOneOut(plain, h.double(), labels).compute_scores(
            share
        ),
        "balanced ridge": balance.RidgeLeaveOneOut(
            sums, append_column_of_ones(h).double(), labels
        ).compute_scores(strength),
    }
    return choice.choose_best_head_or_keep_current(scores, labels, current).head


def fit_head_chosen_by_auto(h: Tensor, labels: Tensor, classes: int) -> Scores:
    """Fit the head that the method `auto` chooses for a first version."""
    return HEADS[choose_head_name_by_leave_one_out(h, labels, classes)](h, labels, classes)


WIDE = "ridge, 5,000 columns"
HEADS: dict[str, Callable[[Tensor, Tensor, int], Scores]] = {
    "ridge": fit_ridge_regression_head,
    "ridge, 1,000 columns": partial(fit_ridge_regression_head, columns=1000),
    WIDE: partial(fit_ridge_regression_head, columns=5000),
    "balanced ridge": partial(fit_ridge_regression_head, balanced=True),
    "balanced ridge, 1,000 columns": partial(
        fit_ridge_regression_head, columns=1000, balanced=True
    ),
    "lda": fit_discriminant_head,
    "own covariances": fit_class_covariance_head,
    "auto": fit_head_chosen_by_auto,
}
COMPARED = ("ridge", "balanced ridge", "lda", "auto")
"""Heads of the tables of rare classes and of one-sided batches."""


def measure_head_accuracy(scores: Scores, features: DataSetFeatures) -> tuple[float, float, Tensor]:
    """Measure a head's accuracy, its mean over classes, and the recall of each class."""
    right = (scores(features.held_out).argmax(1) == features.expected).double()
    recalls = torch.stack(
        [right[features.expected == c].mean() for c in range(features.class_count)]
    )
    return float(right.mean()), float(recalls.mean()), recalls


def print_head_accuracies(base: str, streams: dict[str, DataSetFeatures]) -> None:
    """Print accuracy and mean class accuracy of every head on every data set."""
    print(f"\n{base}\n\n| head | " + " | ".join(streams) + " |\n| --- |" + " ---: |" * len(streams))
    for name, fit in HEADS.items():
        cells = []
        for features in streams.values():
            accuracy, mean, _ = measure_head_accuracy(
                fit(features.train, features.labels, features.class_count), features
            )
            cells.append(f"{accuracy:.3f} / {mean:.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def print_rare_class_recall(base: str, streams: dict[str, DataSetFeatures]) -> None:
    """Print the recall of a class with few training images, and the total accuracy."""
    print(f"\n| {base}: images of the rare class | head | " + " | ".join(streams) + " |")
    print("| ---: | --- |" + " ---: |" * len(streams))
    for few in RARE:
        for name in COMPARED:
            cells = []
            for features in streams.values():
                recalls, accuracies = [], []
                for c in range(features.class_count):
                    selected_rows = select_rows_with_rare_class(features.labels, c, few)
                    scores = HEADS[name](
                        features.train[selected_rows],
                        features.labels[selected_rows],
                        features.class_count,
                    )
                    accuracy, _, by_class = measure_head_accuracy(scores, features)
                    recalls.append(float(by_class[c]))
                    accuracies.append(accuracy)
                cells.append(f"{np.mean(recalls):.2f} ({np.mean(accuracies):.3f})")
            print(f"| {few} | {name} | " + " | ".join(cells) + " |", flush=True)


def select_rows_with_rare_class(labels: Tensor, rare: int, few: int) -> Tensor:
    """Select the rows of all classes, but only `few` of one class."""
    rows = torch.arange(len(labels))
    return torch.cat([rows[labels != rare], rows[labels == rare][:few]])


def print_imbalanced_batch_accuracy(base: str, streams: dict[str, DataSetFeatures]) -> None:
    """Print accuracy before and after learning a batch with mostly one class.

    All classes but one have few images, a twentieth of what the last one gets in the end: mean over
    classes and draws of the images, with the largest mean loss of a draw. `auto` chooses again with
    the batch, as a later version does.
    """
    print(
        f"\n| {base}: one-sided batch | "
        + " | ".join(streams)
        + " |\n| --- |"
        + " ---: |" * len(streams)
    )
    for name in COMPARED:
        cells = []
        for features in streams.values():
            draws = [
                _measure_imbalanced_batch_accuracy(name, features, seed) for seed in range(DRAWS)
            ]
            before, after = (np.mean(part) for part in zip(*draws, strict=True))
            loss = max(first - last for first, last in draws)
            cells.append(f"{before:.3f} → {after:.3f} ({loss:.3f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def _measure_imbalanced_batch_accuracy(
    name: str, features: DataSetFeatures, seed: int
) -> tuple[float, float]:
    """Measure mean class accuracy before and after learning a batch with mostly one class."""
    order = torch.randperm(len(features.labels), generator=torch.Generator().manual_seed(seed))
    few = max(2, min(int(torch.bincount(features.labels).max()) // BULK, 6))
    of_class = [order[features.labels[order] == c] for c in range(features.class_count)]
    even = torch.cat([rows[:few] for rows in of_class])

    def fit_and_measure_head(rows: Tensor, current: str | None) -> tuple[float, str]:
        h, labels = features.train[rows], features.labels[rows]
        head = (
            choose_head_name_by_leave_one_out(h, labels, features.class_count, current)
            if name == "auto"
            else name
        )
        return measure_head_accuracy(HEADS[head](h, labels, features.class_count), features)[
            0
        ], head

    before, head = fit_and_measure_head(even, None)
    after = []
    for c, rows in enumerate(of_class):
        after.append(
            fit_and_measure_head(
                torch.cat([even[features.labels[even] != c], rows[: BULK * few]]), head
            )[0]
        )
    return before, float(np.mean(after))


if __name__ == "__main__":
    main()
