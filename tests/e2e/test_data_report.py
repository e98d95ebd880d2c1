"""A batch with planted faults through HTTP: what is said of it, what holds it, what lets it pass, and what is
left of it."""

import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from perennial import JobRejected, Perennial
from tools import service

pytestmark = pytest.mark.share(4, together=True)

FLIPPED, COPIES = 0.08, 10
PIXELS, DIGITS = load_digits(return_X_y=True)
LARGE = np.rint(PIXELS.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)


def png(image: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


def batch(rows: np.ndarray, faulty: bool, again: np.ndarray = DIGITS[:0]) -> tuple[bytes, set[str]]:
    """Digits as a zip; where it is faulty, labels are flipped; `again`: rows saved once more as JPEG. And
    what was flipped."""
    generator = np.random.default_rng(0)
    flipped = set(generator.permutation(rows)[: int(FLIPPED * len(rows))].tolist()) if faulty else set()
    out, wrong = io.BytesIO(), set()
    with zipfile.ZipFile(out, "w") as archive:
        for row in rows.tolist():
            label = (DIGITS[row] + int(generator.integers(1, 10))) % 10 if row in flipped else DIGITS[row]
            name = f"train/{label}/{row:04d}.png"
            wrong |= {name} if row in flipped else set()
            archive.writestr(name, png(LARGE[row]))
        for row in again.tolist():
            copy = io.BytesIO()
            Image.open(io.BytesIO(png(LARGE[row]))).save(copy, "JPEG", quality=90)
            archive.writestr(f"train/{DIGITS[row]}/copy-{row:04d}.jpg", copy.getvalue())
        for row in range(0, 60):
            archive.writestr(
                f"test/{DIGITS[row]}/{rows[0]}-{row:04d}.png", png(LARGE[row + int(rows[0] > 500) * 60])
            )
    return out.getvalue(), wrong


class Site:
    """A service that was taught a clean batch, and then sent one with faults that its recipe holds."""

    def __init__(self, folder: Path, running: service.Service, client: Perennial) -> None:
        self.folder, self.client, self.key, self.url = folder, client, running.key, running.url
        client.models.create("digits", scenario="class", recipe={"method": "er", "epochs": 1, "seed": 0})
        client.submit("digits", batch(np.arange(120, 620), faulty=False)[0]).wait(200)
        data, self.wrong = batch(np.arange(620, 1220), True, np.arange(COPIES))
        self.override = {"epochs": 2, "data_report": "hold"}
        self.job = client.submit("digits", data, recipe=self.override)
        with pytest.raises(JobRejected) as told:
            self.job.wait(200)
        self.told = str(told.value)
        self.held = client.tasks.retrieve("digits", 2)

    def rows(self, sql: str) -> list[Any]:
        (path,) = self.folder.rglob("perennial.db")
        with sqlite3.connect(path) as database:
            return database.execute(sql).fetchall()

    def blob(self, sha256: str) -> list[Path]:
        return [path for path in self.folder.rglob(f"*{sha256}*") if path.is_file()]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("data-report")
    with (
        service.running(folder, {"PERENNIAL_THREADS": "1"}) as running,
        Perennial(running.key, base_url=running.url) as client,
    ):
        yield Site(folder, running, client)


def report(task: Any) -> Any:
    return task.report.data


def test_a_clean_batch_is_told_of_and_learned(site: Site) -> None:
    task = site.client.tasks.retrieve("digits", 1)
    found = report(task)
    assert task.version == 1 and not [one for one in found.findings if one.holds]
    assert found.balance["3"].held_out and found.examined == task.n_train
    assert found.shift is None and found.cost_s > 0
    assert found.near_duplicates.earlier == [] and found.near_duplicates.complete


def test_flipped_labels_are_among_the_suspects_with_path_and_index(site: Site) -> None:
    found = report(site.held)
    accused = {one.path for one in found.suspects}
    right = accused & site.wrong
    assert len(right) >= 0.6 * len(site.wrong) and len(right) >= 0.7 * len(accused)
    one = next(one for one in found.suspects if one.path in right)
    assert one.path.split("/")[1] == one.label != one.suggested
    answer = httpx2.get(
        f"{site.url}/v1/models/digits/tasks/2/images/train/{one.index}.png",
        headers={"Authorization": f"Bearer {site.key}"},
    )
    shown = np.asarray(Image.open(io.BytesIO(answer.content)).convert("L")).astype(int)
    row = int(Path(one.path).stem)
    meant = np.asarray(Image.open(io.BytesIO(png(LARGE[row])))).astype(int)
    assert np.abs(shown - meant).max() <= 1, "index and path name the same image"


def test_copies_of_held_out_images_of_an_earlier_task_are_told(site: Site) -> None:
    (earlier,) = report(site.held).near_duplicates.earlier
    copied = {pair.path for pair in earlier.examples if pair.path and "copy-" in pair.path}
    assert (earlier.task, len(copied)) == (1, COPIES) and earlier.held_out >= COPIES
    assert any("flattered" in one.text for one in report(site.held).findings)


def test_a_held_batch_is_rejected_with_what_was_found_and_what_to_send(site: Site) -> None:
    job = site.job.refresh()
    assert (job.state, job.error.code) == ("rejected", "data-held")
    assert "may have a wrong label" in job.error.detail
    body = json.dumps({"recipe": {**site.override, "data_report": "warn"}})
    assert f"POST /v1/jobs/{job.id}/retry with {body}" in job.error.detail
    assert site.held.standing == "rejected" and site.held.can_relearn


def test_what_was_held_is_learned_by_the_retry_that_it_names_and_then_deleted(site: Site) -> None:
    assert (
        site.client.jobs.retry(site.job.id, recipe={**site.override, "data_report": "warn"}).wait(200).version
        == 2
    )
    task = site.client.tasks.retrieve("digits", 2)
    assert task.standing == "learned" and any("may have a wrong label" in text for text in task.warnings)
    assert site.client.jobs.retrieve(site.job.id).state == "succeeded"

    ((sha256,),) = site.rows("SELECT traces_sha256 FROM tasks WHERE number = 2")
    ((other,),) = site.rows("SELECT traces_sha256 FROM tasks WHERE number = 1")
    assert site.blob(sha256)
    site.client.tasks.delete_data("digits", 2)
    assert not site.blob(sha256) and site.blob(other)
    site.client.models.delete("digits")
    assert not site.blob(other)
