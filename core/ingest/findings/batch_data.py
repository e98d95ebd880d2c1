"""Findings about a batch that need no network: balance of its classes, and near duplicates."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.contract.reports.data_report import (
    ClassCount,
    DataReport,
    Near,
    NearDuplicates,
    NearEarlier,
)
from core.ingest.findings.traces import ImageFingerprints
from core.statistics import near_duplicates
from core.statistics.near_duplicates import Rows

FEW = 5
"""Images of a class below which it is named: it is hardly learned, and not measured."""
MAX_FEW = 100
EXAMPLES = 20
MAX_EARLIER = 8_000_000
"""Most hashes of earlier tasks compared with a batch, the newest tasks first: about a minute."""
GROUP_IMAGES, GROUP_CELLS = 100_000, 4_000_000
"""Most images of earlier tasks in one search, and most cells (task, image of the batch) of its result."""


class EarlierTaskWithFingerprints(NamedTuple):
    """An earlier task with the fingerprints of its images; None if it has none or they are damaged."""

    number: int
    traces: ImageFingerprints | None


def build_class_balance_report(counts: Mapping[str, ClassCount]) -> DataReport:
    """Return the number of images of each class, their imbalance ratio, and the classes with few
    images.
    """
    sizes = [count["images"] for count in counts.values()]
    few = sorted(label for label, count in counts.items() if count["images"] < FEW)
    ratio = round(max(sizes) / max(1, min(sizes)), 2) if sizes else 1.0
    return {"balance": dict(counts), "imbalance_ratio": ratio, "few": few[:MAX_FEW]}


def find_near_duplicates_in_batch(
    traces: ImageFingerprints, digests_repeat: npt.NDArray[np.bool_]
) -> NearDuplicates:
    """Find images of a batch that look nearly the same, by perceptual hashes.

    Args:
        digests_repeat: bool [N], training part first: True for an image whose bytes repeat an
            earlier one; it counts as a duplicate instead.
    """
    within_batch = near_duplicates.find_near_duplicates_within(traces.all_perceptual_hashes)
    rows = np.flatnonzero((within_batch.near >= 0) & ~digests_repeat)
    leaked = near_duplicates.find_near_duplicates_between(traces.held_out, traces.train)
    leaked_rows = np.flatnonzero(leaked.near >= 0)
    names = traces.names
    return {
        "within": _build_near_duplicates_entry(rows, within_batch.near[rows], names, names),
        "held_out": _build_near_duplicates_entry(
            # `names` has the training part first.
            leaked_rows + len(traces.train),
            leaked.near[leaked_rows],
            names,
            names,
        ),
        "earlier": [],
        "not_compared": [],
        "complete": within_batch.complete and leaked.complete,
    }


def add_near_duplicates_of_earlier_tasks(
    duplicates: NearDuplicates,
    traces: ImageFingerprints,
    earlier: Iterator[EarlierTaskWithFingerprints],
) -> NearDuplicates:
    """Add the batch's near duplicates in earlier tasks to those within the batch.

    Args:
        duplicates: the result of `find_near_duplicates_in_batch`.
        earlier: earlier tasks, the newest first.
    """
    compared, tasks, without = 0, list[NearEarlier](), list[int]()
    complete, group, images = duplicates["complete"], list[tuple[int, ImageFingerprints]](), 0

    def compare_task_group() -> None:
        nonlocal complete, images
        matches = near_duplicates.find_near_duplicates_against_each_group(
            traces.all_perceptual_hashes, [theirs.all_perceptual_hashes for _, theirs in group]
        )
        for (number, theirs), match in zip(group, matches, strict=True):
            complete = complete and match.complete
            rows = np.flatnonzero(match.near >= 0)
            if rows.size:
                tasks.append(
                    _find_near_duplicates_in_earlier_task(
                        number, rows, match.near[rows], traces, theirs
                    )
                )
        group.clear()
        images = 0

    for task in earlier:
        # Goes on to the end, so that each task that is not compared is listed.
        if task.traces is None or compared > MAX_EARLIER:
            without.append(task.number)
            continue
        compared += len(task.traces.names)
        images += len(task.traces.names)
        group.append((task.number, task.traces))
        # Bounds the memory of a search, and leaves it enough comparisons for each image.
        if images > GROUP_IMAGES or len(group) * len(traces.names) > GROUP_CELLS:
            compare_task_group()
    compare_task_group()
    return {
        **duplicates,
        # They were compared from the newest on; a report has them in order.
        "earlier": tasks[::-1],
        "not_compared": sorted(without),
        "complete": complete,
    }


def _find_near_duplicates_in_earlier_task(
    number: int,
    rows: Rows,
    similar_rows: Rows,
    traces: ImageFingerprints,
    earlier: ImageFingerprints,
) -> NearEarlier:
    """Return near duplicates of the batch in one earlier task; its held-out images come first."""
    trained = rows[rows < len(traces.train)]
    held_out_rows = near_duplicates.find_near_duplicates_between(
        traces.train[trained], earlier.held_out
    ).near
    flattered = held_out_rows >= 0
    # Named in place of a training image that is as similar, because accuracy on it is flattered.
    similar_rows[: len(trained)][flattered] = len(earlier.train) + held_out_rows[flattered]
    # Stable, so that rows keep their order among those that were held out, and among the others.
    order = np.argsort(
        ~np.concatenate([flattered, np.zeros(len(rows) - len(trained), np.bool_)]), kind="stable"
    )
    near_rows = _build_near_duplicates_entry(
        rows[order], similar_rows[order], traces.names, earlier.names
    )
    return {
        "task": number,
        "count": near_rows["count"],
        "held_out": int(flattered.sum()),
        "examples": near_rows["examples"],
    }


def _build_near_duplicates_entry(
    rows: Rows, similar_rows: Rows, names: list[str], earlier_names: list[str]
) -> Near:
    pairs = zip(rows[:EXAMPLES].tolist(), similar_rows[:EXAMPLES].tolist(), strict=True)
    return {
        "count": len(rows),
        "examples": [{"path": names[a], "like": earlier_names[b]} for a, b in pairs],
    }
