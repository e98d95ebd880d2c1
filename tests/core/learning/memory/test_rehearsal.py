"""Herding: the order of the paper, against the slow obvious version, and every row once."""

import math

import torch

from core.learning.memory.rehearsal import select_rows_by_herding


def choose_slowly(features: torch.Tensor, count: int) -> list[int]:
    chosen: list[int] = []
    mean = features.mean(0)
    while len(chosen) < min(count, len(features)):
        left = [i for i in range(len(features)) if i not in chosen]
        distances = [(mean - features[[*chosen, i]].mean(0)).norm() for i in left]
        chosen.append(left[int(torch.stack(distances).argmin())])
    return chosen


def test_unit_vectors_at_0_25_60_and_100_degrees_come_third_second_last_first() -> None:
    angles = torch.tensor([0.0, 25.0, 60.0, 100.0], dtype=torch.float64) * math.pi / 180
    features = torch.stack([angles.cos(), angles.sin()], dim=1)
    assert select_rows_by_herding(features, 4).tolist() == [2, 1, 3, 0]


def test_it_is_the_order_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    for n in (1, 7, 40):
        features = torch.randn(n, 5, generator=generator, dtype=torch.float64)
        features /= features.norm(dim=1, keepdim=True)
        assert select_rows_by_herding(features, n).tolist() == choose_slowly(features, n)


def test_a_shorter_choice_is_the_beginning_of_a_longer_one() -> None:
    features = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    assert (
        select_rows_by_herding(features, 8).tolist()
        == select_rows_by_herding(features, 30)[:8].tolist()
    )


def test_a_class_smaller_than_asked_for_is_taken_whole_each_row_once() -> None:
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(2))
    assert sorted(select_rows_by_herding(features, 100).tolist()) == list(range(6))
    assert sorted(select_rows_by_herding(torch.ones(5, 3), 5).tolist()) == list(
        range(5)
    )  # identical rows as well
