"""The command `perennial compare-methods`: its options, its errors, and a whole run with a service
of its own.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from core.packaged import imagenet_base, packaged_base
from tools.commands import ROWS, compare_methods
from tools.compare_methods.outcome import WORDS


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(compare_methods, arguments)


def draw_class_folders(folder: Path, *labels: str) -> Path:
    """Draw twelve grey images of each class, darker from class to class."""
    for number, label in enumerate(labels):
        (folder / label).mkdir(parents=True)
        for image in range(12):
            level = 250 - 60 * number - image
            pixels = np.full((32, 32, 3), level, np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{image:02}.png")
    return folder


def test_the_rows_that_can_be_left_out_are_those_of_the_table() -> None:
    assert tuple(WORDS) == ROWS


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 1, "1 class. A comparison needs at least two"),
        (("--model", "[]"), 2, "--model [] is not a JSON object. Fields of a model are allowed"),
        (("--model", "{"), 2, "--model { is not a JSON object"),
        (
            ("--base", "random"),
            2,
            f"Possible are {imagenet_base.NAME} and {packaged_base.PACKAGED}",
        ),
        (("--batches", "1"), 2, "'--batches'"),
        (
            tuple(part for row in ROWS for part in ("--without", row)),
            1,
            "Every row is left out. A comparison needs at least one",
        ),
    ],
)
def test_a_comparison_that_cannot_be_made_says_why_and_what_is_allowed(
    tmp_path: Path, arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = run_command(str(draw_class_folders(tmp_path / "photos", "cat")), *arguments)
    assert (done.exit_code, words in " ".join(done.output.split())) == (status, True), done.output


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "it is empty" in run_command(str(tmp_path / "empty")).output


def test_the_base_that_is_not_installed_is_named_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        imagenet_base, "explain_missing_imagenet_base", lambda: "the package is not installed"
    )
    done = run_command(str(draw_class_folders(tmp_path / "photos", "cat", "dog")))
    assert done.exit_code == 1
    assert f"--base {packaged_base.PACKAGED}" in done.output


# tests/client/test_compare_methods.py compares on a service that runs already
@pytest.mark.campaign
@pytest.mark.slow
def test_a_whole_run_starts_a_service_of_its_own_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        os.environ, "PERENNIAL_DATABASE_URL", "sqlite:////nowhere/of-another-service.db"
    )
    packaged = (
        "--base",
        packaged_base.PACKAGED,
        "--model",
        f'{{"base": "{packaged_base.PACKAGED}"}}',
    )
    folder, file = (
        draw_class_folders(tmp_path / "photos", "cat", "dog", "owl", "elk"),
        tmp_path / "figures.json",
    )
    left_out = ("lda", "logistic", "finetune", "full")
    without = [part for row in left_out for part in ("--without", row)]
    done = run_command(str(folder), *without, *packaged, "--json", str(file))
    assert done.exit_code == 0, done.output
    document = json.loads(file.read_text())
    assert [row["row"] for row in document["rows"]] == [row for row in ROWS if row not in left_out]
    assert len(done.stdout.splitlines()) == len(ROWS) - len(left_out)
    assert document["base"] == packaged_base.PACKAGED and document["estimated_seconds"] > 0
