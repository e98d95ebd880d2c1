"""Data report of a batch with planted faults, over HTTP: findings, hold, release and deletion."""

import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from perennial import JobRejected
from tests.e2e import small
from tests.live_files import list_live_files
from tests.rest import Rest
from tools import service

pytestmark = pytest.mark.slow

FLIPPED, COPIES, HELD_OUT = 0.08, 10, 30
FIRST, SECOND = range(60, 360), range(360, 760)
"""Rows of the digits that each batch brings for training; earlier rows are for measuring."""
PIXELS, DIGITS = load_digits(return_X_y=True)
LARGE = np.rint(PIXELS.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
OVERRIDE = {"epochs": 2, "data_report": "hold"}


def encode_digit(row: int, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(LARGE[row]).resize((32, 32), Image.Resampling.BICUBIC).save(
        out, kind, **options
    )
    return out.getvalue()


def build_flawed_batch(
    rows: range, *, held_out: int, flipped: set[int], again: range = range(0)
) -> tuple[bytes, set[str]]:
    """Pack digits, and pack those of `again` once more as JPEG.

    Return the zip and the names of the images that have a wrong label.
    """
    generator = np.random.default_rng(0)
    files, wrong = {}, set()
    for row in rows:
        right = DIGITS[row]
        label = (right + int(generator.integers(1, 10))) % 10 if row in flipped else right
        name = f"train/{label}/{row:04d}.png"
        wrong |= {name} if row in flipped else set()
        files[name] = encode_digit(row)
    files |= {
        f"train/{DIGITS[row]}/copy-{row:04d}.jpg": encode_digit(row, "JPEG", quality=90)
        for row in again
    }
    tests = range(held_out, held_out + HELD_OUT)
    files |= {f"test/{DIGITS[row]}/{row:04d}.png": encode_digit(row) for row in tests}
    return small.pack_zip(files), wrong


class Site:
    """A model that learned a clean batch, and then received one with faults.

    Its recipe holds the faulty batch.
    """

    def __init__(self, running: service.RunningService, client: Rest) -> None:
        self.folder, self.client = running.data_dir, client
        network = {
            "architecture": {"name": "mlp", "hidden": [128]},
            "image": {"size": 32, "channels": 1},
        }
        model = small.create_small_model(client, "digits", "er", recipe={"seed": 0}, **network)
        self.model = model.id
        small.learn_batches(
            client, "digits", build_flawed_batch(FIRST, held_out=0, flipped=set())[0]
        )
        flipped = set(
            np.random.default_rng(0).permutation(SECOND)[: int(FLIPPED * len(SECOND))].tolist()
        )
        data, self.wrong = build_flawed_batch(
            SECOND, held_out=HELD_OUT, flipped=flipped, again=range(COPIES)
        )
        self.job = client.submit("digits", data, recipe=OVERRIDE)
        with pytest.raises(JobRejected):
            self.job.wait(240)
        self.held = client.tasks.retrieve("digits", 2)

    def traces(self, task: int) -> list[Path]:
        """Return the file of a task's near-duplicate traces, by the digest in the database."""
        with sqlite3.connect(self.folder / "perennial.db", timeout=60) as database:
            query = "SELECT traces_sha256 FROM tasks WHERE model_id = ? AND number = ?"
            ((sha256,),) = database.execute(query, (self.model, task)).fetchall()
        return [path for path in list_live_files(self.folder) if sha256 in path.name]


@pytest.fixture(scope="module")
def site(running: service.RunningService, client: Rest) -> Site:
    return Site(running, client)


def get_data_report(task: Any) -> Any:
    return task.report.data


def test_a_clean_batch_is_told_of_and_learned(site: Site) -> None:
    task = site.client.tasks.retrieve("digits", 1)
    found = get_data_report(task)
    assert task.version == 1 and not [one for one in found.findings if one.holds]
    assert found.balance["3"].held_out and found.examined == task.n_train
    assert found.shift is None and found.cost_s > 0
    assert found.near_duplicates.earlier == [] and found.near_duplicates.complete


def test_flipped_labels_are_among_the_suspects_with_path_and_index(site: Site) -> None:
    found = get_data_report(site.held)
    accused = {one.path for one in found.suspects}
    right = accused & site.wrong
    assert len(right) >= 0.6 * len(site.wrong) and len(right) >= 0.7 * len(accused)
    one = next(one for one in found.suspects if one.path in right)
    assert one.path.split("/")[1] == one.label != one.suggested
    answer = site.client.call("GET", f"/v1/models/digits/tasks/2/images/train/{one.index}.png")
    shown = np.asarray(Image.open(io.BytesIO(answer.content)).convert("L")).astype(int)
    row = int(Path(one.path).stem)
    meant = np.asarray(Image.open(io.BytesIO(encode_digit(row)))).astype(int)
    assert np.abs(shown - meant).max() <= 1, "index and path name the same image"


def test_copies_of_held_out_images_of_an_earlier_task_are_told(site: Site) -> None:
    (earlier,) = get_data_report(site.held).near_duplicates.earlier
    copied = {pair.path for pair in earlier.examples if pair.path and "copy-" in pair.path}
    assert (earlier.task, len(copied)) == (1, COPIES) and earlier.held_out >= COPIES
    assert any("flattered" in one.text for one in get_data_report(site.held).findings)


def test_a_held_batch_is_rejected_with_what_was_found_and_what_to_send(site: Site) -> None:
    job = site.job.refresh()
    assert (job.state, job.error.code) == ("rejected", "data-held")
    assert "may have a wrong label" in job.error.detail
    body = json.dumps({"recipe": {**OVERRIDE, "data_report": "warn"}})
    assert f"POST /v1/jobs/{job.id}/retry {body}" in job.error.detail
    assert site.held.standing == "rejected" and site.held.can_relearn


def test_what_was_held_is_learned_by_the_retry_that_it_names_and_then_deleted(site: Site) -> None:
    job = site.client.jobs.retry(site.job.id, recipe={**OVERRIDE, "data_report": "warn"}).wait(240)
    assert (job.version, site.client.jobs.retrieve(site.job.id).state) == (2, "succeeded")
    task = site.client.tasks.retrieve("digits", 2)
    said = "may have a wrong label"
    assert task.standing == "learned" and not any(
        said in text for text in task.warnings
    )  # a person has seen it
    assert any(said in one.text for one in get_data_report(task).findings)

    first, second = site.traces(1), site.traces(2)
    assert first and second
    site.client.tasks.delete_data("digits", 2)
    assert not any(path.exists() for path in second) and all(path.exists() for path in first)
    site.client.models.delete("digits")
    assert not any(path.exists() for path in first)
