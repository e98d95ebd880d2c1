"""Find classes that a version takes for each other, from its answers on held-out images."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from core.ingest.answers import open_ranked_answers
from core.protocol.job_result import JobResult
from core.work.result import ResultFolder

SHARE = 0.25
"""Of the held-out images of each of the two classes, from which on they are confused."""
LEAST_IMAGES = 5
"""Images of each of the two classes that must be answered as the other."""


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes that are answered as each other.

    Attributes:
        labels: the two classes.
        taken: images of each that are answered as the other.
        images: held-out images of each.
        task: where each task has classes of its own, else 0.
    """

    labels: tuple[str, str]
    taken: tuple[int, int]
    images: tuple[int, int]
    task: int = 0


def count_confused(found: ResultFolder[JobResult]) -> list[ConfusedPair]:
    """Return the pairs that the new version confuses, the worst first; none of answers without true classes."""
    document = found.document
    heads = {head.task: head.classes for head in document.heads}
    answers: dict[int, Counter[tuple[int, int]]] = {}
    for file in document.answers:
        ranked = open_ranked_answers(found.folder / file.file) if file.version == "new" else None
        if ranked is None or not len(ranked.rows):
            continue
        both, counts = np.unique(np.stack([ranked.targets, ranked.rows]), axis=1, return_counts=True)
        pairs = Counter(dict(zip(map(tuple, both.T.tolist()), counts.tolist(), strict=True)))
        answers.setdefault(file.task if heads else 0, Counter()).update(pairs)
    confused = [
        pair
        for task, counted in answers.items()
        for pair in find_confused(counted, heads[task] if task else document.classes, task)
    ]
    return sorted(confused, key=_least_share, reverse=True)


def find_confused(
    answers: Counter[tuple[int, int]], classes: list[str], task: int = 0
) -> Iterable[ConfusedPair]:
    """Find the pairs among the answers of one head.

    Args:
        answers: (true row, answered row) → images.
    """
    images: Counter[int] = Counter()
    for (truth, _), count in answers.items():
        images[truth] += count
    for (one, other), count in answers.items():
        taken = (count, answers.get((other, one), 0))
        if one < other and all(
            many >= LEAST_IMAGES and many >= SHARE * images[row]
            for row, many in zip((one, other), taken, strict=True)
        ):
            yield ConfusedPair((classes[one], classes[other]), taken, (images[one], images[other]), task)


def _least_share(pair: ConfusedPair) -> float:
    return min(taken / images for taken, images in zip(pair.taken, pair.images, strict=True))
