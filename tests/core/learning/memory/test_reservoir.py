"""The reservoir: a uniform sample, exact memory, and a stream that can be interrupted."""

import pytest
import torch

from core.learning.memory.reservoir import ReservoirBuffer, choose_reservoir_slots
from core.learning.state import MethodStateSection

CPU = torch.device("cpu")


def offer_items(section, numbers, capacity=5, task=1, logits=None) -> ReservoirBuffer:
    """Offer items whose label and pixels identify them."""
    numbers = torch.as_tensor(numbers)
    reservoir = ReservoirBuffer(section, capacity, 0)
    images = numbers.to(torch.uint8)[:, None, None, None].expand(-1, 2, 2, 1)
    reservoir.offer_items_to_reservoir(
        lambda rows: images.index_select(0, rows), numbers, task, logits
    )
    return reservoir


def test_every_item_is_kept_with_equal_probability() -> None:
    runs, n, m = 20_000, 50, 5
    draws = torch.rand(
        runs, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).tolist()
    kept = torch.tensor(
        [row for one in draws for row in choose_reservoir_slots(one, 0, 0, m).values()]
    )
    frequency = torch.bincount(kept, minlength=n) / runs
    assert kept.numel() == runs * m and float((frequency - m / n).abs().max()) < 0.008


def test_it_holds_everything_until_it_is_full_and_then_its_capacity() -> None:
    section = MethodStateSection()
    assert offer_items(section, range(3)).item_count == 3
    assert section.tensors["labels"].tolist() == [0, 1, 2]
    reservoir = offer_items(section, range(3, 40))
    assert (reservoir.item_count, reservoir.offered_count) == (5, 40)


def test_images_labels_and_tasks_of_an_item_stay_together() -> None:
    section = MethodStateSection()
    for start in range(0, 60, 6):
        offer_items(section, range(start, start + 6), task=start)
    held = section.tensors
    assert held["images"][:, 0, 0, 0].tolist() == held["labels"].tolist()
    assert held["tasks"].tolist() == [label // 6 * 6 for label in held["labels"].tolist()]


def test_batches_of_any_size_give_the_same_sample() -> None:
    one, many = MethodStateSection(), MethodStateSection()
    offer_items(one, range(30))
    for i in range(30):
        offer_items(many, [i])
    assert torch.equal(one.tensors["labels"], many.tensors["labels"])


def test_a_stream_that_is_saved_and_loaded_draws_as_if_it_had_not_been() -> None:
    section = MethodStateSection()
    offer_items(section, range(20))
    copy = MethodStateSection()
    copy.replace_content(section.to_tensors(), dict(section.json), CPU)
    for s in (section, copy):
        offer_items(s, range(20, 60))
    assert torch.equal(section.tensors["labels"], copy.tensors["labels"])
    (a, ta), (b, tb) = (
        ReservoirBuffer(section, 5, 0).draw_items_and_augmentation_numbers(3),
        ReservoirBuffer(copy, 5, 0).draw_items_and_augmentation_numbers(3),
    )
    assert torch.equal(a.images, b.images) and torch.equal(ta, tb)


def test_an_item_replaces_a_slot_drawn_from_all_that_were_offered() -> None:
    assert choose_reservoir_slots([0.0, 0.0, 0.999], seen=0, size=0, capacity=2) == {0: 0, 1: 1}
    assert choose_reservoir_slots([0.66], seen=2, size=2, capacity=2) == {1: 0}  # 0.66 · 3 = 1.98
    assert choose_reservoir_slots([0.67], seen=2, size=2, capacity=2) == {}
    assert choose_reservoir_slots([0.1, 0.9, 0.1], seen=9, size=2, capacity=2) == {1: 2}


def test_a_draw_has_no_item_twice_and_at_most_what_is_held() -> None:
    section = MethodStateSection()
    reservoir = offer_items(section, range(4))
    items, table = reservoir.draw_items_and_augmentation_numbers(9)
    assert sorted(items.labels.tolist()) == [0, 1, 2, 3] and table.shape == (4, 3)


def test_logits_of_a_head_that_grew_are_padded_and_remember_their_width() -> None:
    section = MethodStateSection()
    offer_items(section, [0, 1], logits=torch.ones(2, 2))
    offer_items(section, [2], logits=torch.full((1, 4), 2.0))
    assert section.tensors["widths"].tolist() == [2, 2, 4]
    assert section.tensors["logits"].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [2, 2, 2, 2]]


def test_items_of_a_deleted_task_are_gone() -> None:
    section = MethodStateSection()
    offer_items(section, [0, 1], task=1)
    reservoir = offer_items(section, [2, 3], task=2)
    assert reservoir.remove_items_of_tasks({1}) == 2
    assert section.tensors["labels"].tolist() == [2, 3] and section.tensors["images"].shape[0] == 2


def test_erasing_makes_no_generator_so_that_later_draws_follow_the_recipes_seed() -> None:
    def draw_labels(seed: int) -> list[int]:
        section = MethodStateSection()  # another method's, which has no generator
        section.tensors = {name: torch.arange(40) // 20 for name in ("images", "labels", "tasks")}
        ReservoirBuffer(section, 40, 0).remove_items_of_tasks({1})
        section.tensors["labels"] = torch.arange(20)
        return (
            ReservoirBuffer(section, 40, seed)
            .draw_items_and_augmentation_numbers(20)[0]
            .labels.tolist()
        )

    assert draw_labels(1) == draw_labels(1) != draw_labels(2)


@pytest.mark.parametrize(("capacity", "left"), [(2, 2), (9, 5)])
def test_a_smaller_capacity_shrinks_it_and_a_larger_one_lets_it_fill(capacity, left) -> None:
    section = MethodStateSection()
    offer_items(section, range(30))
    reservoir = ReservoirBuffer(section, capacity, 0)
    reservoir.rescale_offers_and_trim_reservoir()
    assert reservoir.item_count == left
    assert offer_items(section, range(30, 60), capacity).item_count == capacity
