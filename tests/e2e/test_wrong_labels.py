"""Batches of known classes with wrong labels, through HTTP by the default method: a week whose
labels are all rotated is held, one with two classes swapped is learned with a warning."""

import io
from collections.abc import Mapping

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from perennial import GateHeld, JobHandle, types, words
from perennial.cli.batches.issues import list_finding_rows
from tests.e2e import small
from tests.rest import Rest

pytestmark = pytest.mark.slow

PIXELS, DIGITS = load_digits(return_X_y=True)
ROTATED = {0: 1, 1: 2, 2: 3, 3: 0}
SWAPPED = {0: 1, 1: 0, 2: 2, 3: 3, 4: 4}
QUESTION = "are the labels swapped or wrong?"


def pack_week(number: int, labels: Mapping[int, int]) -> bytes:
    """Pack 18 images to learn from and 6 to measure with of each digit, other ones each week.

    Args:
        labels: label of each digit.
    """
    files = {}
    for digit, label in labels.items():
        rows = np.flatnonzero(digit == DIGITS)[24 * number : 24 * (number + 1)]
        for place, row in enumerate(rows.tolist()):
            pixels = np.rint(PIXELS[row].reshape(8, 8) * (255 / 16)).astype(np.uint8)
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, "PNG")
            files[f"{'train' if place < 18 else 'test'}/{label}/{row:04d}.png"] = out.getvalue()
    return small.pack_zip(files)


def send_weeks(client: Rest, model: str, labels: Mapping[int, int]) -> JobHandle:
    """Learn a right week on the packaged base, and send one with these labels."""
    client.models.create(model, "class", image={"size": 32, "channels": 1})
    small.learn_batches(client, model, pack_week(0, {digit: digit for digit in labels}))
    return client.submit(model, pack_week(1, labels))


@pytest.fixture(scope="module")
def swapped(client: Rest) -> types.Task:
    """The task of a week with two of five digits swapped."""
    send_weeks(client, "swapped", SWAPPED).wait(240)
    return client.tasks.retrieve("swapped", 2)


def test_a_week_with_two_classes_swapped_is_learned_with_a_warning(swapped: types.Task) -> None:
    (warning,) = [text for text in swapped.warnings if QUESTION in text]
    assert "images labelled 0" in warning and "images labelled 1" in warning
    assert "labelled 2" not in warning and "labelled 3" not in warning
    assert "`perennial issues MODEL TASK`" in words.replace_requests_by_commands(warning)


def test_swapped_images_are_among_those_to_look_at(swapped: types.Task) -> None:
    rows = [row for row in list_finding_rows(swapped) if row[0] == "suspect"]
    found = [row for row in rows if (row[3], row[4]) in {("0", "1"), ("1", "0")}]
    assert len(found) >= 30
    assert all(str(row[2]).startswith(f"train/{row[3]}/") for row in found)


@pytest.mark.campaign  # tests/core/lineage/test_checks.py holds such a week with the question
def test_a_wholly_rotated_week_is_held_with_the_question(client: Rest) -> None:
    job = send_weeks(client, "rotated", ROTATED)
    with pytest.raises(GateHeld):
        job.wait(240)
    held, model = client.versions.retrieve("rotated", 2), client.models.retrieve("rotated")
    assert held.status == "held" and model.aliases["production"] == 1
    (check,) = [check for check in held.gate.checks if not check.passed]
    assert check.name == "learned_nothing"
    assert QUESTION in (check.detail or "")
    assert QUESTION in words.describe_held_version(model, held, None, job.id, client.connection.url)
    assert model.attention[0].actions[0].path.endswith("/discard")
