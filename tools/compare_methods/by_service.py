"""Perennial's row: the same batches sent through HTTP and learned with the service's defaults."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from perennial import Perennial
from tools.compare_methods.errors import ComparisonImpossible
from tools.compare_methods.folder import LabelledPhotos
from tools.compare_methods.outcome import UpdateOutcome
from tools.compare_methods.pixels import DecodedLabelledImages, SplitPixels

ROW = "perennial"
JOB_TIMEOUT_S = 3600.0


def learn_batches_by_service(
    client: Perennial,
    data: SplitPixels,
    photos: LabelledPhotos,
    fields: Mapping[str, Any],
    say: Callable[[str], None],
) -> UpdateOutcome:
    """Learn every batch with a running Perennial service, and evaluate the last version.

    Args:
        client: client of the service.
        data: the split.
        photos: the images of the folder.
        fields: fields of the new model beside name and scenario; empty for the service's defaults.
        say: called with a line of progress.

    Raises:
        ComparisonImpossible: a batch is not learned.
    """
    model = client.models.create(f"compare-{time.time_ns():x}", scenario="class", **fields).name
    seconds, version, notes = 0.0, 0, []
    for number, labels in enumerate(data.batches, start=1):
        batch = {
            "train": _read_images_by_class(photos, data.classes, data.learned, labels),
            "test": _read_images_by_class(photos, data.classes, data.held_out, labels),
        }
        start_time = time.perf_counter()
        # check=False: a held version is promoted below instead of ending the comparison.
        job = client.submit(model, batch, name=f"batch-{number}").wait(JOB_TIMEOUT_S, check=False)
        # Overwritten by every batch: the table shows the time of the last one.
        seconds = time.perf_counter() - start_time
        if job.version is None:
            reason = job.error.detail if job.error else f"its job is {job.state}."
            raise ComparisonImpossible(
                f"Perennial did not learn batch {number}: {reason} A comparison needs every batch. "
                f"Leave the row out with --without {ROW}."
            )
        version = job.version
        say(f"{ROW}: batch {number} of {len(data.batches)} learned in {seconds:.0f} s")
        if job.outcome == "held":
            notes.append(
                f"The gate held version {version}; it was promoted, so that the next batch went on."
            )
            client.aliases.promote(model, version, reason="compared with other methods")
    images_kept = client.memory.retrieve(model).items
    return UpdateOutcome(
        ROW, _fetch_correct_counts_by_class(client, model, version), seconds, images_kept, notes
    )


def _read_images_by_class(
    photos: LabelledPhotos, classes: list[str], part: DecodedLabelledImages, labels: list[int]
) -> dict[str, list[bytes]]:
    images_by_class: dict[str, list[bytes]] = {classes[label]: [] for label in labels}
    for number, label in zip(part.numbers, part.labels.tolist(), strict=True):
        if label in labels:
            images_by_class[classes[label]].append(photos.read_image_bytes(number))
    return images_by_class


def _fetch_correct_counts_by_class(
    client: Perennial, model: str, version: int
) -> dict[str, tuple[int, int]]:
    right: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for task in client.versions.results(model, version):
        for label, counts in task.per_class.items():
            right[label] += counts[0]
            total[label] += counts[1]
    return {label: (right[label], total[label]) for label in total}
