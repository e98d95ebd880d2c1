"""Batches: every image once when shuffled; every class its share, from one endless cycle, when
stratified.
"""

import pytest
import torch

from core.learning.data.sampler import (
    count_epoch_batches,
    draw_class_balanced_row_batches,
    split_shuffled_rows_into_batches,
)


@pytest.mark.parametrize(("n", "size"), [(10, 4), (9, 4), (1, 4), (8, 4), (5, 1), (3, 8)])
def test_a_shuffled_epoch_shows_every_image_once_in_no_batch_of_one(n, size) -> None:
    parts = split_shuffled_rows_into_batches(torch.rand(n), torch.arange(n), size)
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert len(parts) == count_epoch_batches("shuffled", n, size)
    assert size == 1 or n == 1 or min(len(p) for p in parts) > 1


def draw_batches(labels: list[int], size: int, epochs: int, seed: int = 3) -> list[list[int]]:
    """Return the batches of some epochs; every third image is not for training."""
    every = torch.tensor(labels)
    rows = torch.arange(len(labels))
    rows = rows[rows % 3 != 0]
    return [
        b.tolist()
        for epoch in range(epochs)
        for b in draw_class_balanced_row_batches(seed, epoch, rows, every, size)
    ]


LABELS = [0] * 12 + [1] * 3 + [2] * 7 + [4] * 40


@pytest.mark.parametrize("size", [4, 7, 11, 3, 1, 100])
def test_shares_and_rotation_are_those_of_a_count_by_hand(size) -> None:
    """floor(M / N) of each class and M mod N classes in rotation, running on from epoch to
    epoch.
    """
    batches = draw_batches(LABELS, size, epochs=4)
    classes, turn = [0, 1, 2, 4], 0
    for batch in batches:
        wanted = {c: size // 4 for c in classes}
        for _ in range(size % 4):
            wanted[classes[turn % 4]] += 1
            turn += 1
        assert {c: sum(LABELS[i] == c for i in batch) for c in classes} == wanted


@pytest.mark.parametrize("size", [4, 7, 3, 100])
def test_a_class_is_gone_through_before_anything_of_it_is_repeated(size) -> None:
    batches = draw_batches(LABELS, size, epochs=6)
    for c in (0, 1, 2, 4):
        members = {i for i, label in enumerate(LABELS) if label == c and i % 3}
        seen = [i for batch in batches for i in batch if LABELS[i] == c]
        passes = [seen[k : k + len(members)] for k in range(0, len(seen), len(members))]
        assert all(set(full) == members for full in passes[:-1])
        assert len(set(passes[-1])) == len(passes[-1]) and set(passes[-1]) <= members


def test_each_pass_over_a_class_has_an_order_of_its_own() -> None:
    seen = [i for batch in draw_batches([0] * 30 + [1] * 30, 4, epochs=8) for i in batch if i < 30]
    orders = {tuple(seen[k : k + 20]) for k in range(0, 80, 20)}
    assert len(orders) == 4


def test_an_epoch_has_as_many_batches_as_its_images_fill() -> None:
    n = sum(1 for i in range(len(LABELS)) if i % 3)
    for size in (1, 4, 7, 100):
        assert (
            len(draw_batches(LABELS, size, epochs=1))
            == count_epoch_batches("stratified", n, size)
            == -(-n // size)
        )


def test_an_epoch_can_be_drawn_without_those_before_it() -> None:
    labels, rows = torch.tensor(LABELS), torch.arange(len(LABELS))
    torch.manual_seed(0)
    again = draw_class_balanced_row_batches(5, 3, rows, labels, 7)
    for epoch in range(3):
        draw_class_balanced_row_batches(5, epoch, rows, labels, 7)
    assert all(
        torch.equal(a, b)
        for a, b in zip(again, draw_class_balanced_row_batches(5, 3, rows, labels, 7), strict=True)
    )
    other = draw_class_balanced_row_batches(6, 3, rows, labels, 7)
    assert not all(torch.equal(a, b) for a, b in zip(again, other, strict=True))
