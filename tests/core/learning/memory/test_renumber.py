"""A memory, an importance and a head after classes were merged or dropped."""

import math

import torch

from core.learning.class_map import ClassMap
from core.learning.memory.gaussians import ClassGaussians
from core.learning.memory.renumber import (
    average_stored_rows_of_merged_classes,
    renumber_and_drop_replay_labels,
)
from core.learning.memory.reservoir import SEEN
from core.learning.networks.heads import ClassifierHead
from core.learning.state import MethodStateSection

CLASSES = ClassMap([[0, 3], [2]], 4)
"""Classes 0 and 3 are one, and class 1 is dropped."""


def test_a_memory_loses_dropped_classes_and_its_logits_are_those_of_the_new_head() -> None:
    head = ClassifierHead(5, 4)
    with torch.no_grad():
        head.weight.normal_(generator=torch.Generator().manual_seed(0))
        head.bias.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(2))
    logits = head(x).detach()
    widths = torch.tensor([3, 4, 4, 4])
    logits[0, 3] = 0  # stored by a head of three classes
    section = MethodStateSection()
    section.tensors.update(
        images=torch.arange(4, dtype=torch.uint8).reshape(4, 1, 1, 1),
        labels=torch.tensor([0, 1, 2, 3]),
        tasks=torch.tensor([1, 1, 2, 2]),
        logits=logits,
        widths=widths,
    )
    section.json[SEEN] = {"0": 5, "1": 7, "2": 1, "3": 2}
    renumber_and_drop_replay_labels(section, CLASSES)
    tensors = section.tensors
    assert tensors["labels"].tolist() == [0, 1, 0] and tensors["tasks"].tolist() == [1, 2, 2]
    assert tensors["images"].flatten().tolist() == [0, 2, 3]
    assert section.json[SEEN] == {"0": 7, "1": 1}
    assert tensors["widths"].tolist() == [2, 2, 2]
    head.merge_rows_by_class_map(CLASSES)
    new = head(x[2:]).detach()
    new[:, 0] -= math.log(2)  # the prior of two classes, which a stored logit does not have
    assert torch.allclose(tensors["logits"][1:], new, atol=1e-6)
    renumber_and_drop_replay_labels(section, ClassMap([[5]], 6))
    assert not section.tensors


def test_one_row_is_at_most_the_softmax_of_both() -> None:
    head = ClassifierHead(3, 4)
    with torch.no_grad():
        head.weight.normal_(generator=torch.Generator().manual_seed(0))
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    both = head(x)[:, [0, 3]].logsumexp(1)
    added = head(x)[:, [0, 3]].sum(1)
    summed = ClassifierHead(3, 4)
    summed.load_state_dict(head.state_dict())
    head.merge_rows_by_class_map(CLASSES)
    assert bool((head(x)[:, 0] <= both + 1e-6).all())
    summed.merge_rows_by_class_map(CLASSES, add=True)
    assert torch.allclose(summed(x)[:, 0], added, atol=1e-6)


def test_importance_of_the_head_follows_its_rows_and_of_others_stays() -> None:
    section = MethodStateSection()
    section.tensors.update(
        {
            "importance.head.weight": torch.arange(8.0).reshape(4, 2),
            "task/1/diagonal/head.bias": torch.arange(2.0),
            "importance.backbone.head.weight.x": torch.ones(4),
        }
    )
    average_stored_rows_of_merged_classes(section, CLASSES)
    assert section.tensors["importance.head.weight"].tolist() == [[3, 4], [4, 5]]
    assert section.tensors["task/1/diagonal/head.bias"].tolist() == [0]
    assert len(section.tensors["importance.backbone.head.weight.x"]) == 4


def test_gaussians_of_merged_classes_are_drawn_in_the_shares_of_their_images() -> None:
    section = MethodStateSection()
    gaussians = ClassGaussians(section)
    features = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.cat([torch.zeros(30), torch.full((10,), 3)]).long()
    features[30:] += 100
    gaussians.fit_and_store_task_gaussians(1, features, labels, torch.tensor([0, 3]), "full")
    gaussians.fit_and_store_task_gaussians(
        2, features[:4], torch.ones(4).long(), torch.tensor([1]), "full"
    )
    gaussians.renumber_and_drop_classes(CLASSES)
    assert gaussians.list_stored_tasks() == [1]
    drawn, rows = gaussians.draw_gaussian_features(8, torch.Generator().manual_seed(0))
    assert rows.tolist() == [0] * 8 and int((drawn.mean(1) > 50).sum()) == 2
