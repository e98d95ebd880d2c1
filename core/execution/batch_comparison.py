"""Comparison of a batch with earlier tasks: near duplicates and contradicting labels."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import or_, select
from sqlalchemy.orm import load_only

from core.contract.reports.report import BatchReport
from core.database.session import Database
from core.database.tables import Model, Task
from core.errors import StoredObjectDamaged
from core.ingest.dataset import Images, memory_map_image_dataset
from core.ingest.findings.batch_data import (
    EarlierTaskWithFingerprints,
    add_near_duplicates_of_earlier_tasks,
)
from core.ingest.findings.contradictions import (
    LabelContradictions,
    add_label_contradictions_with_earlier_tasks,
    describe_label_conflicts,
)
from core.ingest.findings.traces import ImageFingerprints, read_image_fingerprints
from core.ingest.ingest import IngestedBatch, make_reader_of_image_pixels
from core.lineage.standing import TaskStanding
from core.storage import Blobs

MOST_TASKS = 1_000
"""Maximum number of earlier tasks to compare with, newest first."""
TOGETHER = 200_000
"""Maximum number of images of earlier tasks compared with a batch at once."""


class _EarlierTaskWithHashFileDigest(NamedTuple):
    """An earlier task with the digest of its trace file (image hashes), and whether the lineage was
    taught it.
    """

    number: int
    traces_sha256: str | None
    is_learned: bool


def add_earlier_task_duplicates_to_report(
    db: Database,
    blobs: Blobs,
    model: Model,
    before: int | None,
    batch: IngestedBatch,
    *,
    near: bool = True,
) -> IngestedBatch:
    """Report images of a decoded batch that contradict or nearly duplicate images of earlier tasks.

    Only tasks that the lineage was taught can contradict: a discarded one may be the wrong copy of
    this batch. In the task scenario each task has its own classes, so none contradicts another.

    Args:
        before: number of the batch's own task; None if it has none, so that all tasks are earlier.
        near: look for near duplicates, too.
    """
    batch_traces = read_image_fingerprints(batch.traces)
    contradictions, not_compared = LabelContradictions.from_report(batch.report), list[int]()

    def load_picture_of_batch_image(row: int) -> Images:
        # Opened only here: pictures are made of the first few contradictions alone.
        return make_reader_of_image_pixels(
            [memory_map_image_dataset(path) for path in (batch.train, batch.held_out)]
        )(row)

    def compare_and_iterate_earlier_tasks(
        tasks: Iterator[_EarlierTaskWithHashFileDigest],
    ) -> Iterator[EarlierTaskWithFingerprints]:
        together, images = list[tuple[int, ImageFingerprints]](), 0
        for task in tasks:
            traces = (
                None
                if task.traces_sha256 is None
                else _read_image_hashes_if_undamaged(blobs, task.traces_sha256)
            )
            if task.is_learned and model.scenario != "task":
                if (
                    batch_traces.pixels is not None
                    and traces is not None
                    and traces.pixels is not None
                ):
                    together.append((task.number, traces))
                    images += len(traces.names)
                else:
                    # Traces of earlier releases lack digests of the pixels.
                    not_compared.append(task.number)
            # In groups: all tasks at once may not fit into memory, one by one takes longer.
            if images > TOGETHER:
                add_label_contradictions_with_earlier_tasks(
                    contradictions, batch_traces, together, load_picture_of_batch_image
                )
                together.clear()
                images = 0
            yield EarlierTaskWithFingerprints(task.number, traces)
        if together:
            add_label_contradictions_with_earlier_tasks(
                contradictions, batch_traces, together, load_picture_of_batch_image
            )

    earlier = compare_and_iterate_earlier_tasks(
        _iterate_earlier_tasks_with_hashes(db, model.id, before)
    )
    data = batch.report["data"]
    if near:
        data = {
            **data,
            "near_duplicates": add_near_duplicates_of_earlier_tasks(
                data["near_duplicates"], batch_traces, earlier
            ),
        }
    else:
        # Without a reader, the generator would compare nothing.
        for _ in earlier:
            pass
    report: BatchReport = {
        **batch.report,
        **contradictions.to_report(),
        "data": {**data, "conflicts": contradictions.equal.count},
        # Contradictions are found while the tasks are iterated.
        "conflicts_not_compared": sorted(not_compared),
    }
    summary = describe_label_conflicts(report)
    other_warnings = [
        text for text in batch.warnings if text != describe_label_conflicts(batch.report)
    ]
    return replace(
        batch, report=report, warnings=[summary, *other_warnings] if summary else other_warnings
    )


def _iterate_earlier_tasks_with_hashes(
    db: Database, model_id: str, before: int | None
) -> Iterator[_EarlierTaskWithHashFileDigest]:
    """Yield earlier tasks that still have images or image hashes, the newest first."""
    has_data = or_(Task.traces_sha256.is_not(None), Task.held_out_sha256.is_not(None))
    query = select(Task).where(
        Task.model_id == model_id, has_data, Task.held_out_deleted_at.is_(None)
    )
    if before is not None:
        query = query.where(Task.number < before)
    query = query.order_by(Task.number.desc()).limit(MOST_TASKS)
    with db.read() as session:
        rows = session.scalars(
            # The rest of the row contains the task's whole report.
            query.options(load_only(Task.number, Task.traces_sha256, Task.standing))
        )
        tasks = [
            _EarlierTaskWithHashFileDigest(
                task.number, task.traces_sha256, task.standing == TaskStanding.LEARNED
            )
            for task in rows
        ]
    # Outside of the transaction, which must not stay open while tasks are compared.
    yield from tasks


def _read_image_hashes_if_undamaged(blobs: Blobs, sha256: str) -> ImageFingerprints | None:
    """Read a task's trace file of image hashes; None if it is missing or damaged.

    Return None if they are gone or damaged, since the batch is learned all the same.
    """
    try:
        return read_image_fingerprints(blobs.fetch_verified_file(sha256))
    except (StoredObjectDamaged, ValueError):
        return None
