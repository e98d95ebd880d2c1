"""A comparison from a folder to its table: read, split, decode, estimate, then run each row.

`compare_and_print_update_methods` is the body of the command; `compare_methods` is the comparison itself.
"""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from core.machine import count_usable_cpus
from core.packaged import imagenet_base
from perennial import Perennial
from perennial.cli.output import print_notice, print_table
from tools import service
from tools.compare_methods.base import ComparisonBase, load_base
from tools.compare_methods.by_service import ROW, learn_batches_by_service
from tools.compare_methods.errors import ComparisonImpossible
from tools.compare_methods.folder import LabelledPhotos, list_labelled_photos
from tools.compare_methods.outcome import (
    COLUMNS,
    WORDS,
    UpdateOutcome,
    build_comparison_table_rows,
    build_method_result_json,
)
from tools.compare_methods.pixels import SplitPixels, decode_split_images
from tools.compare_methods.split import SplitSettings, draw_batch_split
from tools.compare_methods.today import BaselineUpdates
from tools.compare_methods.training import (
    measure_feature_seconds_per_image,
    measure_training_seconds_per_image,
)

Say = Callable[[str], None]
Serve = Callable[[], AbstractContextManager[Perennial]]
EXTRA = "perennial-service[compare]"
PROGRESS_IMAGES = 200
"""Number of images between lines of progress while images are read."""
SHOWN_SKIPPED = 3


LONG_S = 20 * 60.0
"""Seconds above which the estimate says how to shorten the comparison."""


@dataclass(frozen=True)
class SecondsPerImage:
    """Measured seconds per image for decoding, feature extraction and a training step."""

    decode: float
    features: float
    training: float


@dataclass(frozen=True)
class ComparisonTimeEstimateInputs:
    """Amount of work of a comparison: images to learn and to evaluate on, and epochs."""

    learned: int
    held_out: int
    epochs: int


@dataclass(frozen=True)
class ComparisonOptions:
    """Options of a comparison of update methods: sample size, epochs, base, rows.

    Attributes:
        sample: size of the split.
        epochs: epochs of each training.
        base: base of the rows other than Perennial's.
        rows: rows of the table.
        model: fields of Perennial's model beside its name and scenario; empty for the service's
            defaults.
    """

    sample: SplitSettings = field(default_factory=SplitSettings)
    epochs: int = 5
    base: str = imagenet_base.NAME
    rows: tuple[str, ...] = tuple(WORDS)
    model: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MethodComparisonResults:
    """Results of a comparison of update methods, as rows and as JSON."""

    outcomes: list[UpdateOutcome]
    document: dict[str, Any]


@contextmanager
def start_temporary_service() -> Iterator[Perennial]:
    """Start a Perennial service in a temporary folder, and yield a client of it."""
    with (
        tempfile.TemporaryDirectory(prefix="perennial-compare-") as folder,
        service.run_temporary_service(Path(folder) / "data", inherits_settings=False) as running,
        Perennial(running.key, base_url=running.url) as client,
    ):
        yield client


def count_usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    # A container may have fewer cores than its machine.
    return count_usable_cpus()


def compare_and_print_update_methods(
    folder: Path, options: ComparisonOptions, json_file: Path | None
) -> None:
    """Compare update methods on a folder of images; print the table, and write JSON if asked.

    Progress is printed on standard error.

    Raises:
        ComparisonImpossible: see `compare_methods`.
    """
    torch.set_num_threads(count_usable_cores())
    with _exit_on_sigterm_within_block():
        comparison = compare_methods(folder, options, print_notice)
    print_table(COLUMNS, build_comparison_table_rows(comparison.outcomes), "No row was asked for.")
    for outcome in comparison.outcomes:
        for note in outcome.notes:
            print_notice(f"{outcome.row}: {note}")
    print_notice(f"Measured in {comparison.document['seconds']:.0f} s.")
    if json_file is not None:
        json_file.write_text(json.dumps(comparison.document, ensure_ascii=False, indent=2) + "\n")


@contextmanager
def _exit_on_sigterm_within_block() -> Iterator[None]:
    """Within the block, raise SystemExit on SIGTERM, so that started services end, too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def compare_methods(
    folder: Path, options: ComparisonOptions, say: Say, serve: Serve = start_temporary_service
) -> MethodComparisonResults:
    """Train and evaluate every method on the same split of a folder of images.

    Args:
        folder: folder of labelled images.
        options: choices of the comparison.
        say: called with a line of progress.
        serve: starts the service for Perennial's row.

    Raises:
        ComparisonImpossible: the folder, the options or missing packages prevent it; the message says what
            to do.
    """
    start_time = time.perf_counter()
    # First, so that a missing library is reported before minutes of decoding.
    _require_libraries_of_compared_rows(options.rows)
    photos = list_labelled_photos(folder)
    split = draw_batch_split(photos.rows, options.sample)
    for warning in photos.warnings:
        say(f"warning: {warning}")
    with tempfile.TemporaryDirectory(prefix="perennial-compare-") as scratch:
        base = load_base(options.base, Path(scratch))
        data = decode_split_images(photos, split, base, Path(scratch), _make_progress_printer(say))
        _report_split_and_skipped_images(data, say)
        work = ComparisonTimeEstimateInputs(
            len(data.learned.labels), len(data.held_out.labels), options.epochs
        )
        rates = _measure_seconds_per_image(data, base, options.rows)
        say(describe_estimated_comparison_time(rates, work, options.rows, count_usable_cores()))
        outcomes = _run_compared_methods(data, photos, base, options, say, serve)
    document = {
        **_build_comparison_setup_json(data, options),
        "cores": count_usable_cores(),
        "estimated_seconds": estimate_comparison_seconds(rates, work, options.rows),
        "seconds": time.perf_counter() - start_time,
        "rows": [build_method_result_json(outcome) for outcome in outcomes],
    }
    return MethodComparisonResults(outcomes, document)


def _run_compared_methods(
    data: SplitPixels,
    photos: LabelledPhotos,
    base: ComparisonBase,
    options: ComparisonOptions,
    say: Say,
    serve: Serve,
) -> list[UpdateOutcome]:
    today = BaselineUpdates(data, base, options.epochs, options.sample.seed, say)
    runs: dict[str, Callable[[], UpdateOutcome]] = {
        "lda": today.fit_discriminant_analysis,
        "logistic": today.fit_logistic_regression,
        "finetune": today.finetune_on_each_batch,
        "full": today.retrain_on_all_batches,
    }
    outcomes = [run() for row, run in runs.items() if row in options.rows]
    if ROW in options.rows:
        # Started only now, so that it takes no cores from the rows before.
        with serve() as client:
            outcomes.append(learn_batches_by_service(client, data, photos, options.model, say))
    return outcomes


def _require_libraries_of_compared_rows(rows: tuple[str, ...]) -> None:
    if not rows:
        raise ComparisonImpossible(
            f"Every row is left out. A comparison needs at least one of {', '.join(WORDS)}. Send "
            f"fewer --without."
        )
    needing = [row for row in ("lda", "logistic") if row in rows]
    if needing and find_spec("sklearn") is None:
        without = " ".join(f"--without {row}" for row in needing)
        raise ComparisonImpossible(
            f"scikit-learn is not installed, and {' and '.join(needing)} need it. Install it with "
            f"pip install '{EXTRA}', or leave them out: {without}."
        )


def _make_progress_printer(say: Say) -> Callable[[int, int], None]:
    def print_read_images(done: int, total: int) -> None:
        if done % PROGRESS_IMAGES == 0 and done < total:
            say(f"{done:,} of {total:,} images read")

    return print_read_images


def _report_split_and_skipped_images(data: SplitPixels, say: Say) -> None:
    names = ", ".join(name for name, _ in data.skipped[:SHOWN_SKIPPED])
    if data.skipped:
        count = len(data.skipped)
        subject = f"{count} images were" if count > 1 else "1 image was"
        say(
            f"warning: {subject} skipped as unreadable: "
            f"{names}{' …' if count > SHOWN_SKIPPED else ''}"
        )
    sizes = ", ".join(str(len(batch)) for batch in data.batches)
    say(
        f"{len(data.classes)} classes in {len(data.batches)} batches of new classes ({sizes}): "
        f"{len(data.learned.labels):,} images to learn from, {len(data.held_out.labels):,} held out"
    )


def _measure_seconds_per_image(
    data: SplitPixels, base: ComparisonBase, rows: tuple[str, ...]
) -> SecondsPerImage:
    """Measure seconds per image of decoding, features and (if needed) training, for an estimate."""
    network, images = base.build_network(0), data.select_training_images_of_batches(slice(None))
    features = measure_feature_seconds_per_image(network, base.build_input_conversion(), images)
    training = 0.0
    # A training step takes longest, and no other row needs its rate.
    if {"finetune", "full"} & set(rows):
        # Any head will do, since only the seconds count.
        network.add_task_classes(1, data.classes, "zero", torch.Generator())
        training = measure_training_seconds_per_image(
            network, base.build_input_conversion(), images
        )
    return SecondsPerImage(data.decode_s, features, training)


def _build_comparison_setup_json(data: SplitPixels, options: ComparisonOptions) -> dict[str, Any]:
    return {
        "classes": data.classes,
        "batches": [[data.classes[label] for label in batch] for batch in data.batches],
        "learned": len(data.learned.labels),
        "held_out": len(data.held_out.labels),
        "skipped": [{"image": name, "reason": reason} for name, reason in data.skipped],
        "base": options.base,
        "epochs": options.epochs,
        "model": dict(options.model),
        "sample": asdict(options.sample),
    }


def estimate_comparison_seconds(
    rates: SecondsPerImage, work: ComparisonTimeEstimateInputs, rows: Collection[str]
) -> float:
    """Estimate how many seconds the methods of the comparison take."""
    images = work.learned + work.held_out
    training = work.epochs * work.learned * rates.training + work.held_out * rates.features
    each = {
        "finetune": training,
        "full": training,
        # The service gets files and decodes them itself, while the other rows share the pixels.
        "perennial": images * (rates.decode + rates.features),
    }
    shared = images * rates.features if {"lda", "logistic"} & set(rows) else 0.0
    return shared + sum(seconds for row, seconds in each.items() if row in rows)


def describe_estimated_comparison_time(
    rates: SecondsPerImage, work: ComparisonTimeEstimateInputs, rows: Collection[str], cores: int
) -> str:
    """Describe in a sentence how long the comparison will take."""
    total_seconds = estimate_comparison_seconds(rates, work, rows)
    text = f"This takes about {_format_duration_in_words(total_seconds)} on {cores} core{'' if cores == 1 else 's'}"
    if "full" in rows:
        without_full = estimate_comparison_seconds(
            rates, work, [row for row in rows if row != "full"]
        )
        text += f"; --without full about {_format_duration_in_words(without_full)}"
    if total_seconds > LONG_S:
        text += ". Fewer images (--images) or epochs (--epochs) make it shorter"
    return f"{text}."


def _format_duration_in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    return f"{round(seconds / 60)} minutes"
