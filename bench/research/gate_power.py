"""Power and false alarms of the gate's checks.

    python -m bench.research.gate_power --data DIR [--photos FOLDER] [--splits 300] [--orders 6]
        [--threads 1]

Prints three tables. Power, exact: the probability that `forgotten` sees a loss of ten points. False
alarms, on real answers: with the frozen features of a base, a head learned from a random half of
the training images beside one from both halves, so that nothing was forgotten, and beside one from
the other half alone. Streams of new classes by the closed form, over random orders of the classes:
the largest value of each check, and how many versions the limits of a new model hold.

Without `--photos` the base is the packaged one of 32 pixels, and the heads are `ridge` and `lda`.
With a folder of photos as `<class>/<image>` it is the base for photos, and the head is `auto`, as
in a new model; the streams are those of `bench.research.closed_forms`, whose cache it shares.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from bench.experiment.data import ExperimentDatasetCache
from bench.experiment.plan import PlannedImages
from bench.research import closed_forms
from core.contract.gate import GateCheck, GateLimits
from core.contract.losses import (
    GateComparison,
    GateComparisons,
    GateDriftComparison,
    TaskDriftFlipCounts,
)
from core.ingest.dataset import memory_map_image_dataset
from core.learning.analytic import discriminant, ridge
from core.learning.analytic.linear import append_column_of_ones
from core.learning.analytic.sums import FeatureSums
from core.learning.networks import ImageSpec, build_uninitialised_network
from core.learning.networks.network import HeadSpec
from core.learning.precision import InputNormaliser, move_network_to_device
from core.lineage.checks import CHECKS, NEW_GATE, build_version_comparison_gate_checks
from core.packaged import imagenet_base, packaged_base
from core.statistics.flips import compute_one_sided_mcnemar_p
from core.statistics.test_power import compute_loss_detection_probability

LOSS = 0.10
GAINS = (0.0, 0.02, 0.05)
HELD_OUT = (30, 100, 300)
STRICT: GateLimits = {**NEW_GATE, "forgotten": 0.0, "confused": 0.0, "drifted": 0.0}
"""By which every significant loss fails: its value is the largest that is significant."""
LAST_VERSIONS = 20
BATCH = 64


@dataclass(frozen=True)
class GateStudyStream:
    """A data set and how the gate study cuts it into batches."""

    name: str
    images: PlannedImages | str
    """Of a data set, or the name of features on the base for photos."""
    classes_per_task: int
    train_per_class: int


CIFAR = PlannedImages(path="cifar100", train_per_class=100, test_per_class=50)
STREAMS = (
    GateStudyStream("digits", PlannedImages(path="bundled/digits", channels=1), 2, 40),
    GateStudyStream(
        "MNIST", PlannedImages(path="mnist", pad=2, train_per_class=200, test_per_class=100), 2, 40
    ),
    GateStudyStream("CIFAR-100, by 5", CIFAR, 5, 25),
    GateStudyStream("CIFAR-100, by 10", CIFAR, 10, 50),
    GateStudyStream(
        "CIFAR-100, classes 60 to 79",
        PlannedImages(path="cifar100", classes="60-79", train_per_class=100, test_per_class=50),
        5,
        25,
    ),
    GateStudyStream("CIFAR-100, by 1", CIFAR, 1, 50),
)
MOST_CLASSES = {"CIFAR-100, by 10": 60, "CIFAR-100, by 5": 40, "CIFAR-100, by 1": 20}
ALARMED = ("digits", "MNIST", "CIFAR-100, by 5")
"""Streams on whose classes the false alarms are counted."""
FEW, MANY = 20, 100
"""Images of a class in the streams on the base for photos."""


@dataclass(frozen=True)
class GateStudyFeatures:
    """Features of a data set's two parts, with a constant column and labels."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @property
    def class_count(self) -> int:
        return int(self.train[1].max()) + 1


def main() -> None:
    """Measure how small an accuracy loss the gate detects; print three tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with mnist/ and cifar100/")
    parser.add_argument(
        "--photos", type=Path, help="a folder of class folders; measures the base for photos"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("build/closed-forms"), help="of features for --photos"
    )
    parser.add_argument(
        "--splits", type=int, default=300, help="random halves for each number of images"
    )
    parser.add_argument(
        "--orders", type=int, default=6, help="random orders of the classes for each stream"
    )
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    _print_accuracy_loss_detection_power()
    if args.photos is None:
        features = _extract_features_of_all_data_sets(args.data)
        _print_gate_false_alarms({name: features[name] for name in ALARMED}, HEADS, args.splits)
        _print_largest_accuracy_losses_of_streams(STREAMS, features, HEADS, args.orders)
    else:
        features = _compute_or_load_features_by_data_set(args.data, args.photos, args.cache)
        _print_gate_false_alarms(features, AUTO, args.splits)
        _print_largest_accuracy_losses_of_streams(
            _list_gate_study_streams(features), features, AUTO, args.orders
        )


def _print_accuracy_loss_detection_power() -> None:
    print(f"probability that a loss of {100 * LOSS:.0f} points is seen, exact")
    print(
        "| held-out images | " + " | ".join(f"{100 * gain:.0f} % gained" for gain in GAINS) + " |"
    )
    for images in HELD_OUT:
        shares = [
            compute_loss_detection_probability(images, LOSS, gain, NEW_GATE["forgotten"] or 0.0)
            for gain in GAINS
        ]
        print(f"| {images} | " + " | ".join(f"{share:.3f}" for share in shares) + " |", flush=True)


def _extract_features_of_all_data_sets(data: Path) -> dict[str, GateStudyFeatures]:
    """Extract the features of all studied data sets with the packaged base."""
    features_by_key: dict[str, GateStudyFeatures] = {}
    with tempfile.TemporaryDirectory() as cache:
        files = ExperimentDatasetCache(data, Path(cache))
        for stream in STREAMS:
            assert isinstance(stream.images, PlannedImages)
            key = stream.images.model_dump_json()
            if key not in features_by_key:
                features_by_key[key] = _extract_packaged_features(files, stream.images)
    return {
        s.name: features_by_key[s.images.model_dump_json()]
        for s in STREAMS
        if isinstance(s.images, PlannedImages)
    }


def _compute_or_load_features_by_data_set(
    data: Path, photos: Path, cache: Path
) -> dict[str, GateStudyFeatures]:
    """Compute the ImageNet base's features of each data set, cached on disk, by its name."""
    cache.mkdir(parents=True, exist_ok=True)
    prepared = closed_forms.load_packaged_backbones(cache)[imagenet_base.NAME]
    features_by_name = {}
    for stream in (
        *closed_forms.iterate_closed_form_data_sets(data),
        closed_forms.read_photo_data_set(photos),
    ):
        cached_features = closed_forms.compute_cached_features(
            stream, imagenet_base.NAME, prepared, cache
        )
        parts = (
            (cached_features.train, cached_features.labels),
            (cached_features.held_out, cached_features.expected),
        )
        features_by_name[stream.name] = GateStudyFeatures(
            *((append_column_of_ones(h).double(), labels) for h, labels in parts)
        )
    return features_by_name


def _list_gate_study_streams(features: dict[str, GateStudyFeatures]) -> tuple[GateStudyStream, ...]:
    """Split each data set into batches of few classes, with few and with many images each."""
    return tuple(
        GateStudyStream(
            f"{name}, {images} images of a class", name, max(2, data.class_count // 4), images
        )
        for name, data in features.items()
        for images in (FEW, MANY)
    )


def _extract_packaged_features(
    files: ExperimentDatasetCache, images: PlannedImages
) -> GateStudyFeatures:
    """Extract features of both parts of a data set with the packaged base."""
    source = files.decode_experiment_data_set(images)
    channels = files.get_image_shape(images)["channels"]
    base = packaged_base.load_packaged_base_description()
    form = ImageSpec(files.get_image_shape(images)["size"], channels)
    network = build_uninitialised_network(base.architecture, form, "class", HeadSpec())
    network.backbone.load_base_weights(load(packaged_base.load_packaged_base_weights(channels)))
    device = torch.device("cpu")
    move_network_to_device(network, device)
    inputs = InputNormaliser(
        packaged_base.load_packaged_base_normalisation(channels), channels, device
    )
    network.eval()

    def compute_part_features(part: str) -> tuple[Tensor, Tensor]:
        path = files.make_dataset_file_of_classes(
            images, images.list_chosen_class_numbers(len(source.names)), part
        )
        pixels, labels = memory_map_image_dataset(path)
        rows = []
        with torch.inference_mode():
            for start in range(0, len(labels), BATCH):
                block = torch.from_numpy(np.array(pixels[start : start + BATCH]))
                rows.append(network.features(inputs(block)).double())
        features = torch.cat(rows)
        ones = torch.ones(len(features), 1, dtype=torch.float64)
        return torch.cat([features, ones], 1), torch.from_numpy(np.array(labels, np.int64))

    return GateStudyFeatures(compute_part_features("train"), compute_part_features("test"))


Head = Callable[[Tensor], Tensor]
"""Features to scores."""


Learn = Callable[[Tensor, Tensor, int, str | None], tuple[Head, str]]
"""Features [n, K + 1], labels, classes and the head of the version before to a head and its name.
"""


def _fit_ridge_head(h: Tensor, labels: Tensor, classes: int, _: str | None) -> tuple[Head, str]:
    weight = ridge.choose_ridge_strength_and_solve(_compute_feature_sums(h, labels, classes))[1]
    return lambda features: features @ weight, "ridge"


def _fit_lda_head(h: Tensor, labels: Tensor, classes: int, _: str | None) -> tuple[Head, str]:
    head = discriminant.solve_linear_discriminant_analysis(
        _compute_feature_sums(h, labels, classes).drop_last_feature()
    )
    return lambda features: head(features[:, :-1]), "lda"


def _fit_auto_head(
    h: Tensor, labels: Tensor, classes: int, current: str | None
) -> tuple[Head, str]:
    name = closed_forms.choose_head_name_by_leave_one_out(
        h[:, :-1].float(), labels, classes, current
    )
    head = closed_forms.HEADS[name](h[:, :-1].float(), labels, classes)
    return lambda features: head(features[:, :-1].float()), name


HEADS: dict[str, Learn] = {"ridge": _fit_ridge_head, "lda": _fit_lda_head}
AUTO: dict[str, Learn] = {"auto": _fit_auto_head}


def _compute_feature_sums(features: Tensor, labels: Tensor, classes: int) -> FeatureSums:
    sums = FeatureSums.make_empty_sums(features.shape[1], classes)
    sums.add_examples(features, labels)
    return sums


UPDATES = ("both halves", "the other half")


def _print_gate_false_alarms(
    streams: dict[str, GateStudyFeatures], heads: dict[str, Learn], splits: int
) -> None:
    print("\nversions held beside one that learned a random half of the training images")
    print(
        "| images | head | held-out images | "
        + " | ".join(f"learned {update}" for update in UPDATES)
        + " |"
    )
    generator = torch.Generator().manual_seed(0)
    total: Counter[str] = Counter()
    for name, data in streams.items():
        for head, learn in heads.items():
            held_counts: dict[int, Counter[str]] = {images: Counter() for images in HELD_OUT}
            for _ in range(splits):
                for images, judged in _judge_updates_without_accuracy_loss(data, learn, generator):
                    for update, checks in zip(UPDATES, judged, strict=True):
                        held_counts[images][update] += not all(check["passed"] for check in checks)
            for images, counts in held_counts.items():
                total += counts
                cells = [f"{counts[update]} of {splits}" for update in UPDATES]
                print(f"| {name} | {head} | {images} | {' | '.join(cells)} |", flush=True)
    print(f"all: {dict(total)} of {splits * len(streams) * len(heads) * len(HELD_OUT)} each")


def _judge_updates_without_accuracy_loss(
    data: GateStudyFeatures, learn: Learn, generator: torch.Generator
) -> Iterator[tuple[int, list[list[GateCheck]]]]:
    """Judge updates without a true loss, to count the gate's false alarms.

    Yields the checks of each update for each number of held-out images.
    """
    classes = torch.randperm(data.class_count, generator=generator)[:10]
    rows = [
        _draw_random_rows(_find_rows_of_class(data.train[1], int(c)), 40, generator)
        for c in classes
    ]
    place_of = {int(c): i for i, c in enumerate(classes)}
    all_held = torch.cat([_find_rows_of_class(data.test[1], int(c)) for c in classes])

    def fit_head_on_part(part: slice, current: str | None = None) -> tuple[Head, str]:
        picked = torch.cat([of_class[part] for of_class in rows])
        labels = torch.cat(
            [torch.full((len(of_class[part]),), i) for i, of_class in enumerate(rows)]
        )
        return learn(data.train[0][picked], labels, len(classes), current)

    before, name = fit_head_on_part(slice(0, None, 2))
    updates = [
        fit_head_on_part(slice(0, None, 1), name)[0],
        fit_head_on_part(slice(1, None, 2), name)[0],
    ]
    for images in HELD_OUT:
        held_out_rows = _draw_random_rows(all_held, images, generator)
        truth = torch.tensor([place_of[int(label)] for label in data.test[1][held_out_rows]])
        old, *new_predictions = (
            head(data.test[0][held_out_rows]).argmax(1) for head in (before, *updates)
        )
        tasks = [
            _TaskPredictionsByOldAndNewVersion(1, truth, old, new, new, new < 0)
            for new in new_predictions
        ]
        yield (
            images,
            [
                _judge_accuracy_losses_by_gate([task], [_count_flips_of_task(task, 1)], None)
                for task in tasks
            ],
        )


def _draw_random_rows(rows: Tensor, max_rows: int, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)[:max_rows]]


def _find_rows_of_class(labels: Tensor, number: int) -> Tensor:
    return (labels == number).nonzero().squeeze(1)


@dataclass(frozen=True)
class _TaskPredictionsByOldAndNewVersion:
    """True and predicted labels of a task's images, by production and by the candidate."""

    number: int
    truth: Tensor
    old: Tensor
    best: Tensor
    now: Tensor
    is_new: Tensor


def _count_lost_and_gained_predictions(
    tasks: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]],
) -> GateComparison:
    """Count the images that lost or gained a correct prediction, by class."""
    truth, before, negative, positive = (torch.cat(column) for column in zip(*tasks, strict=True))
    classes = [
        {
            "label": str(int(c)),
            "task": None,
            "images": int((truth == c).sum()),
            "before": int(before[truth == c].sum()),
            "negative": int(negative[truth == c].sum()),
            "positive": int(positive[truth == c].sum()),
        }
        for c in truth.unique()
    ]
    return {
        "against": 1,
        "images": len(truth),
        "negative": int(negative.sum()),
        "positive": int(positive.sum()),
        "classes": classes,  # type: ignore[typeddict-item]
        "pictures": [],
        "missing": None,
    }


def _count_flips_of_task(
    task: _TaskPredictionsByOldAndNewVersion, against: int
) -> TaskDriftFlipCounts:
    right, best_right = task.old == task.truth, task.best == task.truth
    return TaskDriftFlipCounts(
        task=task.number,
        against=against,
        images=len(task.truth),
        negative=int((right & ~best_right).sum()),
        positive=int((best_right & ~right).sum()),
    )


def _judge_accuracy_losses_by_gate(
    tasks: Sequence[_TaskPredictionsByOldAndNewVersion],
    drifts: list[TaskDriftFlipCounts],
    new: tuple[int, int] | None,
    gate: GateLimits = NEW_GATE,
) -> list[GateCheck]:
    """Judge losses as the gate does, with one of its settings."""
    forgotten, lost, confused = [], [], []
    for task in tasks:
        right, best_right, now = (
            task.old == task.truth,
            task.best == task.truth,
            task.now == task.truth,
        )
        forgotten.append((task.truth, right, right & ~best_right, best_right & ~right))
        lost.append((task.truth, right, right & ~now, now & ~right))
        confused.append((task.truth, right, right & task.is_new, now & ~right))
    counts = dict.fromkeys(("images", "negative", "positive"), 0)
    nothing = {"against": 1, **counts, "classes": [], "pictures": []}
    missing: GateComparison = {**nothing, "missing": "not compared"}  # type: ignore[typeddict-item]
    drifts = sorted(
        drifts, key=lambda one: compute_one_sided_mcnemar_p(one["negative"], one["positive"])
    )
    drifted: GateDriftComparison = {
        **missing,
        "missing": None if drifts else missing["missing"],
        "tasks": drifts,
        "compared": len(drifts),
    }
    correct, images = new or (0, 0)
    learned: GateComparison = {**missing, "missing": None, "images": images, "positive": correct}
    losses: GateComparisons = {
        "forgotten": _count_lost_and_gained_predictions(forgotten),
        "confused": _count_lost_and_gained_predictions(confused),
        "class_lost": _count_lost_and_gained_predictions(lost),
        "drifted": drifted,
        "new": learned if new else missing,
        "known": missing,
        "visible": {"images": 0, "loss": None, "more": None, "then": None},
    }
    return build_version_comparison_gate_checks(gate, losses, "")


def _print_largest_accuracy_losses_of_streams(
    streams: Sequence[GateStudyStream],
    features: dict[str, GateStudyFeatures],
    heads: dict[str, Learn],
    orders: int,
) -> None:
    print(
        "\nstreams of new classes: largest significant loss, smallest share right (versions that "
        "the limit holds)"
    )
    print("| stream | head | versions | held | " + " | ".join(CHECKS) + " |")
    for stream in streams:
        data = features[stream.images if isinstance(stream.images, str) else stream.name]
        for head, learn in heads.items():
            worst: dict[str, float] = {}
            held_counts: Counter[str] = Counter()
            versions = 0
            for order in range(orders):
                for checks, strict in _learn_stream_and_yield_gate_checks(
                    stream, data, learn, order
                ):
                    versions += 1
                    held_counts.update(check["name"] for check in checks if not check["passed"])
                    held_counts.update(
                        ["held"] if any(not check["passed"] for check in checks) else []
                    )
                    _update_worst_checks(worst, strict)
            values = [f"{worst[name]:.3f}" if name in worst else "–" for name in CHECKS]
            cells = [
                f"{value} ({held_counts[name]})" for value, name in zip(values, CHECKS, strict=True)
            ]
            print(
                f"| {stream.name} | {head} | {versions} | {held_counts['held']} | {' | '.join(cells)} |",
                flush=True,
            )


def _update_worst_checks(worst: dict[str, float], checks: list[GateCheck]) -> None:
    """Update the largest significant loss and the lowest class accuracy of a judged version."""
    for check in checks:
        name, value = check["name"], check["value"]
        is_share_right = name in ("class_lost", "learned_nothing")
        if value is None or (check["passed"] and not is_share_right):
            continue
        worst[name] = (min if is_share_right else max)(worst.get(name, value), value)


def _learn_stream_and_yield_gate_checks(
    stream: GateStudyStream, data: GateStudyFeatures, learn: Learn, order: int
) -> Iterator[tuple[list[GateCheck], list[GateCheck]]]:
    """Learn the classes of a data set in random order, batch after batch.

    Yields the checks of every version but the first, by the gate of a new model and by `STRICT`.
    """
    generator = torch.Generator().manual_seed(order)
    count = min(data.class_count, MOST_CLASSES.get(stream.name, data.class_count))
    classes = torch.randperm(data.class_count, generator=generator)[:count].tolist()
    size = stream.classes_per_task
    labelled_rows: list[tuple[Tensor, Tensor]] = []
    current: str | None = None
    heads: list[tuple[int, Head]] = []
    best: dict[int, list[tuple[int, Tensor]]] = {}
    for number in range(1, count // size + 1):
        known_count = number * size
        for row in range(known_count - size, known_count):
            rows = _find_rows_of_class(data.train[1], classes[row])
            rows = _draw_random_rows(rows, stream.train_per_class, generator)
            labelled_rows.append((rows, torch.full((len(rows),), row)))
        picked, labels = (torch.cat(column) for column in zip(*labelled_rows, strict=True))
        head, current = learn(data.train[0][picked], labels, known_count, current)
        heads.append((known_count, head))
        if number > 1:
            yield _judge_new_head_by_gate(data, classes, size, heads, best)
        for task in range(1, number + 1):
            features, _ = _select_task_test_features(data, classes, size, task)
            best.setdefault(task, []).append((known_count, heads[-1][1](features).argmax(1)))


def _select_task_test_features(
    data: GateStudyFeatures, classes: list[int], size: int, task: int
) -> tuple[Tensor, Tensor]:
    rows = [_find_rows_of_class(data.test[1], c) for c in classes[(task - 1) * size : task * size]]
    truth = torch.cat(
        [torch.full((len(class_rows),), (task - 1) * size + i) for i, class_rows in enumerate(rows)]
    )
    return data.test[0][torch.cat(rows)], truth


def _judge_new_head_by_gate(
    data: GateStudyFeatures,
    classes: list[int],
    size: int,
    heads: list[tuple[int, Head]],
    best: dict[int, list[tuple[int, Tensor]]],
) -> tuple[list[GateCheck], list[GateCheck]]:
    (before, old), (_, new) = heads[-2:]
    number, tasks, drifts = len(heads), [], []
    for task in range(1, number):
        features, truth = _select_task_test_features(data, classes, size, task)
        scores = new(features)
        now = scores.argmax(1)
        old_predictions = old(features).argmax(1)
        tasks.append(
            _TaskPredictionsByOldAndNewVersion(
                task, truth, old_predictions, scores[:, :before].argmax(1), now, now >= before
            )
        )
        if size == 1:
            continue  # as the service, which asks for two classes
        known_count, rows = max(
            best[task][-LAST_VERSIONS:], key=lambda one: int((one[1] == truth).sum())
        )
        drifts.append(
            _count_flips_of_task(
                _TaskPredictionsByOldAndNewVersion(
                    task, truth, rows, scores[:, :known_count].argmax(1), now, now < 0
                ),
                1,
            )
        )
    features, truth = _select_task_test_features(data, classes, size, number)
    right = int((new(features).argmax(1) == truth).sum())
    learned = (right, len(truth))
    return _judge_accuracy_losses_by_gate(tasks, drifts, learned), _judge_accuracy_losses_by_gate(
        tasks, drifts, learned, STRICT
    )


if __name__ == "__main__":
    main()
