"""The command evaluate: a version's predictions for labelled images, without learning them."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from perennial.bars import show_listing_bar
from perennial.cli.command import DYNAMIC, VERSION, CommandContext, cli_command
from perennial.cli.listing import ListingFormat
from perennial.cli.models.predict import MOST_BYTES, MOST_IMAGES
from perennial.cli.output import Cell, is_stdout_terminal, print_notice, print_text
from perennial.errors import BadAnswer, ConfigError, PerennialError
from perennial.pack.tar_batch import GeneratedTarBatch
from perennial.text import format_count_with_noun, make_text_one_line
from perennial.types import Prediction

Z95 = 1.959964
"""Normal quantile of a two-sided 95 % interval."""
PAIRS = 10
"""Maximum number of confused pairs on a terminal."""
TABLES = {
    "classes": ("class", "images", "right", "accuracy", "said", "precision", "most often called"),
    "confusion": ("class", "called", "images"),
    "images": ("image", "class", "called", "sure"),
}
"""Possible listings with their columns. `said`: number of images with this predicted label."""


@dataclass
class EvaluatedPredictions:
    """Predictions of a version for labelled images, and the figures computed from them."""

    version: int | None = None
    rows: list[tuple[str, str, str, float]] = field(default_factory=list)
    """Name, label, predicted label and its probability, for each usable image."""
    unusable: list[tuple[str, str]] = field(default_factory=list)
    """Name of an image, and why it could not be used."""

    @property
    def correct_count(self) -> int:
        """Number of correctly predicted images."""
        return sum(label == called for _, label, called, _ in self.rows)

    def count_confused_classes(self) -> Counter[tuple[str, str]]:
        """Count incorrect predictions by (true class, predicted class)."""
        return Counter((label, called) for _, label, called, _ in self.rows if label != called)

    def build_class_rows(self) -> Iterator[tuple[Cell, ...]]:
        """Yield a table row for each class: images, correct predictions, most frequent confusion."""
        images = Counter(label for _, label, _, _ in self.rows)
        predicted = Counter(called for _, _, called, _ in self.rows)
        right = Counter(label for _, label, called, _ in self.rows if label == called)
        wrong = self.count_confused_classes()
        for label in sorted(images):
            most_confused = max(
                ((n, called) for (true_label, called), n in wrong.items() if true_label == label),
                default=None,
            )
            precision = right[label] / predicted[label] if predicted[label] else None
            called = None if most_confused is None else f"{most_confused[1]} ({most_confused[0]})"
            yield (
                label,
                images[label],
                right[label],
                right[label] / images[label],
                predicted[label],
                precision,
                called,
            )

    def build_json_document(self) -> dict[str, Any]:
        """Return the evaluation's figures and predictions for JSON output."""
        wrong = self.count_confused_classes()
        return {
            "version": self.version,
            "images": len(self.rows),
            "right": self.correct_count,
            "accuracy": self.correct_count / len(self.rows) if self.rows else None,
            "interval": compute_wilson_interval(self.correct_count, len(self.rows)),
            "classes": [
                # Without the last column, which is a text for people; `confusion` has it as data.
                dict(zip(TABLES["classes"][:-1], row, strict=False))
                for row in self.build_class_rows()
            ],
            "confusion": [
                {"class": a, "called": b, "images": n} for (a, b), n in wrong.most_common()
            ],
            "unusable": [{"image": name, "reason": why} for name, why in self.unusable],
        }


def compute_wilson_interval(right: int, images: int) -> tuple[float, float] | None:
    """Return the 95 % Wilson interval of a share of correct predictions; None without images."""
    if not images:
        return None
    # Wilson's, because the usual interval is too narrow for few images and shares near 0 or 1.
    share, square = right / images, Z95**2
    middle = (share + square / (2 * images)) / (1 + square / images)
    half = (
        Z95
        * math.sqrt(share * (1 - share) / images + square / (4 * images**2))
        / (1 + square / images)
    )
    # Rounding may lead slightly beyond 0 and 1.
    return max(0.0, middle - half), min(1.0, middle + half)


@cli_command(
    "evaluate", columns=DYNAMIC, short_help="Measure a version on labelled images of your own."
)
@click.argument("model")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@VERSION
@click.option("--task", type=int, help="In the scenario task: the task whose head predicts.")
@click.option(
    "--list",
    "listed",
    type=click.Choice(list(TABLES)),
    default="classes",
    show_default=True,
    help="What the rows show.",
)
@click.option(
    "--wrong", is_flag=True, help="With --list images: only those that are predicted wrongly."
)
def run_evaluate_version_command(
    shell: CommandContext,
    model: str,
    folder: Path,
    version: str,
    task: int | None,
    listed: str,
    wrong: bool,
) -> int:
    """Predict the labelled images in DIR, without learning them: accuracy, confusion, each class.

    DIR is a folder with one folder of images per class, or another data set that `perennial submit`
    accepts, but not an archive. Use images that the model has not learned; the accuracy on learned
    images would be too high. Exits with 1 if an image could not be used; the others are counted.
    """
    if wrong and listed != "images":
        raise click.UsageError("--wrong is for --list images.")
    # A wrong --columns ends the command before any image is sent.
    shell.form.select_column_indices(TABLES[listed])
    client, score = shell.create_client(), EvaluatedPredictions()
    source = open_labelled_images(folder)
    with show_listing_bar(sys.stderr.isatty(), "asked") as show:
        for batch in group_images_into_predict_requests(source):
            response = client.predict(
                model, [content for _, _, content in batch], version=version, top_k=1, task=task
            )
            if len(response.predictions) != len(batch):
                raise BadAnswer(
                    f"The service answered {len(response.predictions)} of {len(batch)} images."
                )
            # An alias may move between two requests; the figures would be of two versions.
            if score.version is not None and response.version != score.version:
                raise PerennialError(
                    f"{version} moved from version {score.version} to {response.version} in "
                    f"between: run it again, or name one with --version {response.version}."
                )
            score.version = response.version
            for (name, label, _), one in zip(batch, response.predictions, strict=True):
                if isinstance(one, Prediction):
                    score.rows.append(
                        (name, label, one.label, max(one.probabilities.values(), default=0.0))
                    )
                else:
                    score.unusable.append((name, one.error.detail))
            if show is not None:
                show(len(score.rows) + len(score.unusable), source.count)
    for name, why in score.unusable:
        print_notice(make_text_one_line(f"{name}: {why}"))
    shell.print_result(
        score.build_json_document(),
        lambda: _print_evaluation_result(shell, model, score, listed, wrong),
    )
    return 1 if score.unusable else 0


def _print_evaluation_result(
    shell: CommandContext, model: str, score: EvaluatedPredictions, listed: str, wrong: bool
) -> None:
    rows: Iterator[tuple[Cell, ...]]
    if listed == "classes":
        rows = score.build_class_rows()
    elif listed == "confusion":
        rows = ((*pair, number) for pair, number in score.count_confused_classes().most_common())
    else:
        rows = (row for row in score.rows if not wrong or row[1] != row[2])
    shell.form.print_rows(TABLES[listed], rows, "There is none.")
    around = compute_wilson_interval(score.correct_count, len(score.rows))
    if around is not None:
        print_notice(
            f"Version {score.version} of {model}: {score.correct_count:,} of {len(score.rows):,} images "
            f"right, {score.correct_count / len(score.rows):.1%} (95 %: {around[0]:.1%} to "
            f"{around[1]:.1%})."
        )
    if shell.form != ListingFormat() or not is_stdout_terminal():
        return
    if listed == "classes":
        for (label, called), number in score.count_confused_classes().most_common(PAIRS):
            images = format_count_with_noun(number, "image")
            print_text(f"  {make_text_one_line(f'“{label}” called “{called}”')}: {images}")


@dataclass(frozen=True)
class LabelledFolderImages:
    """Labelled images of a folder to evaluate a version on. `count`: number of images."""

    batch: GeneratedTarBatch
    count: int


def open_labelled_images(folder: Path) -> LabelledFolderImages:
    """Open a folder of labelled images to evaluate. Raises ConfigError if it has none."""
    from perennial.pack import PackError, open_batch

    try:
        batch = open_batch(folder)
    except PackError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(batch, GeneratedTarBatch):
        raise ConfigError(f"{folder} is an archive: unpack it, and name the folder.")
    return LabelledFolderImages(batch, batch.count)


def group_images_into_predict_requests(
    source: LabelledFolderImages,
) -> Iterator[list[tuple[str, str, bytes]]]:
    """Yield labelled images in lists that fit one predict request. Raises ConfigError."""
    images: list[tuple[str, str, bytes]] = []
    total_bytes = 0
    try:
        for one in source.batch.iterate_labelled_images():
            if images and (len(images) == MOST_IMAGES or total_bytes + len(one[2]) > MOST_BYTES):
                yield images
                images, total_bytes = [], 0
            images.append(one)
            total_bytes += len(one[2])
    # The message is a sentence for a person: a file has changed, or cannot be read.
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if images:
        yield images
