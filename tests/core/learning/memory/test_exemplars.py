"""Exemplars: lists per class whose order is kept, cut from the end, merged and erased."""

import torch

from core.learning.memory.exemplars import ExemplarBuffer
from core.learning.state import MethodStateSection


def make_images(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.uint8)[:, None, None, None].expand(-1, 2, 2, 1)


def read_class_pixels(section: MethodStateSection, label: int) -> list[int]:
    held = section.tensors
    return held["images"][held["labels"] == label][:, 0, 0, 0].tolist()


def fill_exemplars() -> MethodStateSection:
    section = MethodStateSection()
    ExemplarBuffer(section).append_and_trim_class_exemplars(
        {0: make_images(5, 3, 9)}, task=1, count=10
    )
    ExemplarBuffer(section).append_and_trim_class_exemplars(
        {1: make_images(7, 8)}, task=1, count=10
    )
    return section


def test_a_cut_keeps_the_first_of_every_class_in_their_order() -> None:
    section = fill_exemplars()
    ExemplarBuffer(section).trim_exemplars_per_class(2)
    assert (read_class_pixels(section, 0), read_class_pixels(section, 1)) == ([5, 3], [7, 8])
    ExemplarBuffer(section).trim_exemplars_per_class(1)
    assert (
        read_class_pixels(section, 0),
        read_class_pixels(section, 1),
        ExemplarBuffer(section).size,
    ) == ([5], [7], 2)


def test_a_class_takes_no_more_than_its_count() -> None:
    section = fill_exemplars()
    ExemplarBuffer(section).append_and_trim_class_exemplars(
        {2: make_images(1, 2, 4)}, task=2, count=2
    )
    assert read_class_pixels(section, 2) == [1, 2]
    assert section.tensors["tasks"].tolist() == [1, 1, 1, 1, 1, 2, 2]


def test_a_class_that_reappears_takes_turns_between_old_and_new() -> None:
    section = fill_exemplars()
    ExemplarBuffer(section).append_and_trim_class_exemplars(
        {0: make_images(20, 21, 22, 23)}, task=2, count=6
    )
    assert read_class_pixels(section, 0) == [5, 20, 3, 21, 9, 22]
    assert read_class_pixels(section, 1) == [7, 8]


def test_classes_added_at_once_are_held_as_if_added_one_by_one() -> None:
    once, turns = fill_exemplars(), fill_exemplars()
    lists = {1: make_images(20, 21), 2: make_images(30, 31, 32, 33), 0: make_images(40)}
    ExemplarBuffer(once).append_and_trim_class_exemplars(lists, task=2, count=3)
    for label, some in lists.items():
        ExemplarBuffer(turns).append_and_trim_class_exemplars({label: some}, task=2, count=3)
    for name, held in turns.tensors.items():
        assert torch.equal(once.tensors[name], held)


def test_adding_many_classes_copies_what_is_held_once(monkeypatch) -> None:
    section, copied, cat = fill_exemplars(), [], torch.cat

    def count_and_concatenate(tensors, *args):
        out = cat(tensors, *args)
        copied.extend([out] if out.dtype == torch.uint8 else [])
        return out

    monkeypatch.setattr(torch, "cat", count_and_concatenate)
    ExemplarBuffer(section).append_and_trim_class_exemplars(
        {label: make_images(label) for label in range(2, 200)}, task=2, count=1
    )
    assert len(copied) == 2  # the new images, and behind them the old


def test_items_of_erased_tasks_go_and_nothing_else() -> None:
    section = fill_exemplars()
    ExemplarBuffer(section).append_and_trim_class_exemplars(
        {1: make_images(20, 21)}, task=2, count=10
    )
    assert ExemplarBuffer(section).remove_items_of_tasks({1})
    assert (read_class_pixels(section, 0), read_class_pixels(section, 1)) == ([], [20, 21])
    assert not ExemplarBuffer(section).remove_items_of_tasks({1})


def test_nothing_left_is_an_empty_section() -> None:
    section = fill_exemplars()
    ExemplarBuffer(section).trim_exemplars_per_class(0)
    assert not section and ExemplarBuffer(section).size == 0
    assert not ExemplarBuffer(section).remove_items_of_tasks({1})
