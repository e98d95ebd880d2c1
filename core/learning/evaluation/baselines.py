"""Closed-form classifiers on a version's features, compared with the version's own predictions.

`ncm` is the nearest class mean by cosine similarity, `lda` a linear discriminant with a uniform
prior and a covariance shrunk by OAS (`core/learning/analytic`). Both are fitted to held-out images
alone, five-fold: each image is classified without its fold. Near duplicates of a class share a
fold, since a classifier that has seen one frame of a burst knows the others. Both ignore the order
of tasks. Where they are more accurate than the version, its features separate the classes and its
head does not.

With each learned class there is one more to be confused with. So an older version with fewer
classes is compared with the discriminant restricted to these classes:
`BaselineCorrectCounts.later`.

The images are those of the k-NN probe, whose features are computed already: no pass is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from core.contract.figures import BaselineClassifierCorrectCounts, Counts
from core.learning.analytic import discriminant
from core.learning.analytic.sums import FeatureSums
from core.learning.evaluation.probe import ProbedImages, group_near_duplicate_probed_images
from core.learning.networks import Network

FOLDS = 5
FEWEST_IMAGES = 20
"""Fewest images for which baselines are reported: one image is five points or more."""
FEWEST_OF_A_CLASS = 2
"""Fewest images of a class, near duplicates as one; a class with fewer is left out.

A class mean without the image itself needs another image.
"""
LEFT_OUT = 0.1
"""Largest share of classes that may be left out. The version has to tell all of them apart."""
WIDEST = 2048
"""Most features for which a linear discriminant is fitted: its covariance has their square."""


NO_ROW = torch.iinfo(torch.int64).max
"""Value of `BaselineCorrectnessMasks.first` for an image classified correctly among all classes."""


class BaselineCorrectCounts(NamedTuple):
    """Correct predictions of the feature baselines (nearest class mean, discriminant) by task; None
    with too little data.

    `later`: task → row → images of the task that the discriminant classifies wrongly among all
    classes, and correctly among those before that row. Rows of the head come after all classes of
    the task. None if no class is learned later than others.
    """

    ncm: BaselineClassifierCorrectCounts | None = None
    lda: BaselineClassifierCorrectCounts | None = None
    later: dict[str, dict[str, int]] | None = None


class BaselineCorrectnessMasks(NamedTuple):
    """Masks bool [n] of images that each feature baseline (nearest class mean, discriminant) gets
    right; `lda` None for too many features.

    `first`: int64 [n], the first row of the head that the discriminant prefers to an image's own
    class, `NO_ROW` if it prefers none; None without a discriminant.
    """

    ncm: Tensor
    lda: Tensor | None
    first: Tensor | None


def evaluate_feature_baselines(
    network: Network,
    samples: Mapping[int, ProbedImages],
    right: Mapping[int, Tensor],
    rows: Tensor | None = None,
    alike: Tensor | None = None,
) -> BaselineCorrectCounts:
    """Evaluate baseline classifiers on held-out features, cross-validated, for the tasks a version
    predicts.

    In the task scenario they tell the classes of one task apart, as the version does; otherwise all
    classes.

    Args:
        samples: task → images of its held-out part.
        right: task → which of the version's predictions are right, bool [N].
        rows: int64 [labels], the row of the head that each label of the samples is; None: they are
            rows.
        alike: the result of `group_near_duplicate_probed_images` for all samples; None: it is not known.
    """
    tasks = [task for task in samples if task in right]
    groups = [[task] for task in tasks] if network.scenario == "task" else [tasks]
    ncm: dict[str, Counts] = {}
    lda: dict[str, Counts] = {}
    right_parts: list[Tensor] = []
    grows = network.scenario == "class"
    later: dict[str, dict[str, int]] = {}
    for group in filter(None, groups):
        parts = [samples[task] for task in group]
        labels = torch.cat([part.labels for part in parts])
        head = group[0] if network.scenario == "task" else None
        # Groups of some tasks alone may be smaller: images of others may join two of them.
        known_duplicates = alike if group == list(samples) else None
        duplicates = (
            group_near_duplicate_probed_images(parts)
            if known_duplicates is None
            else known_duplicates
        )
        usable_images = mask_images_usable_for_cross_validation(
            labels, len(network.list_classes(head)), duplicates
        )
        phi = torch.cat([part.features for part in parts])
        # A network that has diverged has no features to classify by.
        if usable_images is None or not bool(torch.isfinite(phi).all()):
            continue
        image_tasks = torch.cat(
            [torch.full((len(p.labels),), task) for task, p in zip(group, parts, strict=True)]
        )
        right_parts.append(
            torch.cat([right[task][samples[task].rows] for task in group])[usable_images]
        )
        results = cross_validate_feature_baselines(
            phi[usable_images.to(phi.device)],
            labels[usable_images],
            rows,
            duplicates[usable_images],
        )
        ncm |= _count_correct_by_task(results.ncm, image_tasks[usable_images], group)
        lda |= (
            {}
            if results.lda is None
            else _count_correct_by_task(results.lda, image_tasks[usable_images], group)
        )
        if grows and results.first is not None:
            own_rows = labels if rows is None else rows[labels]
            later |= _count_images_lost_to_later_classes(
                results.first, own_rows[usable_images], image_tasks[usable_images], group
            )
    itself = torch.cat(right_parts) if right_parts else torch.zeros(0, dtype=torch.bool)
    if len(itself) < FEWEST_IMAGES:
        return BaselineCorrectCounts()
    lda_baseline = _build_baseline_result(lda, itself)
    return BaselineCorrectCounts(
        _build_baseline_result(ncm, itself),
        lda_baseline,
        later if grows and lda_baseline is not None else None,
    )


def mask_images_usable_for_cross_validation(
    labels: Tensor, classes: int, groups: Tensor | None = None
) -> Tensor | None:
    """Mask the images of classes with two or more images, for cross-validation; None if too many
    have fewer.

    Args:
        labels: int64 [n].
        classes: number of classes that the version tells apart.
        groups: int64 [n], equal numbers for near duplicates, which count as one image; None: there
            are none.
    """
    if not len(labels):
        return None
    counts = torch.bincount(labels[find_first_image_of_each_group(labels, groups)[0]])
    enough = int((counts >= FEWEST_OF_A_CLASS).sum())
    # A single class would make every classifier right.
    if enough < 2 or enough < (1 - LEFT_OUT) * classes:
        return None
    return (counts >= FEWEST_OF_A_CLASS)[labels]


def assign_cross_validation_folds(labels: Tensor, groups: Tensor | None = None) -> Tensor:
    """Assign each image a cross-validation fold, int64 [n], 0 to 4; the first image of class c is
    in fold c mod 5.

    Images of a class are dealt in turn, in their order. `groups` is as in
    `mask_images_usable_for_cross_validation`; near duplicates of a class are in the fold of the first.
    """
    first, group_index = find_first_image_of_each_group(labels, groups)
    return _assign_folds_by_class(labels[first])[group_index]


def find_first_image_of_each_group(labels: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the rows of the first image of each near-duplicate group and class, and each image's
    index.

    The rows are ascending.
    """
    alone = torch.arange(len(labels))
    if groups is None:
        return alone, alone
    pairs = torch.stack([groups, labels], 1)
    # By group and class: near duplicates under two labels are a conflict, and both count.
    kinds, kind = torch.unique(pairs, dim=0, return_inverse=True)
    first = torch.full((len(kinds),), len(labels)).scatter_reduce_(0, kind, alone, "amin")
    order = first.argsort()
    positions = torch.empty_like(order)
    positions[order] = torch.arange(len(order))
    return first[order], positions[kind]


def _assign_folds_by_class(labels: Tensor) -> Tensor:
    # Stable, so that the images of a class are dealt in their order.
    order = labels.argsort(stable=True)
    turn_of = torch.empty_like(labels)
    turn_of[order] = torch.arange(len(labels))
    counts = torch.bincount(labels)
    first = counts.cumsum(0) - counts
    return (turn_of - first[labels] + labels) % FOLDS


def cross_validate_feature_baselines(
    features: Tensor, labels: Tensor, rows: Tensor | None = None, groups: Tensor | None = None
) -> BaselineCorrectnessMasks:
    """Classify each image by baseline classifiers fitted without the images of its fold.

    Args:
        features: float32 [n, D].
        labels: int64 [n] on the CPU, two images or more of each class.
        rows: as of `evaluate_feature_baselines`.
        groups: as of `mask_images_usable_for_cross_validation`; two or more in each class.
    """
    number, label = torch.unique(labels, return_inverse=True)
    fold = assign_cross_validation_folds(label, groups).to(features.device)
    label = label.to(features.device)
    wide = features.shape[1] > WIDEST
    # In float64: sums without a fold are differences of sums.
    h = features.double()
    total_sums = sum_features_by_class(h, label, len(number), wide)
    of_head = (number if rows is None else rows[number]).to(features.device)
    ncm, lda, first = torch.zeros_like(label), torch.zeros_like(label), torch.zeros_like(label)
    for one in range(FOLDS):
        out = fold == one
        # Subtracted from the whole, so that each image is summed twice, and not once for each other
        # fold.
        made_of = subtract_fold_sums(
            total_sums, sum_features_by_class(h[out], label[out], len(number), wide)
        )
        ncm[out] = (h[out] @ functional.normalize(made_of.class_means).T).argmax(1)
        if not wide:
            scores = discriminant.solve_linear_discriminant_analysis(made_of)(h[out])
            lda[out] = scores.argmax(1)
            first[out] = find_first_row_scored_above_own_class(scores, label[out], of_head)
    if wide:
        return BaselineCorrectnessMasks((ncm == label).cpu(), None, None)
    return BaselineCorrectnessMasks((ncm == label).cpu(), (lda == label).cpu(), first.cpu())


def find_first_row_scored_above_own_class(scores: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """Find for each image the first head row that scores above its own class, int64 [n], else
    `NO_ROW`.

    Among the classes before that row the image is classified correctly. Of equal scores the first
    column wins.

    Args:
        scores: [n, C].
        labels: int64 [n], columns.
        rows: int64 [C], the row of the head for each column.
    """
    own_scores = scores.gather(1, labels[:, None])
    columns = torch.arange(scores.shape[1], device=scores.device)
    better = (scores > own_scores) | ((scores == own_scores) & (columns < labels[:, None]))
    # The earliest row that wins: from there on the image is classified wrongly.
    return torch.where(better, rows.expand_as(scores), NO_ROW).amin(1)


def sum_features_by_class(h: Tensor, labels: Tensor, classes: int, wide: bool) -> FeatureSums:
    """Sum features by class for a baseline classifier; `wide` leaves out second moments."""
    if not wide:
        sums = FeatureSums.make_empty_sums(h.shape[1], classes, h.device)
        sums.add_examples(h, labels)
        return sums
    cross = h.new_zeros(classes, h.shape[1]).index_add_(0, labels, h).T
    return FeatureSums(h.new_zeros(0, 0), cross, torch.bincount(labels, minlength=classes))


def subtract_fold_sums(total_sums: FeatureSums, part: FeatureSums) -> FeatureSums:
    """Subtract the feature sums of a fold from those of all images."""
    return FeatureSums(
        total_sums.gram - part.gram, total_sums.cross - part.cross, total_sums.counts - part.counts
    )


def _count_correct_by_task(
    right: Tensor, image_tasks: Tensor, tasks: Sequence[int]
) -> dict[str, Counts]:
    """Count correct predictions and images by task; tasks without an image are left out."""
    counts = {
        task: (int(right[image_tasks == task].sum()), int((image_tasks == task).sum()))
        for task in tasks
    }
    return {str(task): pair for task, pair in counts.items() if pair[1]}


def _count_images_lost_to_later_classes(
    first: Tensor, own_rows: Tensor, image_tasks: Tensor, tasks: Sequence[int]
) -> dict[str, dict[str, int]]:
    """Count by task and head row the images that a later class wins, as in
    `BaselineCorrectCounts.later`.
    first, own_rows: int64 [n], rows; of: int64 [n], tasks.
    """
    rows_by_task = {}
    for task in tasks:
        mine = image_tasks == task
        if not bool(mine.any()):
            continue
        preferred = first[mine & (first > own_rows[mine].max()) & (first < NO_ROW)]
        values, counts = torch.unique(preferred, return_counts=True)
        rows_by_task[str(task)] = {
            str(row): count for row, count in zip(values.tolist(), counts.tolist(), strict=True)
        }
    return rows_by_task


def _build_baseline_result(
    by_task: Mapping[str, Counts], version_correctness: Tensor
) -> BaselineClassifierCorrectCounts | None:
    if not by_task:
        return None
    correct, total = (sum(counts[i] for counts in by_task.values()) for i in (0, 1))
    return BaselineClassifierCorrectCounts(
        all=(correct, total),
        own=(int(version_correctness.sum()), len(version_correctness)),
        tasks=dict(by_task),
    )
