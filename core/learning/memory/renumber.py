"""State with rows or labels by class, renumbered when a patch merges or drops classes."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from core.learning.class_map import DROPPED, ClassMap
from core.learning.memory.reservoir import SEEN
from core.learning.state import MethodStateSection

_OF_HEAD = re.compile(r"(^|[./])head\.(weight|bias)\Z")
"""Names of tensors with a row for each class, such as the importance of the head's weights."""


def renumber_and_drop_replay_labels(section: MethodStateSection, classes: ClassMap) -> None:
    """Renumber the labels in a replay buffer after a class merge or drop; remove images of dropped
    classes.

    Logits of a merged class are the mean of its former ones, as its row of the head is.
    """
    tensors = section.tensors
    if "labels" not in tensors:
        return
    labels = classes.renumber_labels(tensors["labels"])
    tensors["labels"] = labels
    if "logits" in tensors:
        # A logit is a linear function of its row, so its mean is the logit of the mean row.
        tensors["logits"] = classes.average_rows_of_merged_classes(
            tensors["logits"].T
        ).T.contiguous()
        tensors["widths"] = _convert_logit_widths_to_new_classes(tensors["widths"], classes)
    keep = (labels != DROPPED).nonzero().squeeze(1)
    for name in list(tensors):
        if not keep.numel():
            # An empty section counts as no memory, which a tensor of no rows would not.
            del tensors[name]
        elif keep.numel() < labels.numel():
            tensors[name] = tensors[name][keep.to(tensors[name].device)]
    if SEEN in section.json:
        section.json[SEEN] = _renumber_class_counts(section.json[SEEN], classes)


def average_stored_rows_of_merged_classes(section: MethodStateSection, classes: ClassMap) -> None:
    """Average the rows of merged classes in stored tensors shaped like head weights, such as
    importance.
    """
    for name, tensor in list(section.tensors.items()):
        if _OF_HEAD.search(name):
            section.tensors[name] = classes.average_rows_of_merged_classes(tensor)


def _convert_logit_widths_to_new_classes(widths: Tensor, classes: ClassMap) -> Tensor:
    """Convert logit widths (numbers of former classes) to numbers of new classes."""
    new_widths = torch.tensor(
        [len(classes.list_sources_of_each_new_class(n)) for n in range(classes.former + 1)]
    )
    return new_widths.to(widths.device)[widths]


def _renumber_class_counts(counts: dict[str, int], classes: ClassMap) -> dict[str, int]:
    """Renumber counts by class after a class merge or drop."""
    renumbered: dict[int, int] = {}
    for former, count in counts.items():
        new = int(classes.new_numbers[int(former)])
        if new != DROPPED:
            renumbered[new] = renumbered.get(new, 0) + count
    return {str(number): renumbered[number] for number in sorted(renumbered)}
