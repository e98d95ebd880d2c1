"""Context of a method's run: network, task, batch, and helpers.

A context keeps nothing between steps. The loop clears `scratch` after every step. `cache` holds
what can be computed again at any step, such as a teacher network, and is never saved. What must
survive belongs in the method's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.learning.data.augment import Augmentation
from core.learning.distributed.slices import WHOLE, BatchSlice
from core.learning.networks import Network
from core.learning.networks.network import use_eval_mode
from core.learning.precision import InputNormaliser, use_full_precision, use_training_precision
from core.learning.problems.classification import CLASSIFICATION
from core.learning.problems.problem import Problem
from core.learning.recipe import Recipe, StartingPoint


@dataclass
class TrainingBatch:
    """A batch of training images (or features) with their labels.

    Attributes:
        x: float [B, C, S, S] on the device, augmented and normalised; or cached features [B, D],
            which a network takes in their place.
        y: [B, …], the problem's targets; in classification int64, rows of the head in use.
        index: int64 [B], rows of the training part, on the CPU.
        task: number of the head's task in the task scenario, else None.
        raw: returns the unaugmented uint8 images [b, S, S, C] of the rows asked for (0 … B-1, on
            the CPU).
    """

    x: Tensor
    y: Tensor
    index: Tensor
    task: int | None
    raw: Callable[[Tensor], Tensor]


@dataclass
class TaskTrainingContext:
    """Context in which a method trains one task: network, recipe, device, task and loop position.

    Attributes:
        class_rows: int64, ascending: rows of the head that belong to this task's classes, or the
            task's other outputs.
        problem: what a label is.
        first: True if no earlier task was learned on the way to this version.
        weights_at: starting point → its parameters by name, on the CPU, read-only.
        log_metric: reports a metric: name, value, further JSON values.
        log: writes a sentence to the job's log.
        alive: says that the run goes on; cheap. A loop that reports nothing else calls it in every
            round, or the worker takes the run for stalled (PERENNIAL_STALL_S).
        folder: for scratch files, which are deleted with the run.
        num_images: images in the training part.
        share: of the recipe's batch size that a step takes of the task's images, in (0, 1].
        num_steps: optimizer steps of the task, over all stages.
        examples: iterates over the training part once, shuffled and unaugmented.
        in_order: the same in the dataset's order.
        trainable: the set S of parameters that move, by name.
        batch: batches done in this epoch, of `batches`.
        part: the slice of the step's batch that a loss is computed for.
        has_keys: True if the images of the training part are keys of kept features, uint8
            [N, 1, 1, 16], which stand for images that need not exist any more.
        cached: gives remembered images their features in a stage that learns from cached ones; else
            None.
    """

    network: Network
    scenario: str
    task: int
    classes: list[str]
    class_rows: Tensor
    recipe: Recipe
    device: torch.device
    inputs: InputNormaliser
    augment: Augmentation
    first: bool
    warn: Callable[[str], None]
    weights_at: Callable[[StartingPoint], Mapping[str, Tensor]]
    problem: Problem[Any] = CLASSIFICATION
    log_metric: Callable[[str, float | None, Mapping[str, Any]], None] = lambda name, value, data: (
        None
    )
    log: Callable[[str], None] = lambda message: None
    alive: Callable[[], None] = lambda: None
    folder: Path = Path()
    num_images: int = 0
    has_keys: bool = False
    share: float = 1.0
    num_steps: int = 0
    examples: Callable[[], Iterable[TrainingBatch]] = tuple
    in_order: Callable[[], Iterable[TrainingBatch]] = tuple
    trainable: dict[str, nn.Parameter] = field(default_factory=dict)
    stage: str = "all"
    epoch: int = 0
    step: int = 0
    batch: int = 0
    batches: int = 0
    part: BatchSlice = WHOLE
    cached: Callable[[Tensor], Tensor] | None = None
    scratch: dict[str, Any] = field(default_factory=dict)
    cache: dict[str, Any] = field(default_factory=dict)

    @property
    def task_argument_of_forward(self) -> int | None:
        """The `task` argument of the network's forward pass: this task's number; None for a single
        head.
        """
        return self.task if self.scenario == "task" else None

    @property
    def is_loss_over_task_classes_only(self) -> bool:
        """True if the loss on new data is a softmax over this task's classes alone."""
        if self.scenario != "class" or self.class_rows.numel() == len(self.network.classes):
            return False
        return self.recipe.train_ce == "masked"

    def make_replay_inputs(self, images: Tensor) -> Tensor:
        """Make network inputs of replayed images uint8 [B, S, S, C]: [B, C, S, S], or cached
        features.
        """
        return self.inputs(images) if self.cached is None else self.cached(images)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Compute the problem's mean loss on the current task's data.

        In classification it is the cross-entropy under the recipe's `train_ce`.
        """
        return self.problem.loss(
            outputs, y, self.class_rows if self.is_loss_over_task_classes_only else None
        )

    def compute_weight_displacement(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Compute the change θ - θ_start of trained parameters since the task began, by name.

        Rows and parameters that were added since the task began have θ_start = 0.
        """
        # Cached, since copying the starting weights to a GPU in each step would make it wait for
        # the host.
        anchors: dict[str, Tensor] = self.cache.setdefault("start", {})
        displacements: dict[str, Tensor] = {}
        for name in names:
            if name not in anchors:
                start = self.weights_at("update_start").get(name)
                anchors[name] = _pad_starting_value(start, self.trainable[name])
            displacements[name] = self.trainable[name].detach() - anchors[name]
        return displacements

    def use_mixed_precision(self) -> Any:
        """Return a context manager for mixed precision in training passes, as the recipe and device
        require.
        """
        return use_training_precision(self.device, self.recipe.precision)

    @property
    def are_image_outputs_independent(self) -> bool:
        """True if an image's outputs do not depend on the other images of its batch."""
        return not self._list_batch_statistics_norms()

    @contextmanager
    def keep_running_statistics_unchanged(self) -> Iterator[None]:
        """Context manager for extra forward passes that leave BatchNorm's running statistics
        unchanged.
        """
        norms = self._list_batch_statistics_norms()
        for module in norms:
            # Not momentum 0: a layer that tracks nothing also leaves `num_batches_tracked` alone.
            module.track_running_stats = False
        try:
            yield
        finally:
            for module in norms:
                module.track_running_stats = True

    @contextmanager
    def use_exact_evaluation_mode(self) -> Iterator[None]:
        """Context manager that runs in eval mode and full float32 precision.

        Every module returns to its former mode afterwards.
        """
        with use_eval_mode(self.network), use_full_precision(self.device):
            yield

    def _list_batch_statistics_norms(self) -> list[nn.modules.batchnorm._BatchNorm]:
        """List the BatchNorm layers that use the statistics of the batch."""
        return [
            m
            for m in self.network.modules()
            if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training
        ]


def _pad_starting_value(start: Tensor | None, now: Tensor) -> Tensor:
    """Pad a parameter's starting value with zero rows to its present shape and layout."""
    # `zeros_like` copies the memory layout too: arithmetic on two layouts is slow.
    anchor = torch.zeros_like(now, requires_grad=False)
    if start is not None:
        anchor[: start.shape[0]] = start.to(now.device)
    return anchor
