"""iCaRL: a few chosen images per class, distillation on all of them, nearest-mean classification.

Rebuffi et al. 2017, arXiv 1611.07725. Every class has a sigmoid output; the loss is the mean binary
cross-entropy over all classes seen. The target is the label for this task's classes and the old
network's sigmoid for the others, on new images and exemplars alike. `train_ce` has no effect:
labels of new images never train an old class.

Each epoch takes the exemplars in its own order, drawn from (seed, task, epoch), and gives every
batch of new images its share of them, so each is seen once. A batch gets at most the recipe's batch
size of exemplars; where a task is much smaller than the memory, an epoch sees a different part each
time. So epochs and steps mean what they mean for other methods, and an epoch is a function of its
number, so nothing needs to be saved.

At the end K exemplars are shared out, m = floor(K / classes) for each class: older lists keep their
first m, new classes are herded. The prediction is the class whose mean exemplar feature is nearest,
features and means both of length one. Until there are means (in training, or when some class has no
exemplars) the head predicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learning.class_map import ClassMap
from core.learning.memory.exemplars import ExemplarBuffer
from core.learning.memory.rehearsal import (
    choose_exemplars_by_herding,
    compute_normalised_features,
    draw_exemplars_to_add_to_batch,
)
from core.learning.methods.method import CLIP_FROM_RANDOM, Method, TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.methods.teacher import get_teacher_network
from core.learning.networks import Network
from core.learning.recipe import StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

MEANS = "class_means"
CHUNK = 256  # images per forward pass over the exemplars


class IcarlHyper(StrictRecipeModel):
    """Hyper-parameters of the method `icarl`; `exemplars`: number of images retained in total,
    K.
    """

    exemplars: Annotated[int, Field(ge=1, le=1_000_000)] = 2000


@register_method
class IcarlMethod(Method):
    """The method `icarl`: exemplars by herding, and classification by the nearest mean of
    exemplars.
    """

    name = "icarl"
    footprint = TrainingMemoryMultiples(copies=8.0, batches=2.0, images=64)
    description = (
        "iCaRL: keeps exemplars chosen by herding, distils sigmoid outputs, answers by the nearest "
        "class mean. Its loss is a mean over classes: from random weights, rates above those of "
        "cross-entropy suit it (its authors use SGD at 2.0)."
    )
    source = (
        "Rebuffi et al. 2017, iCaRL: Incremental Classifier and Representation Learning, "
        "arXiv 1611.07725"
    )
    scenarios = ("task", "class")
    Hyper = IcarlHyper
    no_neutral = "its loss is binary cross-entropy and its answers are class means, whatever K is"
    regularisers = ("distillation",)
    inherited_state = ("exemplars",)
    remembers = "exemplars"
    replays = True
    predicts_with = ("own",)
    inference = "nearest-mean"
    from_random: ClassVar[Mapping[str, Any]] = {"optimizer": {"lr": 0.3, "clip": CLIP_FROM_RANDOM}}
    hyper: IcarlHyper

    def predict_logits(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Score each class by minus the squared distance to its mean exemplar feature; logits
        without means.
        """
        means = self.state["own"].tensors.get(MEANS)
        if means is None:
            return self.forward(network, x, task)
        start = network.find_first_class_number(task)
        means = means[start : start + len(network.list_classes(task))]
        features = compute_normalised_features(network, x)
        # Written out as products: a difference for each image and class would take B · C · D
        # numbers.
        return (
            2 * features @ means.T - means.square().sum(1) - features.square().sum(1, keepdim=True)
        )

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Drop the stored class means when a task begins, since the features are about to
        change.
        """
        self.state["own"].clear_section()  # means of weights that are about to change

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute a binary cross-entropy over all classes: labels for this task's, distillation for
        the others.
        """
        offset = ctx.network.find_first_class_number(ctx.task_argument_of_forward)
        x, labels = batch.x, batch.y + offset
        if (
            share := draw_exemplars_to_add_to_batch(ctx, ExemplarBuffer(self.state["exemplars"]))
        ) is not None:
            x, labels = torch.cat([x, share[0]]), torch.cat([labels, share[1]])
        logits = _compute_logits_of_all_heads(ctx.network, x)
        targets = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
        part = ctx.class_rows.numel() / logits.shape[1]
        # No other class exists yet, so there is nothing to distil.
        if part == 1:
            return {"task": functional.binary_cross_entropy_with_logits(logits, targets)}
        with torch.no_grad():
            soft = _compute_logits_of_all_heads(get_teacher_network(ctx), x).sigmoid()
        new, old = self._split_class_columns(ctx, logits.shape[1])
        # one mean over all classes, in two terms
        terms = {"task": (new, targets, part), "distillation": (old, soft, 1 - part)}
        return {
            name: weight
            * functional.binary_cross_entropy_with_logits(logits[:, rows], target[:, rows])
            for name, (rows, target, weight) in terms.items()
        }

    def compute_head_tuning_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Compute the classifier tuning loss: mean binary cross-entropy over all classes."""
        targets = functional.one_hot(y, logits.shape[1]).to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits, targets)

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Cut old classes' exemplars, choose exemplars of new classes, and compute the class
        means.
        """
        # The teacher is no longer needed, and takes as much memory as the network.
        ctx.cache.clear()
        exemplars = ExemplarBuffer(self.state["exemplars"])
        classes = sum(
            len(ctx.network.list_classes(task)) for task in ctx.network.list_tasks_with_own_head()
        )
        share = self.hyper.exemplars // classes
        exemplars.trim_exemplars_per_class(share)
        if share == 0:
            ctx.warn(
                f"{self.hyper.exemplars} exemplars are fewer than {classes} classes: none are "
                "kept, and the head answers instead of class means; raise method.exemplars"
            )
            return
        offset = ctx.network.find_first_class_number(ctx.task_argument_of_forward)
        with ctx.use_exact_evaluation_mode(), torch.no_grad():
            chosen = choose_exemplars_by_herding(ctx.network, batches, share, ctx.alive)
            lists = {label + offset: images for label, images in chosen.items()}
            exemplars.append_and_trim_class_exemplars(lists, ctx.task, share)
            self._compute_and_store_class_means(ctx, exemplars, classes)

    def renumber_and_drop_classes(self, classes: ClassMap) -> None:
        """Renumber the exemplars' classes, and average the means of merged classes."""
        super().renumber_and_drop_classes(classes)
        tensors = self.state["own"].tensors
        if MEANS in tensors:
            tensors[MEANS] = functional.normalize(
                classes.average_rows_of_merged_classes(tensors[MEANS])
            )

    def recompute_after_class_patch(self, ctx: TaskTrainingContext) -> None:
        """Compute the class means of the exemplars again after a patch."""
        exemplars = ExemplarBuffer(self.state["exemplars"])
        if exemplars.size and MEANS in self.state["own"].tensors:
            self._compute_and_store_class_means(ctx, exemplars, len(ctx.network.classes))

    def erase_task_examples(self, tasks: set[int]) -> None:
        """Delete the exemplars of these tasks.

        Class means are recomputed at the end of the next task.
        """
        if ExemplarBuffer(self.state["exemplars"]).remove_items_of_tasks(tasks):
            # A mean of deleted images would still describe them.
            self.state["own"].tensors.pop(MEANS, None)

    def _split_class_columns(self, ctx: TaskTrainingContext, classes: int) -> tuple[Tensor, Tensor]:
        """Split the columns of all classes into this task's and the others', int64, ascending."""
        if "columns" not in ctx.cache:
            new = torch.zeros(classes, dtype=torch.bool, device=ctx.device)
            new[
                ctx.class_rows + ctx.network.find_first_class_number(ctx.task_argument_of_forward)
            ] = True
            ctx.cache["columns"] = tuple(mask.nonzero().squeeze(1) for mask in (new, ~new))
        columns: tuple[Tensor, Tensor] = ctx.cache["columns"]
        return columns

    def _compute_and_store_class_means(
        self, ctx: TaskTrainingContext, exemplars: ExemplarBuffer, classes: int
    ) -> None:
        """Store the mean exemplar feature of each class, normalised to length one: float32 [C,
        D]."""
        missing = classes - exemplars.labels.unique().numel()  # type: ignore[no-untyped-call]
        if missing:
            ctx.warn(
                f"{missing} of {classes} classes have no exemplars (learned with another method, "
                "or their data was deleted): the head answers instead of class means"
            )
            return
        parts = exemplars.images.split(CHUNK)  # type: ignore[no-untyped-call]
        features = torch.cat(
            [compute_normalised_features(ctx.network, ctx.inputs(part)) for part in parts]
        )
        sums = features.new_zeros(classes, features.shape[1]).index_add_(
            0, exemplars.labels, features
        )
        # Sums and means have the same direction.
        self.state["own"].tensors[MEANS] = functional.normalize(sums)


def _compute_logits_of_all_heads(network: Network, x: Tensor) -> Tensor:
    """Compute logits float32 [B, C] over all classes of all heads."""
    features = network.features(x)
    return torch.cat(
        [network.logits(features, task) for task in network.list_tasks_with_own_head()], dim=1
    ).float()
