"""The choice of a head by left-out answers, and the examples that it is made by."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from core.learning.analytic.choice import (
    choose_best_head_or_keep_current,
    compute_class_average_and_error,
)
from core.learning.analytic.rows import LabelledFeatureRows, digest_each_image, draw_rows_per_class


def build_scores(answers: Sequence[int], classes: int = 2) -> Tensor:
    return torch.eye(classes, dtype=torch.float64)[torch.tensor(answers)]


LABELS = torch.tensor([0] * 8 + [1] * 2)
ALL_ZERO = build_scores([0] * 10)
"""Right for 8 of 10 images, and for one of two classes."""
SOME_OF_EACH = build_scores([0] * 5 + [1] * 5)
"""Right for 7 of 10 images, and for 5 of 8 and 2 of 2 by class."""


def test_each_class_counts_the_same() -> None:
    chosen = choose_best_head_or_keep_current({"a": ALL_ZERO, "b": SOME_OF_EACH}, LABELS, None)
    assert chosen.head == "b"
    assert chosen.accuracy == {"a": 0.5, "b": pytest.approx((5 / 8 + 1) / 2)}


def test_the_error_is_that_of_the_paired_difference() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(60) % 3
    values = torch.randn(60, generator=generator, dtype=torch.float64)
    mean, error = compute_class_average_and_error(values, labels)
    of_class = [values[labels == c] for c in range(3)]
    assert mean == pytest.approx(sum(float(v.mean()) for v in of_class) / 3)
    assert error == pytest.approx(sum(float(v.var()) / 20 for v in of_class) ** 0.5 / 3)


@pytest.mark.parametrize(
    ("better_by", "current", "expected"),
    [
        (1, "a", "a"),
        (1, None, "b"),
        (1, "b", "b"),
        (12, "a", "b"),
        (0, None, "a"),
        (0, "b", "b"),
        (1, "ncm", "b"),
    ],
)
def test_a_head_stays_until_another_is_better_by_a_standard_error(
    better_by: int, current: str | None, expected: str
) -> None:
    labels = torch.arange(200) % 2
    wrong = (1 - labels).tolist()
    a, b = labels.tolist(), labels.tolist()
    a[: 20 + better_by] = wrong[: 20 + better_by]
    b[100:120] = wrong[100:120]
    assert (
        choose_best_head_or_keep_current(
            {"a": build_scores(a), "b": build_scores(b)}, labels, current
        ).head
        == expected
    )


def test_without_examples_the_current_head_or_the_first_answers() -> None:
    none = torch.zeros(0, 2, dtype=torch.float64)
    labels = torch.zeros(0, dtype=torch.int64)
    assert choose_best_head_or_keep_current({"a": none, "b": none}, labels, None).head == "a"
    assert choose_best_head_or_keep_current({"a": none, "b": none}, labels, "b").head == "b"


def build_rows(classes: Tensor, images: Tensor) -> LabelledFeatureRows:
    return LabelledFeatureRows(
        torch.arange(len(classes), dtype=torch.float32)[:, None],
        classes,
        digest_each_image(images, 0),
    )


def test_the_same_examples_are_drawn_in_any_order_and_an_equal_one_once() -> None:
    generator = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (40, 4, 4, 1), generator=generator, dtype=torch.uint8)
    images[7] = images[3]
    classes = torch.arange(40) // 20
    rows = build_rows(classes, images)
    drawn = draw_rows_per_class(rows, 6)
    assert torch.bincount(classes[drawn]).tolist() == [6, 6]
    order = torch.randperm(40, generator=generator)
    again = rows.select_rows(order)
    assert set(again.select_rows(draw_rows_per_class(again, 6)).features[:, 0].tolist()) == set(
        drawn.nonzero()[:, 0].tolist()
    )
    everything = draw_rows_per_class(rows, 40)
    assert int(everything.sum()) == 39 and not everything[7] and everything[3]


def test_keys_differ_by_seed_and_by_image() -> None:
    images = torch.zeros(2, 4, 4, 1, dtype=torch.uint8)
    images[1, 0, 0, 0] = 1
    first, second = digest_each_image(images, 0), digest_each_image(images, 1)
    assert len({bytes(key) for key in [*first.numpy(), *second.numpy()]}) == 4
