"""A memory in which no class has more than its share: what is drawn, what is kept, and how it goes
on.
"""

import pytest
import torch

from core.learning.memory.class_balance import (
    choose_balanced_reservoir_slots,
    draw_class_balanced_rows,
)
from core.learning.memory.reservoir import SEEN, ReservoirBuffer
from core.learning.state import MethodStateSection

ONE_SIDED = [0] * 120 + [1] * 6 + [2] * 6 + [3] * 2
"""Labels of a stream with twenty images of one class for each of another."""


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def count_labels(labels: torch.Tensor) -> list[int]:
    return torch.bincount(labels, minlength=4).tolist()


def offer_items(
    section: MethodStateSection, labels: list[int], capacity: int, *, task: int = 1, **how: bool
) -> ReservoirBuffer:
    """Offer items in batches of 7. Each image's pixels are its label."""
    reservoir = ReservoirBuffer(section, capacity, 0, balanced=True, **how)
    for part in torch.tensor(labels).split(7):
        images = part.to(torch.uint8)[:, None, None, None].expand(-1, 2, 2, 1)
        reservoir.offer_items_to_reservoir(
            lambda rows, images=images: images.index_select(0, rows), part, task
        )
    return reservoir


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (8, [2, 2, 2, 2]),
        (14, [4, 4, 4, 2]),
        (20, [6, 6, 6, 2]),
        (40, [26, 6, 6, 2]),
        (999, [120, 6, 6, 2]),
    ],
)
def test_a_draw_has_equally_many_of_each_class_as_far_as_there_are(
    n: int, expected: list[int]
) -> None:
    labels = torch.tensor(ONE_SIDED)
    rows = draw_class_balanced_rows(labels, n, make_generator())
    assert count_labels(labels[rows]) == expected
    assert len(set(rows.tolist())) == sum(expected)


def test_what_is_left_over_goes_to_each_class_with_equal_probability() -> None:
    labels, draw = torch.tensor(ONE_SIDED), make_generator()
    single = torch.cat([draw_class_balanced_rows(labels, 1, draw) for _ in range(4000)])
    frequencies = torch.bincount(labels[single]).double() / 4000
    assert float((frequencies - 0.25).abs().max()) < 4 * (0.25 * 0.75 / 4000) ** 0.5


def test_every_item_of_a_class_is_drawn_with_equal_probability() -> None:
    labels, draw = torch.tensor(ONE_SIDED), make_generator()
    rows = torch.cat([draw_class_balanced_rows(labels, 4, draw) for _ in range(4000)])
    of_second = torch.bincount(rows[labels[rows] == 1] - 120, minlength=6).double() / 4000
    assert float((of_second - 1 / 6).abs().max()) < 4 * (1 / 6 * 5 / 6 / 4000) ** 0.5


@pytest.mark.parametrize("stream", [ONE_SIDED, ONE_SIDED[::-1]], ids=["large first", "large last"])
def test_a_full_memory_keeps_rare_classes_whole(stream: list[int]) -> None:
    section = MethodStateSection()
    offer_items(section, stream, capacity=20)
    assert count_labels(section.tensors["labels"]) == [6, 6, 6, 2]
    assert section.tensors["images"][:, 0, 0, 0].tolist() == section.tensors["labels"].tolist()


def test_of_a_large_class_each_item_is_kept_with_equal_probability() -> None:
    """Items of a class of 30 beside one of 10, in a memory of 10: five of each stay in the end."""
    runs, draw = 4000, make_generator()
    kept = torch.zeros(40)
    for _ in range(runs):
        slots: dict[int, int] = {}
        draws = torch.rand(40, generator=draw, dtype=torch.float64).tolist()
        seen: dict[int, int] = {}
        slots = choose_balanced_reservoir_slots(draws, [0] * 30 + [1] * 10, [], seen, 10)
        kept[list(slots.values())] += 1
        assert seen == {0: 30, 1: 10}
    frequencies = kept.double() / runs
    assert float((frequencies[:30] - 5 / 30).abs().max()) < 4.5 * (1 / 6 * 5 / 6 / runs) ** 0.5
    assert float((frequencies[30:] - 0.5).abs().max()) < 4.5 * (0.25 / runs) ** 0.5


def test_a_stream_that_is_saved_and_loaded_goes_on_as_if_it_had_not_been() -> None:
    section, copy = MethodStateSection(), MethodStateSection()
    offer_items(section, ONE_SIDED, capacity=20)
    copy.replace_content(section.to_tensors(), dict(section.json), torch.device("cpu"))
    for each in (section, copy):
        offer_items(each, ONE_SIDED, capacity=20)
    assert section.json == copy.json
    assert all(torch.equal(section.tensors[name], copy.tensors[name]) for name in section.tensors)
    first, second = (
        ReservoirBuffer(each, 20, 0, balanced=True).draw_items_and_augmentation_numbers(9)[0]
        for each in (section, copy)
    )
    assert torch.equal(first.images, second.images)


def test_with_a_head_for_each_task_a_label_is_a_class_of_its_task() -> None:
    section = MethodStateSection()
    offer_items(section, [0] * 100, capacity=20, task=1, heads=True)
    offer_items(section, [0] * 10, capacity=20, task=2, heads=True)
    assert torch.bincount(section.tensors["tasks"]).tolist() == [0, 10, 10]


def test_a_memory_that_was_not_balanced_becomes_so() -> None:
    section = MethodStateSection()
    images = torch.zeros(134, 2, 2, 1, dtype=torch.uint8)
    plain = ReservoirBuffer(section, 20, 0)
    plain.offer_items_to_reservoir(
        lambda rows: images.index_select(0, rows), torch.tensor(ONE_SIDED), 1
    )
    assert SEEN not in section.json
    offer_items(section, [1] * 6 + [2] * 6 + [3] * 6, capacity=20, task=2)
    assert max(count_labels(section.tensors["labels"])) <= 7


def test_a_smaller_memory_gives_up_items_of_its_large_classes() -> None:
    section = MethodStateSection()
    offer_items(section, ONE_SIDED, capacity=200)
    ReservoirBuffer(section, 14, 0, balanced=True).rescale_offers_and_trim_reservoir()
    assert count_labels(section.tensors["labels"]) == [4, 4, 4, 2]


def test_items_offered_are_counted_by_class_in_units_of_examples() -> None:
    section = MethodStateSection()
    ReservoirBuffer(section, 200, 0, balanced=True).rescale_offers_and_trim_reservoir(offers=3)
    for _ in range(3):
        offer_items(section, ONE_SIDED, capacity=20)
    ReservoirBuffer(section, 20, 0, balanced=True).rescale_offers_and_trim_reservoir(offers=1)
    assert section.json[SEEN] == {"0": 120, "1": 6, "2": 6, "3": 2}
