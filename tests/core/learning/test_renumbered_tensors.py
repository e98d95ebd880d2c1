"""Sums and features under other numbers of the classes."""

import torch

from core.learning.state import renumber_classes_in_task_tensors

NUMBERS = [5, -1, -1, 1, 2]


def test_sums_under_other_numbers_are_in_the_order_of_these() -> None:
    cross = torch.arange(6.0).reshape(2, 3)
    tensors = {"2.gram": torch.ones(3), "2.cross": cross, "2.counts": torch.tensor([4, 5, 6])}
    found = renumber_classes_in_task_tensors(
        {**tensors, "2.rows": torch.tensor([0, 3, 4])}, NUMBERS
    )
    assert found["2.rows"].tolist() == [1, 2, 5]
    assert found["2.counts"].tolist() == [5, 6, 4]
    assert torch.equal(found["2.cross"], cross[:, [1, 2, 0]])
    assert found["2.gram"] is tensors["2.gram"]


def test_features_under_other_numbers_stay_in_their_order() -> None:
    tensors = {"2.features": torch.ones(3, 2), "2.classes": torch.tensor([4, 0, 4])}
    found = renumber_classes_in_task_tensors(tensors, NUMBERS)
    assert found["2.classes"].tolist() == [2, 5, 2]
    assert found["2.features"] is tensors["2.features"]
