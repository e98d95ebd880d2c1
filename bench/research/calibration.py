"""Probabilities that can be trusted: calibration error, sure answers, and kinds that were never
taught.

    python -m bench.research.calibration --data DIR --photos FOLDER [--unknown FOLDER] [--base NAME]
        [--cache FOLDER]

DIR holds `mnist` and `cifar100`; FOLDER has photos as `<class>/<image>`. `--unknown` adds photos of
another kind, in folders of any depth; its name is that of the kind. Features, splits and the head
`auto` are those of `bench.research.closed_forms`, whose cache it shares. Each table is of held-out
images:

1. the calibration error with its 95 % interval, before and after the temperature;
2. sure answers: of 100 random halves, in how many the other half reaches the promised precision;
3. the area under the ROC curve that tells known classes from unknown kinds, by the probability of
   the answer and by the Mahalanobis distance to the nearest class mean;
4. how far a batch of six images of one class moves the probability of the other classes' images.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.research import closed_forms
from bench.research.closed_forms import (
    BackboneWithImagePreparation,
    DataSetFeatures,
    Scores,
    compute_image_features,
    encode_grey_png,
    fit_head_chosen_by_auto,
)
from core.contract.figures import Calibration
from core.learning.analytic import discriminant
from core.learning.analytic.sums import FeatureSums
from core.learning.evaluation.calibration.error import (
    build_precision_curve,
    compute_calibration_error,
    measure_version_calibration,
)
from core.learning.evaluation.calibration.held_out import HeldOutLogits
from core.learning.evaluation.calibration.temperature import fit_softmax_temperature
from core.statistics.confidence_threshold import choose_confidence_threshold

SPLITS, SIX, SMALL, UNKNOWN, NOISE = 100, 6, 2, 4, 100
"""Random halves; images of a small batch, and classes that come as one; every fourth class is never
taught; images of each other kind."""
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
PROMISES = (0.9, 0.95, 0.98)


@dataclass(frozen=True)
class HeldOutPredictions:
    """A head's logits for held-out images, with the indices of the correct classes."""

    logits: Tensor
    targets: Tensor

    @property
    def fitted_temperature(self) -> float:
        return fit_softmax_temperature(self.logits, self.targets)

    def compute_confidences_and_correctness(
        self, temperature: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each prediction, and whether it is correct."""
        probabilities, rows = (self.logits.double() / temperature).softmax(1).max(1)
        return probabilities.numpy(), (rows == self.targets).numpy()

    def select_rows(self, rows: Tensor) -> "HeldOutPredictions":
        return HeldOutPredictions(self.logits[rows], self.targets[rows])


def main() -> None:
    """Print how well probabilities are calibrated and unknown classes detected, for each head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--unknown", type=Path, action="append", default=[])
    parser.add_argument("--base", action="append", help="default: both bases of the package")
    parser.add_argument("--stream", action="append", help="default: all")
    parser.add_argument("--cache", type=Path, default=Path("build/closed-forms"))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.cache.mkdir(parents=True, exist_ok=True)
    streams = [
        *closed_forms.iterate_closed_form_data_sets(options.data),
        closed_forms.read_photo_data_set(options.photos),
    ]
    streams = [
        stream for stream in streams if options.stream is None or stream.name in options.stream
    ]
    for base, backbone in closed_forms.load_packaged_backbones(options.cache).items():
        if options.base is not None and base not in options.base:
            continue
        features = {
            stream.name: closed_forms.compute_cached_features(stream, base, backbone, options.cache)
            for stream in streams
        }
        print(f"\n{base}", flush=True)
        predictions = {
            name: fit_head_and_predict_held_out(of_stream) for name, of_stream in features.items()
        }
        print_calibration_errors(predictions)
        print_precision_on_unseen_halves(predictions)
        print_unknown_class_detection(features, backbone, options.unknown)
        print_probability_changes_by_new_class(features)


def fit_head_and_predict_held_out(features: DataSetFeatures) -> HeldOutPredictions:
    """Predict held-out images with a head fitted to all classes."""
    return predict_from_features(
        fit_head_chosen_by_auto(features.train, features.labels, features.class_count),
        features.held_out,
        features.expected,
    )


def print_calibration_errors(streams: dict[str, HeldOutPredictions]) -> None:
    """Print calibration errors before and after temperature scaling."""
    print_markdown_table_head(
        "stream | images | accuracy | temperature | error before | error after"
    )
    for name, predictions in streams.items():
        after = measure_version_calibration(
            HeldOutLogits(predictions.logits.float(), predictions.targets),
            predictions.fitted_temperature,
        )
        assert after is not None, "50 images are held out"
        before = compute_calibration_error(*predictions.compute_confidences_and_correctness(1.0))
        right = predictions.compute_confidences_and_correctness(1.0)[1].mean()
        print_markdown_table_row(
            name,
            len(predictions.targets),
            f"{right:.3f}",
            f"{predictions.fitted_temperature:.3g}",
            format_calibration(before),
            format_calibration(after),
        )


def print_probability_changes_by_new_class(streams: dict[str, DataSetFeatures]) -> None:
    """Print how much six images of a new class change the probabilities of other classes."""
    print_markdown_table_head(
        "stream | moved by a batch of six, temperature 1 | temperature of the held-out images"
    )
    for name, features in streams.items():
        moved: dict[bool, list[float]] = {False: [], True: []}
        for c in range(SMALL):
            before, after = (
                predict_with_head_fitted_to_rare_class(features, c, few) for few in (0, SIX)
            )
            for scaled in moved:
                moved[scaled].append(compute_mean_probability_change(before, after, c, scaled))
        print_markdown_table_row(
            name, *(f"{np.mean(moved[scaled]):.3f}" for scaled in (False, True))
        )


def predict_with_head_fitted_to_rare_class(
    features: DataSetFeatures, rare: int, few: int
) -> HeldOutPredictions:
    """Predict held-out images with a head fitted to only `few` images of the class `rare`.

    Of the class `rare` one image is held out, as of a batch of six.
    """
    train_rows = closed_forms.select_rows_with_rare_class(features.labels, rare, few)
    labels = features.labels[train_rows]
    if few:
        is_evaluated = features.expected != rare
        is_evaluated[(~is_evaluated).nonzero()[0]] = True
        scores = fit_head_chosen_by_auto(features.train[train_rows], labels, features.class_count)
        return predict_from_features(
            scores, features.held_out[is_evaluated], features.expected[is_evaluated]
        )
    scores = fit_head_chosen_by_auto(
        features.train[train_rows], labels - (labels > rare).long(), features.class_count - 1
    )
    old = features.expected != rare
    expected = features.expected[old]
    return predict_from_features(
        scores, features.held_out[old], expected - (expected > rare).long()
    )


def compute_mean_probability_change(
    before: HeldOutPredictions, after: HeldOutPredictions, rare: int, scaled: bool
) -> float:
    """Return the mean absolute change of the correct class's probability between two heads."""
    columns = torch.arange(after.logits.shape[1]) != rare
    old = after.targets != rare

    def compute_calibrated_probabilities(predictions: HeldOutPredictions) -> Tensor:
        return (
            predictions.logits.double() / (predictions.fitted_temperature if scaled else 1.0)
        ).softmax(1)

    first = compute_calibrated_probabilities(before).gather(1, before.targets[:, None])
    probabilities_after = compute_calibrated_probabilities(after)[old][:, columns].gather(
        1, before.targets[:, None]
    )
    return float((first - probabilities_after).abs().mean())


def print_precision_on_unseen_halves(streams: dict[str, HeldOutPredictions]) -> None:
    """Print how often the promised precision is kept on images that did not set the threshold."""
    print_markdown_table_head(
        "stream | promised | halves with a threshold | promise reached in | broken in | mean "
        "coverage"
    )
    for name, predictions in streams.items():
        for promise in PROMISES:
            shares, covers = measure_precision_on_halves(predictions, promise)
            reached = sum(share >= promise for share in shares)
            cover = f"{np.mean(covers):.2f}" if covers else "–"
            print_markdown_table_row(
                name,
                promise,
                len(shares),
                f"{reached} of {len(shares)}",
                len(shares) - reached,
                cover,
            )


def measure_precision_on_halves(
    predictions: HeldOutPredictions, promise: float
) -> tuple[list[float], list[float]]:
    """Measure precision and coverage on random halves whose other half set the threshold."""
    shares, covers = [], []
    for seed in range(SPLITS):
        order = torch.randperm(
            len(predictions.targets), generator=torch.Generator().manual_seed(seed)
        )
        mine, other = (predictions.select_rows(rows) for rows in order.tensor_split(2))
        temperature = mine.fitted_temperature
        threshold = choose_confidence_threshold(
            build_precision_curve(*mine.compute_confidences_and_correctness(temperature)), promise
        ).threshold
        if threshold is None:
            continue
        probabilities, right = other.compute_confidences_and_correctness(temperature)
        sure = probabilities >= threshold
        shares.append(float(right[sure].mean()) if sure.any() else 1.0)
        covers.append(float(sure.mean()))
    return shares, covers


def print_unknown_class_detection(
    streams: dict[str, DataSetFeatures],
    backbone: BackboneWithImagePreparation,
    folders: Sequence[Path],
) -> None:
    """Print how well images of unknown classes are separated from known ones."""
    draw = np.random.default_rng(0)
    noise = [
        (encode_grey_png(draw.integers(0, 256, (64, 64), dtype=np.uint8)), 0) for _ in range(NOISE)
    ]
    blank = [
        (encode_grey_png(np.full((64, 64), level, np.uint8)), 0)
        for level in np.linspace(0, 255, NOISE)
    ]
    kinds = {
        "noise": compute_image_features(noise, backbone),
        "blank": compute_image_features(blank, backbone),
    }
    for folder in folders:
        files = [
            path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES
        ]
        chosen = [files[number] for number in draw.permutation(len(files))[:NOISE]]
        kinds[folder.name] = compute_image_features(
            [(path.read_bytes(), 0) for path in chosen], backbone
        )
    print_markdown_table_head(
        "stream | unknown | AUROC of the probability | of the Mahalanobis distance"
    )
    for name, features in streams.items():
        taught = features.labels % UNKNOWN != 0
        is_known = features.expected % UNKNOWN != 0
        names = torch.unique(features.labels[taught])
        labels = torch.searchsorted(names, features.labels[taught])
        scores = fit_head_chosen_by_auto(features.train[taught], labels, len(names))
        inside = features.held_out[is_known]
        temperature = predict_from_features(
            scores, inside, torch.searchsorted(names, features.expected[is_known])
        ).fitted_temperature
        distance_scorer = make_distance_scorer(features.train[taught], labels, len(names))
        sure = make_confidence_scorer(scores, temperature)
        for kind, unknown in {
            "classes never taught": features.held_out[~is_known],
            **kinds,
        }.items():
            print_markdown_table_row(
                name,
                kind,
                *(
                    f"{compute_auroc(scorer(inside), scorer(unknown)):.2f}"
                    for scorer in (sure, distance_scorer)
                ),
            )


def make_confidence_scorer(scores: Scores, temperature: float) -> Callable[[Tensor], Tensor]:
    """Return a function that scores how known features are, by the predicted class's probability."""
    return lambda features: (scores(features).double() / temperature).softmax(1).amax(1)


def make_distance_scorer(h: Tensor, labels: Tensor, classes: int) -> Callable[[Tensor], Tensor]:
    """Return a function that scores how known features are, by distance to the nearest class mean."""
    sums = FeatureSums.make_empty_sums(h.shape[1], classes)
    sums.add_examples(h, labels)
    sigma = discriminant.compute_shared_covariance(sums)
    sigma = discriminant.shrink_covariance(
        sigma, discriminant.compute_oas_shrinkage(sigma, sums.example_count)
    )
    inverse, means = torch.linalg.inv(sigma), sums.class_means

    def compute_negative_distance(features: Tensor) -> Tensor:
        distances = []
        for mean in means:
            away = features.double() - mean
            distances.append(((away @ inverse) * away).sum(1))
        return -torch.stack(distances, 1).amin(1)

    return compute_negative_distance


def compute_auroc(inside: Tensor, outside: Tensor) -> float:
    """Return the AUROC of known against unknown images' scores; ties count half."""
    more = (inside[:, None] > outside[None]).double().mean()
    return float(more + (inside[:, None] == outside[None]).double().mean() / 2)


def predict_from_features(scores: Scores, features: Tensor, targets: Tensor) -> HeldOutPredictions:
    """Predict logits from features with a fitted head."""
    return HeldOutPredictions(scores(features), targets)


def format_calibration(calibration: Calibration) -> str:
    return f"{calibration.error:.3f} ({calibration.low:.3f} to {calibration.high:.3f})"


def print_markdown_table_head(columns: str) -> None:
    """Print the heading of a Markdown table."""
    names = columns.split(" | ")
    print("\n| " + columns + " |\n| " + " | ".join(["---"] * len(names)) + " |", flush=True)


def print_markdown_table_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
