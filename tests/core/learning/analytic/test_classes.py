"""Sums and features of merged and dropped classes beside those of the images themselves."""

import torch

from core.learning.analytic import discriminant
from core.learning.analytic.classes import renumber_classes_in_task_sums, renumber_stored_features
from core.learning.analytic.rows import LabelledFeatureRows
from core.learning.analytic.sums import FeatureSums
from core.learning.class_map import ClassMap


def draw_features(
    classes: int = 4, each: int = 30, width: int = 6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw features of classes, each with a mean of its own, and their labels."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(classes).repeat(each)
    means = torch.randn(classes, width, generator=generator) * 3
    return means[labels] + torch.randn(len(labels), width, generator=generator), labels


def compute_sums(h: torch.Tensor, labels: torch.Tensor, classes: int) -> FeatureSums:
    sums = FeatureSums.make_empty_sums(h.shape[1], classes)
    sums.add_examples(h, labels)
    return sums


def test_sums_of_merged_classes_are_those_of_one_class() -> None:
    h, labels = draw_features()
    classes = ClassMap([[0, 3], [1], [2]], 4)
    made = renumber_classes_in_task_sums(compute_sums(h, labels, 4), torch.arange(4), classes)
    assert made is not None
    expected = compute_sums(h, classes.renumber_labels(labels), 3)
    assert made[1].tolist() == [0, 1, 2] and torch.equal(made[0].counts, expected.counts)
    assert torch.equal(made[0].gram, expected.gram)
    assert torch.allclose(made[0].cross, expected.cross, rtol=1e-13)


def test_a_dropped_class_leaves_means_and_shared_covariance_of_the_others() -> None:
    h, labels = draw_features()
    sums = compute_sums(h, labels, 4)
    made = renumber_classes_in_task_sums(sums, torch.arange(4), ClassMap([[0], [2], [3]], 4))
    assert made is not None
    others = [0, 2, 3]
    means = sums.class_means[others]
    assert torch.allclose(made[0].class_means, means)
    covariances = [discriminant.compute_shared_covariance(each) for each in (made[0], sums)]
    assert torch.allclose(*covariances)
    # Near the sums without the class's images, whose scatter alone is estimated.
    kept = labels != 1
    exact = compute_sums(h[kept], torch.tensor([0, 9, 1, 2])[labels[kept]], 3)
    assert float((made[0].gram - exact.gram).norm() / exact.gram.norm()) < 0.02
    assert renumber_classes_in_task_sums(sums, torch.arange(4), ClassMap([[4]], 5)) is None


def test_features_are_renumbered_in_the_order_of_the_dataset() -> None:
    rows = LabelledFeatureRows(
        torch.arange(12.0).reshape(6, 2),
        torch.tensor([0, 1, 2, 0, 1, 2]),
        torch.arange(96, dtype=torch.uint8).reshape(6, 16),
    )
    order = torch.tensor([4, 1, 5, 0, 2, 3])
    read, rest = rows.select_rows(order[:2]), rows.select_rows(order[2:])
    tensors = {f"7.{name}": tensor for name, tensor in read.to_tensors().items()}
    tensors |= {f"7.rest.{name}": tensor for name, tensor in rest.to_tensors().items()}
    found = renumber_stored_features({**tensors, "7.rest.order": order}, 7, ClassMap([[0, 2]], 3))
    assert found is not None and found.classes.tolist() == [0, 0, 0, 0]
    assert torch.equal(found.features, rows.features[[0, 2, 3, 5]])
    assert renumber_stored_features({}, 7, ClassMap([[0]], 1)) is None
