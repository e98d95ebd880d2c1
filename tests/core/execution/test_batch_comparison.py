"""A decoded batch beside earlier tasks: those that the line was taught contradict it, and no
others.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.database.tables import Model, Task
from core.errors import Rejected
from core.execution.batch_comparison import add_earlier_task_duplicates_to_report
from core.ingest.dataset import write_image_dataset_file
from core.ingest.findings import contradictions
from core.ingest.findings.batch_data import find_near_duplicates_in_batch
from core.ingest.findings.traces import ImageFingerprints, write_image_fingerprints
from core.ingest.ingest import HELD_OUT, TRACES, TRAIN, IngestedBatch
from core.statistics import near_duplicates

SHAPE = (8, 8, 3)


def draw_noise_images(*numbers: int) -> np.ndarray:
    """Draw an image of noise for each number."""
    return np.stack(
        [np.random.default_rng(one).integers(0, 256, SHAPE, dtype=np.uint8) for one in numbers]
    )


def make_traces(images: np.ndarray, labels: list[str], folder: str) -> ImageFingerprints:
    classes = sorted(set(labels))
    return ImageFingerprints(
        near_duplicates.hash_images_perceptually(images),
        np.zeros((0, 2), np.uint64),
        [f"{folder}/{row}.png" for row in range(len(images))],
        contradictions.digest_pixels_of_each_image(images),
        np.array([classes.index(label) for label in labels], np.int64),
        classes,
    )


def make_batch(folder: Path, images: np.ndarray, labels: list[str]) -> IngestedBatch:
    """Make a batch as decoding leaves it, which asks to be rejected where it contradicts itself or
    others.
    """
    traces = make_traces(images, labels, "new")
    assert traces.labels is not None
    write_image_dataset_file(folder / TRAIN, traces.labels, SHAPE, [images])
    write_image_dataset_file(folder / HELD_OUT, traces.labels[:0], SHAPE, [])
    write_image_fingerprints(folder / TRACES, traces)
    found: Any = {
        "data": {
            "near_duplicates": find_near_duplicates_in_batch(
                traces, np.zeros(len(images), np.bool_)
            )
        }
    }
    found |= contradictions.find_label_contradictions_in_batch(
        traces, lambda row: images[row]
    ).to_report()
    found["conflicts_policy"] = "reject"
    paths = folder / TRAIN, folder / HELD_OUT, folder / TRACES
    return IngestedBatch(*paths, {}, traces.classes, len(images), 0, found, [])


def store_traces(desk: Any, job_id: str, traces: ImageFingerprints, **values: Any) -> None:
    path = desk.folder / "kept"
    write_image_fingerprints(path, traces)
    sha256, _ = desk.blobs.put_file(path)
    desk.change(Task, desk.task(job_id).id, traces_sha256=sha256, traces_bytes=1, **values)


@pytest.fixture
def batch(tmp_path: Path) -> IngestedBatch:
    """Two images: number 1 as a dog, and one that no task has."""
    folder = tmp_path / "batch"
    folder.mkdir()
    return make_batch(folder, draw_noise_images(1, 9), ["dog", "dog"])


def report_duplicates(desk: Any, model_id: str, batch: IngestedBatch) -> Any:
    (model,) = desk.all(Model, id=model_id)
    return add_earlier_task_duplicates_to_report(desk.db, desk.blobs, model, None, batch)


STANDINGS = ("held", "rolled_back", "skipped", "discarded", None)


def test_an_image_that_was_learned_under_another_label_rejects_the_batch(
    desk: Any, batch: IngestedBatch
) -> None:
    model = desk.model()
    job = desk.submit(model)
    store_traces(
        desk, job, make_traces(draw_noise_images(4, 1), ["cat", "cat"], "old"), standing="learned"
    )
    made = report_duplicates(desk, model, batch)
    (conflict,) = made.report["conflicts"]
    assert conflict["paths"] == ["old/1.png", "new/0.png"] and conflict["labels"] == ["cat", "dog"]
    assert conflict["task"] == 1 and conflict["picture"].startswith("data:image/jpeg")
    assert made.report["data"]["conflicts"] == made.report["conflicts_count"] == 1
    assert made.warnings[0].startswith(
        "The same image has two classes: “old/1.png” is “cat” in task 1"
    )
    with pytest.raises(Rejected, match="task 1 had the wrong label"):
        contradictions.refuse_unaccepted_label_contradictions(made.report)


@pytest.mark.parametrize("standing", STANDINGS)
def test_a_task_that_the_line_was_not_taught_contradicts_nothing(
    desk: Any, batch: IngestedBatch, standing: str | None
) -> None:
    model = desk.model()
    job = desk.submit(model)
    store_traces(desk, job, make_traces(draw_noise_images(1), ["cat"], "old"), standing=standing)
    assert report_duplicates(desk, model, batch).report["conflicts_count"] == 0


def test_tasks_of_the_task_scenario_do_not_contradict_each_other(
    desk: Any, batch: IngestedBatch
) -> None:
    model = desk.model("task")
    job = desk.submit(model)
    store_traces(desk, job, make_traces(draw_noise_images(1), ["cat"], "old"), standing="learned")
    assert report_duplicates(desk, model, batch).report["conflicts_count"] == 0


def test_a_task_without_digests_is_named_as_not_compared(desk: Any, batch: IngestedBatch) -> None:
    model = desk.model()
    job = desk.submit(model)
    older = make_traces(draw_noise_images(1), ["cat"], "old")
    older = ImageFingerprints(older.train, older.held_out, older.names)
    store_traces(desk, job, older, standing="learned")
    report = report_duplicates(desk, model, batch).report
    assert (report["conflicts_count"], report["conflicts_not_compared"]) == (0, [1])


def test_a_task_whose_images_were_deleted_contradicts_nothing(
    desk: Any, batch: IngestedBatch
) -> None:
    model = desk.model()
    job = desk.submit(model)
    traces = make_traces(draw_noise_images(1), ["cat"], "old")
    store_traces(desk, job, traces, standing="learned", held_out_deleted_at=1.0)
    assert report_duplicates(desk, model, batch).report["conflicts_count"] == 0


def test_contradictions_of_the_batch_in_itself_stay_in_its_report(
    desk: Any, tmp_path: Path
) -> None:
    model = desk.model()
    job = desk.submit(model)
    store_traces(desk, job, make_traces(draw_noise_images(3), ["cat"], "old"), standing="learned")
    made = make_batch(tmp_path, draw_noise_images(3, 5, 5), ["dog", "cow", "pig"])
    report = report_duplicates(desk, model, made).report
    assert [one.get("task") for one in report["conflicts"]] == [None, 1]
    assert report["conflicts_count"] == 2
