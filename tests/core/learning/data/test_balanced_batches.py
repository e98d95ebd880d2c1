"""Balanced batches: the classes of each step's images, new and remembered, and what stays as it was
without them.
"""

from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from streams import Bench, Learned, get_class_row, spy_on_calls, spy_on_losses
from torch.nn import functional

from core.learning.memory.reservoir import ReservoirBuffer
from core.learning.methods.finetune import FinetuneMethod
from core.learning.methods.registry import METHODS
from core.learning.methods.replay.der_pp import DarkExperienceReplayPlusPlus
from core.learning.methods.replay.er import ExperienceReplay

BATCH = 8
BALANCED = {"balanced_batches": True, "batch_size": BATCH, "epochs": 2}
TASKS = (("ant", "bee"), ("cat", "dog"))


def write_task(bench: Bench, number: int, counts: list[int]) -> None:
    """Write a task's training part with `counts` images of its classes."""
    names = bench.task_classes(number)
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    generator = torch.Generator().manual_seed(number)
    images = torch.randint(0, 120, (len(labels), bench.size, bench.size, 1), generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[get_class_row(names[label])] += 120
    path = bench.folder / f"{bench.scenario}-{number}-train.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"images": images.to(torch.uint8), "labels": labels}, path)


def learn_counted_task(bench: Bench, counts: list[int], **recipe: Any) -> list[Learned]:
    """Learn two tasks of 20 images each, then one with `counts` images of its classes."""
    for number, each in enumerate(([10, 10], [10, 10], counts), 1):
        write_task(bench, number, each)
    return bench.learn_tasks(3, **recipe)


def spy_on_labels(monkeypatch: pytest.MonkeyPatch, method: type) -> list[list[int]]:
    """Record the labels of each batch of a method, one after the other."""
    return spy_on_losses(monkeypatch, method, lambda self, ctx, batch, terms: batch.y.tolist())


def test_each_class_of_a_one_sided_task_has_its_share_of_every_batch(tmp_path, monkeypatch) -> None:
    bench, batches = Bench(tmp_path, classes=TASKS), spy_on_labels(monkeypatch, ExperienceReplay)
    write_task(bench, 1, [40, 2])
    bench.learn_task(1, method="er", **BALANCED)
    assert {(batch.count(0), batch.count(1)) for batch in batches} == {(4, 4)}


def test_remembered_images_of_a_one_sided_task_are_drawn_evenly(tmp_path, monkeypatch) -> None:
    bench = Bench(tmp_path, classes=TASKS)
    write_task(bench, 1, [40, 4])
    first = bench.learn_task(1, method="er", **BALANCED)
    drawn = spy_on_calls(
        monkeypatch,
        ReservoirBuffer,
        "draw_items_and_augmentation_numbers",
        lambda found, *_: found[0].labels.tolist(),
    )
    bench.learn_task(2, first, method="er", **BALANCED)
    assert (drawn[0].count(0), drawn[0].count(1)) == (4, 4)
    assert all(max(map(labels.count, labels)) <= 4 for labels in drawn)


@pytest.mark.parametrize(
    ("classes", "counts", "size"),
    [
        (("ant",), [40], 2),
        (("ant", "dog"), [40, 2], 4),
        (("ant", "bee", "cat", "dog"), [40, 2, 2, 2], 8),
        (("elk",), [40], 8),
        (("ant", "elk"), [40, 2], 8),
    ],
    ids=["one of four known", "two of four", "all known", "a new one", "known and new"],
)
def test_known_classes_alone_take_their_share_of_a_step(
    tmp_path, monkeypatch, classes: tuple[str, ...], counts: list[int], size: int
) -> None:
    bench, batches = (
        Bench(tmp_path, classes=(*TASKS, classes)),
        spy_on_labels(monkeypatch, ExperienceReplay),
    )
    learned = learn_counted_task(bench, counts, method="er", **BALANCED)
    last = batches[-learned[-1].result["steps"] :]
    assert {len(batch) for batch in last} == {size}
    assert all(batch.count(c) == size // len(classes) for batch in last for c in set(batch))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.replays])
def test_an_update_of_one_known_class_takes_as_many_steps_as_its_images_fill(
    tmp_path, name
) -> None:
    bench = Bench(tmp_path, METHODS[name].scenarios[-1], classes=(*TASKS, ("ant",)))
    last = learn_counted_task(bench, [36], method=name, **BALANCED)[-1]
    assert last.result["steps"] == BALANCED["epochs"] * 5


@pytest.mark.parametrize(
    ("method", "kind", "scenario"),
    [("finetune", FinetuneMethod, "class"), ("er", ExperienceReplay, "task")],
    ids=["nothing is replayed", "a head of its own"],
)
def test_a_batch_is_whole_where_no_other_class_competes(
    tmp_path, monkeypatch, method: str, kind: type, scenario: str
) -> None:
    bench = Bench(tmp_path, scenario, classes=(*TASKS, ("ant",)))
    batches = spy_on_labels(monkeypatch, kind)
    learned = learn_counted_task(bench, [40], method=method, **BALANCED)
    assert {len(batch) for batch in batches[-learned[-1].result["steps"] :]} == {BATCH}


def test_in_der_new_images_weigh_as_their_classes_share(tmp_path, monkeypatch) -> None:
    def compare_task_loss(
        self: Any, ctx: Any, batch: Any, terms: Any
    ) -> tuple[float, float, float]:
        plain = functional.cross_entropy(ctx.scratch["logits"].double(), batch.y)
        return ctx.share, float(terms["task"].detach()), float(plain)

    bench, seen = (
        Bench(tmp_path, classes=(*TASKS, ("ant",))),
        spy_on_losses(monkeypatch, DarkExperienceReplayPlusPlus, compare_task_loss),
    )
    steps = learn_counted_task(bench, [40], method="der++", **BALANCED)[-1].result["steps"]
    for number, (share, term, plain) in enumerate(seen, 1):
        assert share == (0.25 if number > len(seen) - steps else 1)
        assert term == pytest.approx(share * plain, rel=1e-5)


def test_without_balanced_batches_a_one_sided_batch_is_taken_as_it_is(
    tmp_path, monkeypatch
) -> None:
    bench, batches = (
        Bench(tmp_path, classes=(*TASKS, ("ant", "dog"))),
        spy_on_labels(monkeypatch, ExperienceReplay),
    )
    steps = learn_counted_task(bench, [40, 2], method="er", batch_size=BATCH)[-1].result["steps"]
    seen = [label for batch in batches[-steps:] for label in batch]
    assert (seen.count(0), seen.count(3)) == (80, 4)
