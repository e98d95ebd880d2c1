"""The split: classes into batches of new classes, and images into learned and held-out ones."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perennial.pack.images import BatchImageEntry
from tools.compare_methods.errors import ComparisonImpossible

LEAST_IMAGES = 10
"""Least images of a class; with fewer, one held-out image is a third of the class's accuracy."""
HELD_OUT_SHARE = 0.3
USUAL_BATCHES = 3
MAX_LEARNED, MAX_HELD_OUT = 60, 50
"""Images of a class that are used unless an option sets other numbers."""
ALL_LEARNED, ALL_HELD_OUT = 600, 500
"""Images of all classes: many classes use fewer images each, so that a comparison takes minutes."""
SHOWN = 5


@dataclass(frozen=True)
class SplitSettings:
    """Settings by which a comparison samples images: number of batches, limits per class, seed.

    Attributes:
        batches: number of batches of new classes; None for the usual number.
        images, held_out: most images of each class; None for the usual number.
        seed: seed of the order of classes and of the choice of images.
    """

    batches: int | None = None
    images: int | None = None
    held_out: int | None = None
    seed: int = 0

    def compute_max_training_images_per_class(self, classes: int) -> int:
        """Return the largest number of training images of each class."""
        return self.images or max(LEAST_IMAGES, min(MAX_LEARNED, ALL_LEARNED // classes))

    def compute_max_held_out_per_class(self, classes: int) -> int:
        """Return the largest number of held-out images of each class."""
        return self.held_out or max(LEAST_IMAGES, min(MAX_HELD_OUT, ALL_HELD_OUT // classes))


@dataclass(frozen=True)
class BatchSplit:
    """The classes of each batch, and which images of each class are for training and held out."""

    batches: tuple[tuple[str, ...], ...]
    learned: dict[str, tuple[int, ...]]
    held_out: dict[str, tuple[int, ...]]

    @property
    def classes(self) -> list[str]:
        """All classes in the order in which they are learned."""
        return [label for batch in self.batches for label in batch]


def draw_batch_split(rows: Sequence[BatchImageEntry], sample: SplitSettings) -> BatchSplit:
    """Randomly split images into batches of classes and held-out images; the same seed repeats it.

    A test part of the folder is held out. Of a class without one, a share of its images is held
    out.

    Raises:
        ComparisonImpossible: there are fewer than two classes, a class has too few images, or there are
            too many batches.
    """
    pools: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for number, row in enumerate(rows):
        # False is index 0, learned images; True is index 1, held-out ones.
        pools[row.label][row.part == "test"].append(number)
    _require_enough_classes(sorted(pools), sample.batches)
    counts = {label: len(learned) + len(held_out) for label, (learned, held_out) in pools.items()}
    _require_enough_images_per_class(counts)
    draw = random.Random(sample.seed)
    # Sorted before it is drawn: a seed decides only over a fixed order.
    batches = tuple(
        _divide_classes_into_batches(draw.sample(sorted(pools), len(pools)), sample.batches)
    )
    limits = (
        sample.compute_max_training_images_per_class(len(pools)),
        sample.compute_max_held_out_per_class(len(pools)),
    )
    # In order, because all classes draw from the same generator.
    drawn = {label: _split_class_images(*pools[label], *limits, draw) for label in sorted(pools)}
    return BatchSplit(
        batches,
        {label: tuple(sorted(learned)) for label, (learned, _) in drawn.items()},
        {label: tuple(sorted(held_out)) for label, (_, held_out) in drawn.items()},
    )


def _require_enough_images_per_class(counts: dict[str, int]) -> None:
    few = sorted(label for label, count in counts.items() if count < LEAST_IMAGES)
    if few:
        named = ", ".join(f"{label} ({counts[label]})" for label in few[:SHOWN])
        more = f" and {len(few) - SHOWN} more" if len(few) > SHOWN else ""
        raise ComparisonImpossible(
            f"Too few images: {named}{more}. Each class needs at least {LEAST_IMAGES}, to learn "
            "from and to be measured on. Add images, or move the folders of these classes away."
        )


def _require_enough_classes(classes: list[str], batches: int | None) -> None:
    if len(classes) < 2:
        raise ComparisonImpossible(
            f"The folder has images of {len(classes)} class{'' if len(classes) == 1 else 'es'}. A "
            "comparison needs at least two, since each batch brings new classes. Name the folder "
            "that holds a folder for each class."
        )
    if batches is not None and not 2 <= batches <= len(classes):
        raise ComparisonImpossible(
            f"{len(classes)} classes cannot be dealt into {batches} batches. Between 2 and "
            f"{len(classes)} are "
            "possible, so that each batch has a new class. Change --batches."
        )


def _divide_classes_into_batches(
    classes: list[str], batches: int | None
) -> Iterator[tuple[str, ...]]:
    """Divide the classes into batches whose sizes differ by at most one, larger ones first."""
    count = batches or max(2, min(USUAL_BATCHES, len(classes) // 2))
    size, remainder = divmod(len(classes), count)
    start = 0
    for number in range(count):
        end = start + size + (number < remainder)
        yield tuple(classes[start:end])
        start = end


def _split_class_images(
    learned: list[int], test: list[int], max_learned: int, max_held_out: int, draw: random.Random
) -> tuple[list[int], list[int]]:
    """Randomly divide the images of a class into training and held-out ones."""
    pool = draw.sample(learned, len(learned))
    if test:
        return pool[:max_learned], draw.sample(test, min(len(test), max_held_out))
    held_out = min(max_held_out, round(HELD_OUT_SHARE * len(pool)))
    return pool[held_out : held_out + max_learned], pool[:held_out]
