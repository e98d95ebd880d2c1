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
from bench.research.closed_forms import Features, Prepared, Scores, encode, fit_auto, pass_images
from core.contract.figures import Calibration
from core.learning.analytic import discriminant
from core.learning.analytic.sums import Sums
from core.learning.evaluation.calibration.error import (
    build_precision_curve,
    compute_calibration_error,
    measure_calibration,
)
from core.learning.evaluation.calibration.held_out import Logits
from core.learning.evaluation.calibration.temperature import fit_temperature
from core.statistics.sureness import choose_threshold

SPLITS, SIX, SMALL, UNKNOWN, NOISE = 100, 6, 2, 4, 100
"""Random halves; images of a small batch, and classes that come as one; every fourth class is never
taught; images of each other kind."""
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
PROMISES = (0.9, 0.95, 0.98)


@dataclass(frozen=True)
class Said:
    """Answers of a head to held-out images: logits by the classes that it knows, and the right
    rows.
    """

    logits: Tensor
    targets: Tensor

    @property
    def temperature(self) -> float:
        return fit_temperature(self.logits, self.targets)

    def answers(self, temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each prediction, and whether it is correct."""
        probabilities, rows = (self.logits.double() / temperature).softmax(1).max(1)
        return probabilities.numpy(), (rows == self.targets).numpy()

    def some(self, rows: Tensor) -> "Said":
        return Said(self.logits[rows], self.targets[rows])


def main() -> None:
    """Print the tables of calibration errors, confident predictions and unknown classes."""
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
        *closed_forms.bundled_streams(options.data),
        closed_forms.read_photos(options.photos),
    ]
    streams = [
        stream for stream in streams if options.stream is None or stream.name in options.stream
    ]
    for base, backbone in closed_forms.read_backbones(options.cache).items():
        if options.base is not None and base not in options.base:
            continue
        found = {
            stream.name: closed_forms.compute_features(stream, base, backbone, options.cache)
            for stream in streams
        }
        print(f"\n{base}", flush=True)
        said = {name: ask_all(of_stream) for name, of_stream in found.items()}
        print_errors(said)
        print_sure(said)
        print_unknown(found, backbone, options.unknown)
        print_six(found)


def ask_all(found: Features) -> Said:
    """Predict the held-out images by a head of all classes."""
    return answer_features(
        fit_auto(found.train, found.labels, found.classes), found.held_out, found.expected
    )


def print_errors(streams: dict[str, Said]) -> None:
    """Print calibration errors before and after the temperature."""
    print_head("stream | images | accuracy | temperature | error before | error after")
    for name, said in streams.items():
        after = measure_calibration(Logits(said.logits.float(), said.targets), said.temperature)
        assert after is not None, "50 images are held out"
        before = compute_calibration_error(*said.answers(1.0))
        right = said.answers(1.0)[1].mean()
        print_row(
            name,
            len(said.targets),
            f"{right:.3f}",
            f"{said.temperature:.3g}",
            format_calibration(before),
            format_calibration(after),
        )


def print_six(streams: dict[str, Features]) -> None:
    """Print how much six images of a class, in the mean over classes, change probabilities of other
    predictions.
    """
    print_head(
        "stream | moved by a batch of six, temperature 1 | temperature of the held-out images"
    )
    for name, found in streams.items():
        moved: dict[bool, list[float]] = {False: [], True: []}
        for c in range(SMALL):
            before, after = (answer_with_few(found, c, few) for few in (0, SIX))
            for scaled in moved:
                moved[scaled].append(compute_mean_change(before, after, c, scaled))
        print_row(name, *(f"{np.mean(moved[scaled]):.3f}" for scaled in (False, True)))


def answer_with_few(found: Features, rare: int, few: int) -> Said:
    """Predict held-out images by a head that was fitted to `few` images of the class `rare`; with
    none it has no row.

    Of the class `rare` one image is held out, as of a batch of six.
    """
    kept = closed_forms.keep_few(found.labels, rare, few)
    labels = found.labels[kept]
    if few:
        asked = found.expected != rare
        asked[(~asked).nonzero()[0]] = True
        scores = fit_auto(found.train[kept], labels, found.classes)
        return answer_features(scores, found.held_out[asked], found.expected[asked])
    scores = fit_auto(found.train[kept], labels - (labels > rare).long(), found.classes - 1)
    old = found.expected != rare
    expected = found.expected[old]
    return answer_features(scores, found.held_out[old], expected - (expected > rare).long())


def compute_mean_change(before: Said, after: Said, rare: int, scaled: bool) -> float:
    """Return the mean absolute change of the correct class's probability, for images of old
    classes.
    """
    columns = torch.arange(after.logits.shape[1]) != rare
    old = after.targets != rare

    def right(said: Said) -> Tensor:
        return (said.logits.double() / (said.temperature if scaled else 1.0)).softmax(1)

    first = right(before).gather(1, before.targets[:, None])
    then = right(after)[old][:, columns].gather(1, before.targets[:, None])
    return float((first - then).abs().mean())


def print_sure(streams: dict[str, Said]) -> None:
    """Print how often the promised precision is kept on the half of the images that did not set the
    threshold.
    """
    print_head(
        "stream | promised | halves with a threshold | promise reached in | broken in | mean "
        "coverage"
    )
    for name, said in streams.items():
        for promise in PROMISES:
            shares, covers = split_often(said, promise)
            reached = sum(share >= promise for share in shares)
            cover = f"{np.mean(covers):.2f}" if covers else "–"
            print_row(
                name,
                promise,
                len(shares),
                f"{reached} of {len(shares)}",
                len(shares) - reached,
                cover,
            )


def split_often(said: Said, promise: float) -> tuple[list[float], list[float]]:
    """Return precision and coverage on the other half, for those of `SPLITS` random halves that
    have a threshold.
    """
    shares, covers = [], []
    for seed in range(SPLITS):
        order = torch.randperm(len(said.targets), generator=torch.Generator().manual_seed(seed))
        mine, other = (said.some(rows) for rows in order.tensor_split(2))
        temperature = mine.temperature
        threshold = choose_threshold(
            build_precision_curve(*mine.answers(temperature)), promise
        ).threshold
        if threshold is None:
            continue
        probabilities, right = other.answers(temperature)
        sure = probabilities >= threshold
        shares.append(float(right[sure].mean()) if sure.any() else 1.0)
        covers.append(float(sure.mean()))
    return shares, covers


def print_unknown(
    streams: dict[str, Features], backbone: Prepared, folders: Sequence[Path]
) -> None:
    """Print how well known classes are told from unknown ones; each folder has images of one
    unknown class.
    """
    draw = np.random.default_rng(0)
    noise = [(encode(draw.integers(0, 256, (64, 64), dtype=np.uint8)), 0) for _ in range(NOISE)]
    blank = [
        (encode(np.full((64, 64), level, np.uint8)), 0) for level in np.linspace(0, 255, NOISE)
    ]
    kinds = {"noise": pass_images(noise, backbone), "blank": pass_images(blank, backbone)}
    for folder in folders:
        files = [
            path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES
        ]
        chosen = [files[number] for number in draw.permutation(len(files))[:NOISE]]
        kinds[folder.name] = pass_images([(path.read_bytes(), 0) for path in chosen], backbone)
    print_head("stream | unknown | AUROC of the probability | of the Mahalanobis distance")
    for name, found in streams.items():
        taught = found.labels % UNKNOWN != 0
        known = found.expected % UNKNOWN != 0
        names = torch.unique(found.labels[taught])
        labels = torch.searchsorted(names, found.labels[taught])
        scores = fit_auto(found.train[taught], labels, len(names))
        inside = found.held_out[known]
        temperature = answer_features(
            scores, inside, torch.searchsorted(names, found.expected[known])
        ).temperature
        far = make_distance_score(found.train[taught], labels, len(names))
        sure = make_confidence_score(scores, temperature)
        for kind, unknown in {"classes never taught": found.held_out[~known], **kinds}.items():
            print_row(name, kind, *(f"{auroc(by(inside), by(unknown)):.2f}" for by in (sure, far)))


def make_confidence_score(scores: Scores, temperature: float) -> Callable[[Tensor], Tensor]:
    """Return a function that gives the probability of the predicted class."""
    return lambda features: (scores(features).double() / temperature).softmax(1).amax(1)


def make_distance_score(h: Tensor, labels: Tensor, classes: int) -> Callable[[Tensor], Tensor]:
    """Return a function that gives the negative squared Mahalanobis distance to the nearest class
    mean.
    """
    sums = Sums.make_empty(h.shape[1], classes)
    sums.add_examples(h, labels)
    sigma = discriminant.compute_shared_covariance(sums)
    sigma = discriminant.shrink_covariance(
        sigma, discriminant.compute_oas_shrinkage(sigma, sums.examples)
    )
    inverse, means = torch.linalg.inv(sigma), discriminant.compute_class_means(sums)

    def near(features: Tensor) -> Tensor:
        found = []
        for mean in means:
            away = features.double() - mean
            found.append(((away @ inverse) * away).sum(1))
        return -torch.stack(found, 1).amin(1)

    return near


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Return the AUROC: how often a known image has a higher score than an unknown one; ties count
    half.
    """
    more = (inside[:, None] > outside[None]).double().mean()
    return float(more + (inside[:, None] == outside[None]).double().mean() / 2)


def answer_features(scores: Scores, features: Tensor, targets: Tensor) -> Said:
    """Predict classes from features by a head."""
    return Said(scores(features), targets)


def format_calibration(found: Calibration) -> str:
    return f"{found.error:.3f} ({found.low:.3f} to {found.high:.3f})"


def print_head(columns: str) -> None:
    """Print the first lines of a Markdown table."""
    names = columns.split(" | ")
    print("\n| " + columns + " |\n| " + " | ".join(["---"] * len(names)) + " |", flush=True)


def print_row(*cells: object) -> None:
    """Print a line of a Markdown table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
