"""What a method sees of the run it is part of: network, task, batch, and helpers that keep the rules.

A context carries no memory between steps: `scratch` holds the values of one step and is cleared by the loop;
`derived` holds what can be made again from the state at any step (a teacher network) and is never saved.
Everything that must survive belongs in the method's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.learn.augment import Augmentation
from core.learn.networks import Network
from core.learn.networks.network import in_eval
from core.learn.precision import Inputs, autocast
from core.learn.recipe import Recipe, StartingPoint


@dataclass
class Batch:
    """One step's training batch.

    x: float [B, C, S, S] on the device, augmented and normalised. y: int64 [B], rows of the head in use.
    index: int64 [B], rows of the training part. task: the head's task in the task scenario, else None.
    raw: gives the unaugmented uint8 images [b, S, S, C] of the rows asked for (0 … B-1).
    """

    x: Tensor
    y: Tensor
    index: Tensor
    task: int | None
    raw: Callable[[Tensor], Tensor]


@dataclass
class Context:
    """The run of one task. `first`: no earlier task was learned on the way to this version."""

    network: Network
    scenario: str
    task: int
    classes: list[str]
    units: Tensor  # int64, rows of the head that belong to this task's classes, ascending
    recipe: Recipe
    device: torch.device
    inputs: Inputs
    augment: Augmentation
    first: bool
    warn: Callable[[str], None]
    weights_at: Callable[[StartingPoint], Mapping[str, Tensor]]  # parameters by name, on the CPU, read-only
    note: Callable[[str, float | None, Mapping[str, Any]], None] = lambda name, value, data: None  # a metric
    count: int = 0  # images that the task is learned from
    examples: Callable[[], Iterable[Batch]] = tuple  # those images once, in a random order and unaugmented
    trainable: dict[str, nn.Parameter] = field(default_factory=dict)  # the set S, by name
    stage: str = "all"
    epoch: int = 0
    step: int = 0
    batch: int = 0  # batches done in this epoch, of `batches`
    batches: int = 0
    scratch: dict[str, Any] = field(default_factory=dict)
    derived: dict[str, Any] = field(default_factory=dict)

    @property
    def head_task(self) -> int | None:
        """What `task` is for a forward pass on the current task: its number, or None with a single head."""
        return self.task if self.scenario == "task" else None

    @property
    def masked(self) -> bool:
        """Whether the loss of new data sees only the units of this task's classes."""
        if self.scenario != "class" or self.units.numel() == len(self.network.classes):
            return False
        return self.recipe.train_ce == "masked"

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy of the current task's data under the recipe's `train_ce`."""
        logits = logits.float()
        if self.masked:
            logits = logits.index_select(1, self.units)
            y = torch.searchsorted(self.units, y)
        return functional.cross_entropy(logits, y)

    def way(self, names: Iterable[str]) -> dict[str, Tensor]:
        """θ - θ_start of parameters that move, by name; what was added since the task's start counts from zero."""
        anchors: dict[str, Tensor] = self.derived.setdefault("start", {})
        found: dict[str, Tensor] = {}
        for name in names:
            if name not in anchors:
                start = self.weights_at("update_start").get(name)
                anchors[name] = _padded(start, self.trainable[name])
            found[name] = self.trainable[name].detach() - anchors[name]
        return found

    def autocast(self) -> Any:
        """The number format of forward passes on this device."""
        return autocast(self.device)

    @property
    def rows_independent(self) -> bool:
        """Whether what a forward pass says of an image does not depend on the images beside it."""
        return not self._training_norms()

    @contextmanager
    def extra_forward(self) -> Iterator[None]:
        """For forwards beside the main pass: batch statistics, but no change of BatchNorm buffers."""
        held = self._training_norms()
        for module in held:
            module.track_running_stats = False
        try:
            yield
        finally:
            for module in held:
                module.track_running_stats = True

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Eval mode, and the exact mode of every module restored afterwards."""
        with in_eval(self.network):
            yield

    def _training_norms(self) -> list[nn.modules.batchnorm._BatchNorm]:
        """BatchNorm layers that use the statistics of the batch."""
        return [
            m for m in self.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training
        ]


def _padded(start: Tensor | None, now: Tensor) -> Tensor:
    """Where a parameter was, in its present shape and layout."""
    anchor = torch.zeros_like(now, requires_grad=False)
    if start is not None:
        anchor[: start.shape[0]] = start.to(now.device)
    return anchor
