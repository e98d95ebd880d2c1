"""Answers of the version that a job starts from to new classes, before they are learned.

It has to call each of their images by a class that it knows. How often it does so surely is what production would have
got wrong, without a sign, had the images come as questions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.learn.dataset import Dataset
from core.learn.evaluate import Predict, batch_size, pick_rows
from core.learn.networks import Network
from core.learn.networks.network import in_eval
from core.learn.precision import Inputs, full_precision
from core.learn.probe import evenly_spaced
from core.protocol.data_report import WouldSay

MOST_IMAGES = 1000
SHOWN = 100
SURELY = 0.9
"""The probability that counts as sure where the model does not say when an answer is."""


@dataclass(frozen=True)
class Parent:
    """A version as it answers. sure_from: None: `SURELY` counts."""

    network: Network
    predict: Predict
    inputs: Inputs
    temperature: float
    version: int
    sure_from: float | None


def would_say(parent: Parent, data: Dataset) -> list[WouldSay]:
    """Of each class of `data` that the version does not know, what it is called most often; the surest first."""
    known = parent.network.classes
    is_new = torch.tensor([name not in set(known) for name in data.names], dtype=torch.bool)
    rows = is_new[data.labels].nonzero().squeeze(1)
    if not known or not len(rows):
        return []
    rows = rows[evenly_spaced(len(rows), MOST_IMAGES)]
    said, probabilities = _answer(parent, data, rows)
    least = SURELY if parent.sure_from is None else parent.sure_from
    found: list[WouldSay] = []
    for label in data.labels[rows].unique().tolist():  # type: ignore[no-untyped-call]
        mine = data.labels[rows] == label
        most = int(said[mine].mode().values)
        taken = mine & (said == most)
        found.append(
            {
                "label": data.names[label],
                "said": known[most],
                "images": int(taken.sum()),
                "surely": int((taken & (probabilities >= least)).sum()),
                "of": int(mine.sum()),
                "least": least,
                "version": parent.version,
            }
        )
    return sorted(found, key=lambda one: -one["surely"] / one["of"])[:SHOWN]


def _answer(parent: Parent, data: Dataset, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int64 [n] and float16 [n]: the rows of the version's answers and their probabilities."""
    parts: list[tuple[torch.Tensor, torch.Tensor]] = []
    with in_eval(parent.network), full_precision(parent.inputs.device), torch.inference_mode():
        for some in rows.split(batch_size(data.images)):  # type: ignore[no-untyped-call]
            logits = parent.predict(parent.network, parent.inputs(data.images[some]), None)
            parts.append(pick_rows(logits, parent.temperature))
    picked, probabilities = zip(*parts, strict=True)
    return torch.cat(picked).long(), torch.cat(probabilities)
