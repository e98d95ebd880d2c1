"""The temperature of a new version, from the best available source."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from core.learn.calibration.held_out import Logits
from core.learn.calibration.temperature import fit_temperature
from core.protocol.manifest import Temperature

LEAST = 30
"""Minimum number of images to fit a temperature to; with fewer, the next source is used."""


def choose_temperature(
    held_out: Logits,
    left_out: Callable[[], tuple[Tensor, Tensor] | None],
    parent: Temperature | None,
) -> Temperature:
    """Fit a temperature to the best source with enough images.

    In order: held-out logits; left-out scores of training images; the parent's temperature; 1.

    Args:
        held_out: logits of this version, over all tasks.
        left_out: returns scores [n, classes] and rows int64 [n], see `Method.left_out_scores`.
        parent: the parent's temperature; None if there is no parent.
    """
    if len(held_out.targets) >= LEAST:
        value = fit_temperature(held_out.values, held_out.targets)
        return Temperature(value=value, source="held-out", images=len(held_out.targets))
    scores = left_out()
    if scores is not None and len(scores[1]) >= LEAST:
        value = fit_temperature(*scores)
        return Temperature(value=value, source="left-out", images=len(scores[1]))
    if parent is not None and parent.source != "none":
        return Temperature(value=parent.value, source="parent")
    return Temperature(value=1.0, source="none")
