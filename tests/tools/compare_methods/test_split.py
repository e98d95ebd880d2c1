"""The split: every class in one batch, held-out images apart, and the same at every call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perennial.pack.images import BatchImageEntry
from tools.compare_methods.errors import ComparisonImpossible
from tools.compare_methods.split import LEAST_IMAGES, SplitSettings, draw_batch_split

COUNTS = st.lists(st.integers(LEAST_IMAGES, 40), min_size=2, max_size=12)
SAMPLES = st.builds(
    SplitSettings,
    images=st.none() | st.integers(1, 30),
    held_out=st.none() | st.integers(1, 30),
    seed=st.integers(0, 5),
)


def make_source_images(counts: list[int], test: int = 0) -> list[BatchImageEntry]:
    """Make images of classes `c0`, `c1` …: so many of each, and of these `test` in the test part."""
    parts = ["test", "train"] if test else ["", ""]
    return [
        BatchImageEntry(f"c{label}/{number}.jpg", f"c{label}", parts[number >= test])
        for label, count in enumerate(counts)
        for number in range(count)
    ]


@given(COUNTS, SAMPLES)
def test_each_class_is_in_one_batch_and_no_held_out_image_is_learned(
    counts: list[int], sample: SplitSettings
) -> None:
    rows = make_source_images(counts)
    split = draw_batch_split(rows, sample)
    assert sorted(split.classes) == sorted({row.label for row in rows})
    sizes = [len(batch) for batch in split.batches]
    assert 2 <= len(sizes) <= 3 and max(sizes) - min(sizes) <= 1
    for label in split.classes:
        learned, held_out = split.learned[label], split.held_out[label]
        assert 1 <= len(learned) <= sample.compute_max_training_images_per_class(len(counts))
        assert 1 <= len(held_out) <= sample.compute_max_held_out_per_class(len(counts))
        assert len({*learned, *held_out}) == len(learned) + len(held_out)
        assert {rows[number].label for number in (*learned, *held_out)} == {label}


@given(COUNTS, SAMPLES)
def test_the_same_seed_gives_the_same_split(counts: list[int], sample: SplitSettings) -> None:
    assert draw_batch_split(make_source_images(counts), sample) == draw_batch_split(
        make_source_images(counts), sample
    )


def test_another_seed_gives_another_order_of_classes() -> None:
    rows = make_source_images([20] * 10)
    orders = {tuple(draw_batch_split(rows, SplitSettings(seed=seed)).classes) for seed in range(5)}
    assert len(orders) == 5


@given(st.integers(2, 12), st.data())
def test_classes_are_dealt_into_as_many_batches_as_are_asked_for(
    classes: int, data: st.DataObject
) -> None:
    batches = data.draw(st.integers(2, classes))
    assert (
        len(
            draw_batch_split(
                make_source_images([20] * classes), SplitSettings(batches=batches)
            ).batches
        )
        == batches
    )


def test_images_of_a_test_part_are_the_held_out_ones() -> None:
    rows = make_source_images([20, 20], test=8)
    split = draw_batch_split(rows, SplitSettings(images=30, held_out=5))
    for label in split.classes:
        assert len(split.learned[label]) == 12 and len(split.held_out[label]) == 5
        assert {rows[number].part for number in split.held_out[label]} == {"test"}


@pytest.mark.parametrize(
    ("counts", "sample", "words"),
    [
        ([20], SplitSettings(), ("1 class.", "at least two", "Name the folder")),
        ([20, 9, 3], SplitSettings(), ("c1 (9), c2 (3)", "at least 10", "move the folders")),
        ([20, 20], SplitSettings(batches=3), ("2 classes", "Between 2 and 2", "Change --batches")),
    ],
)
def test_an_impossible_split_says_what_is_wrong_what_is_allowed_and_what_to_do(
    counts: list[int], sample: SplitSettings, words: tuple[str, ...]
) -> None:
    with pytest.raises(ComparisonImpossible) as refused:
        draw_batch_split(make_source_images(counts), sample)
    assert all(part in str(refused.value) for part in words)
