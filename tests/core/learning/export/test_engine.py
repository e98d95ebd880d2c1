"""Graphs in place of networks: the same classes, though the graph's probabilities differ."""

import numpy as np
import pytest

from core.learning.export.engine import (
    ExportedPredictionEngine,
    mask_images_undecided_within_tolerance,
)

TOLERANCE = 1e-3
CLASSES = 5


@pytest.fixture
def exact() -> np.ndarray:
    """Probabilities [400, 5], of which the first two hundred are nearly equal in their two best
    classes.
    """
    rng = np.random.default_rng(0)
    made = rng.dirichlet(np.ones(CLASSES), 400)
    for row in made[:200]:
        first, second = row.argsort()[::-1][:2]
        middle = (row[first] + row[second]) / 2
        lead = rng.uniform(0, 6 * TOLERANCE)
        row[first], row[second] = middle + lead / 2, middle - lead / 2
    return made.astype(np.float32)


def build_differing_engine(exact: np.ndarray) -> ExportedPredictionEngine:
    """Build an engine whose probabilities lie as far from the exact ones as is allowed, in the
    worst direction for each image.
    """
    theirs = exact.copy()
    for row in theirs:
        first, second = row.argsort()[::-1][:2]
        row[first] -= 0.99 * TOLERANCE
        row[second] += 0.99 * TOLERANCE
    return ExportedPredictionEngine(
        "onnxruntime", lambda images, task: theirs[images[:, 0, 0, 0]], TOLERANCE
    )


def make_numbered_images(count: int) -> np.ndarray:
    """Make images that are their own numbers, for which uint8 holds too few."""
    return np.arange(count, dtype=np.int64).reshape(-1, 1, 1, 1)


def test_every_image_has_the_class_of_the_version_and_is_sure_where_the_version_is(
    exact: np.ndarray,
) -> None:
    engine, sure_from = build_differing_engine(exact), float(np.median(exact.max(1)))
    raw = engine.run(make_numbered_images(400), None)
    assert (raw.argmax(1) != exact.argmax(1)).sum() > 20, "the graph alone answers other classes"
    assert ((raw.max(1) >= sure_from) != (exact.max(1) >= sure_from)).any()
    asked: list[int] = []

    def predict_exactly(images: np.ndarray) -> np.ndarray:
        asked.extend(images[:, 0, 0, 0])
        return exact[images[:, 0, 0, 0]]

    found = engine.predict_probabilities(
        make_numbered_images(400), None, predict_exactly, sure_from
    )
    assert (found.argmax(1) == exact.argmax(1)).all()
    assert ((found.max(1) >= sure_from) == (exact.max(1) >= sure_from)).all()
    assert np.abs(found - exact).max() <= TOLERANCE
    assert 0 < len(asked) < 250, "what is clear is not asked again"


def test_a_probability_that_is_no_number_is_unclear() -> None:
    rows = np.array([[0.9, 0.1], [np.nan, 0.1]], np.float32)
    assert mask_images_undecided_within_tolerance(rows, TOLERANCE, None).tolist() == [False, True]


def test_a_single_class_is_clear() -> None:
    assert (
        mask_images_undecided_within_tolerance(
            np.ones((3, 1), np.float32), TOLERANCE, None
        ).tolist()
        == [False] * 3
    )
