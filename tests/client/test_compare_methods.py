"""`perennial compare-methods` on a folder of small images, against a real service."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.packaged import packaged_base
from perennial import Perennial
from tools.compare_methods import comparison
from tools.compare_methods.comparison import ComparisonOptions, compare_methods
from tools.compare_methods.errors import ComparisonImpossible
from tools.compare_methods.outcome import WORDS
from tools.compare_methods.split import SplitSettings

COLOURS = {
    "blue": (30, 40, 200),
    "green": (40, 190, 40),
    "red": (210, 30, 30),
    "white": (230, 230, 225),
}
SMALL = ComparisonOptions(
    SplitSettings(images=8, held_out=4),
    epochs=3,
    base=packaged_base.PACKAGED,
    model={"base": packaged_base.PACKAGED},
)


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of noisy images of one colour; one image is damaged."""
    folder, draw = tmp_path_factory.mktemp("colours"), np.random.default_rng(0)
    for label, colour in COLOURS.items():
        (folder / label).mkdir()
        for number in range(12):
            noise = draw.integers(-20, 20, (40, 40, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number:02}.png")
    (folder / "red" / "00.png").write_bytes(b"no image")
    return folder


@pytest.mark.slow
def test_the_rows_of_a_service_and_of_a_closed_form_are_measured_on_the_same_images(
    colours: Path, client: Perennial
) -> None:
    options = replace(SMALL, rows=("lda", "perennial"))
    found = compare_methods(colours, options, lambda line: None, lambda: nullcontext(client))
    rows = {outcome.row: outcome for outcome in found.outcomes}
    assert list(rows) == ["lda", "perennial"]
    for outcome in rows.values():
        assert outcome.accuracy >= 0.9 and outcome.images_kept == 0
        assert [total for _, total in outcome.per_class.values()] == [4] * len(COLOURS)
    assert found.document["base"] == packaged_base.PACKAGED
    assert len(found.document["batches"][0]) == 2


@pytest.mark.campaign
def test_every_row_is_measured_on_the_same_held_out_images(
    colours: Path, client: Perennial
) -> None:
    lines: list[str] = []
    found = compare_methods(colours, SMALL, lines.append, lambda: nullcontext(client))
    rows = {outcome.row: outcome for outcome in found.outcomes}
    assert list(rows) == list(WORDS)
    counts = {tuple(total for _, total in sorted(row.per_class.values())) for row in rows.values()}
    assert len({sum(each) for each in counts}) == 1
    assert {frozenset(row.per_class) for row in rows.values()} == {frozenset(COLOURS)}
    assert min(rows[name].accuracy for name in ("lda", "logistic", "perennial")) >= 0.9
    assert rows["finetune"].accuracy < rows["lda"].accuracy
    first_batch = found.document["batches"][0]
    assert rows["full"].images_kept in (15, 16) and len(first_batch) == 2
    assert all(rows[name].images_kept == 0 for name in ("lda", "logistic", "finetune", "perennial"))
    estimate = next(
        number for number, line in enumerate(lines) if line.startswith("This takes about")
    )
    assert "--without full" in lines[estimate]
    assert estimate < next(number for number, line in enumerate(lines) if line.startswith("lda:"))


def test_an_unreadable_image_is_counted_and_skipped(colours: Path) -> None:
    lines: list[str] = []
    whole = ComparisonOptions(
        SplitSettings(images=12, held_out=4), base=packaged_base.PACKAGED, rows=("lda",)
    )
    found = compare_methods(colours, whole, lines.append)
    assert [one["image"] for one in found.document["skipped"]] == ["red/00.png"]
    assert "warning: 1 image was skipped as unreadable: red/00.png" in lines
    assert found.document["learned"] + found.document["held_out"] == 4 * 12 - 1


def test_a_class_without_a_readable_image_is_an_error(colours: Path, tmp_path: Path) -> None:
    for label in ("ash", "elm"):
        (tmp_path / "trees" / label).mkdir(parents=True)
        for number in range(10):
            file = tmp_path / "trees" / label / f"{number}.png"
            file.write_bytes(
                (colours / "blue" / "00.png").read_bytes() if label == "elm" else b"no image"
            )
    with pytest.raises(
        ComparisonImpossible, match=r"Of ash no image to learn from can be read\. Each class"
    ):
        compare_methods(tmp_path / "trees", SMALL, lambda line: None)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            ("lda", "logistic"),
            ("scikit-learn is not installed", "compare", "--without lda --without logistic"),
        ),
        (("lda", "full"), ("lda need", "leave them out: --without lda.")),
    ],
)
def test_a_missing_library_is_named_with_its_command(
    colours: Path, monkeypatch: pytest.MonkeyPatch, rows: tuple[str, ...], words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(comparison, "find_spec", lambda name: None)
    with pytest.raises(ComparisonImpossible) as refused:
        compare_methods(colours, ComparisonOptions(rows=rows), lambda line: None)
    assert all(part in str(refused.value) for part in words)
