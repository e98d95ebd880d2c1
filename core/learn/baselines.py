"""What a version's features could do: two classifiers in closed form on them, beside the version's own
answers.

`ncm` is the nearest class mean by cosine similarity, `lda` a linear discriminant with a uniform prior and a
covariance shrunk by OAS (`core/learn/analytic`). Both are made of held-out images alone, five-fold: each
image is answered by a classifier that was made without its fold. They know no order of tasks. Where they
answer better than the version does, its features know the classes and its head does not.

The images are those of the k-NN probe, with the features that it has computed: no pass is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from core.learn.analytic import discriminant
from core.learn.analytic.sums import Sums
from core.learn.networks import Network
from core.learn.probe import Sample
from core.protocol.figures import Baseline, Counts

FOLDS = 5
FEWEST_IMAGES = 20
"""Images below which nothing is told: one is five points or more."""
FEWEST_OF_A_CLASS = 2
"""Images of a class below which it is left out: a class mean without the image needs another."""
LEFT_OUT = 0.1
"""Share of the classes that may be left out. The version has to tell all of them apart."""
WIDEST = 2048
"""Features up to which there is a linear discriminant: its covariance has their square."""


class Baselines(NamedTuple):
    """Right answers of each classifier; None where too little is there."""

    ncm: Baseline | None = None
    lda: Baseline | None = None


class Answers(NamedTuple):
    """For which images each classifier is right, bool [n]; `lda` None where there are too many features."""

    ncm: Tensor
    lda: Tensor | None


def baselines(network: Network, samples: Mapping[int, Sample], right: Mapping[int, Tensor]) -> Baselines:
    """Both classifiers on the tasks that the version can answer.

    In the task scenario they tell the classes of one task apart, as the version does; otherwise all classes.

    Args:
        samples: task → images of its held-out part.
        right: task → the version's `correct_on_task`.
    """
    tasks = [task for task in samples if task in right]
    groups = [[task] for task in tasks] if network.scenario == "task" else [tasks]
    ncm: dict[str, Counts] = {}
    lda: dict[str, Counts] = {}
    own: list[Tensor] = []
    for group in filter(None, groups):
        parts = [samples[task] for task in group]
        labels = torch.cat([part.labels for part in parts])
        head = group[0] if network.scenario == "task" else None
        kept = usable(labels, len(network.classes_of(head)))
        phi = torch.cat([part.features for part in parts])
        if kept is None or not bool(torch.isfinite(phi).all()):
            continue
        of = torch.cat([torch.full((len(p.labels),), task) for task, p in zip(group, parts, strict=True)])
        own.append(torch.cat([right[task][samples[task].rows] for task in group])[kept])
        answers = five_fold(phi[kept.to(phi.device)], labels[kept])
        ncm |= _by_task(answers.ncm, of[kept], group)
        lda |= {} if answers.lda is None else _by_task(answers.lda, of[kept], group)
    itself = torch.cat(own) if own else torch.zeros(0, dtype=torch.bool)
    if len(itself) < FEWEST_IMAGES:
        return Baselines()
    return Baselines(*(_told(by_task, itself) for by_task in (ncm, lda)))


def usable(labels: Tensor, classes: int) -> Tensor | None:
    """bool [n]: images of the classes that have two or more; None where too many classes have fewer.

    Args:
        labels: int64 [n].
        classes: how many the version tells apart.
    """
    if not len(labels):
        return None
    counts = torch.bincount(labels)
    enough = int((counts >= FEWEST_OF_A_CLASS).sum())
    if enough < 2 or enough < (1 - LEFT_OUT) * classes:
        return None
    return (counts >= FEWEST_OF_A_CLASS)[labels]


def folds(labels: Tensor) -> Tensor:
    """int64 [n], 0 to 4: the images of each class in turn, in their order; class c begins with fold c modulo 5."""
    order = labels.argsort(stable=True)
    turn = torch.empty_like(labels)
    turn[order] = torch.arange(len(labels))
    counts = torch.bincount(labels)
    first = counts.cumsum(0) - counts
    return (turn - first[labels] + labels) % FOLDS


def five_fold(features: Tensor, labels: Tensor) -> Answers:
    """Each image answered by the classifiers that were made without its fold.

    Args:
        features: float32 [n, D].
        labels: int64 [n] on the CPU, two images or more of each class.
    """
    number, label = torch.unique(labels, return_inverse=True)
    fold = folds(label).to(features.device)
    label = label.to(features.device)
    wide = features.shape[1] > WIDEST
    h = features.double()
    whole = sums_of(h, label, len(number), wide)
    ncm, lda = torch.zeros_like(label), torch.zeros_like(label)
    for one in range(FOLDS):
        out = fold == one
        made_of = without(whole, sums_of(h[out], label[out], len(number), wide))
        ncm[out] = (h[out] @ functional.normalize(discriminant.means(made_of)).T).argmax(1)
        if not wide:
            lda[out] = discriminant.discriminant(made_of)(h[out]).argmax(1)
    return Answers((ncm == label).cpu(), None if wide else (lda == label).cpu())


def sums_of(h: Tensor, labels: Tensor, classes: int, wide: bool) -> Sums:
    """Sums over images; of too many features without second moments."""
    if not wide:
        sums = Sums.zero(h.shape[1], classes, h.device)
        sums.add(h, labels)
        return sums
    cross = h.new_zeros(classes, h.shape[1]).index_add_(0, labels, h).T
    return Sums(h.new_zeros(0, 0), cross, torch.bincount(labels, minlength=classes))


def without(whole: Sums, part: Sums) -> Sums:
    """The sums of all images but those of the part."""
    return Sums(whole.gram - part.gram, whole.cross - part.cross, whole.counts - part.counts)


def _by_task(right: Tensor, of: Tensor, tasks: Sequence[int]) -> dict[str, Counts]:
    """Task → right answers, and of how many; tasks without an image are left out."""
    counts = {task: (int(right[of == task].sum()), int((of == task).sum())) for task in tasks}
    return {str(task): found for task, found in counts.items() if found[1]}


def _told(by_task: Mapping[str, Counts], own: Tensor) -> Baseline | None:
    if not by_task:
        return None
    correct, total = (sum(counts[i] for counts in by_task.values()) for i in (0, 1))
    return Baseline(all=(correct, total), own=(int(own.sum()), len(own)), tasks=dict(by_task))
