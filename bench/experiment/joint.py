"""Training on all data so far: the upper bound of every method, and only for benchmarks.

At stage i a joint run trains from the first weights on the union of the tasks 1 … i. With one head
and a loss over all classes that is plain fine-tuning on the union. Where each image competes only
within its own task (a head per task, or `train_ce` "masked") it is the method below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor, tensor
from torch.nn import functional

from core.learning.methods import registry
from core.learning.methods.finetune import FinetuneMethod
from core.learning.recipe import Recipe, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch


class JointHeadsHyper(StrictRecipeModel):
    """Hyper-parameters of the joint method. `groups`: the class names of each task."""

    groups: list[list[str]]


class JointHeadsMethod(FinetuneMethod):
    """Continual-learning method that trains on all tasks at once, with logits compared within a
    task.
    """

    name = "joint-heads"
    description = "Cross-entropy of each image over the classes of its own task."
    source = "The joint reference of van de Ven and Tolias 2019, arXiv 1904.07734"
    scenarios = ("class",)
    Hyper = JointHeadsHyper
    neutral = None  # type: ignore[assignment]  # a method may have none, but fine-tuning has one
    no_neutral = "its loss depends on the groups alone; one group with all classes is fine-tuning"

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Return the cross-entropy of logits, with those of other tasks' classes masked."""
        logits = self.forward(ctx.network, batch.x, batch.task).float()
        group = ctx.cache.get("group")
        if group is None:
            number = {name: i for i, names in enumerate(self.hyper.groups) for name in names}
            group = tensor([number[name] for name in ctx.network.classes], device=ctx.device)
            ctx.cache["group"] = group
        other_task_mask = group[batch.y][:, None] != group
        return {
            "task": functional.cross_entropy(
                logits.masked_fill(other_task_mask, -float("inf")), batch.y
            )
        }


@contextlib.contextmanager
def register_joint_method_temporarily() -> Iterator[None]:
    """Register the joint-training method within a block, so that recipes may name it."""
    if JointHeadsMethod.name in registry.METHODS:
        yield
        return
    registry.register_method(JointHeadsMethod)
    try:
        yield
    finally:
        del registry.METHODS[JointHeadsMethod.name]


def choose_joint_method_of_recipe(
    recipe: Recipe, scenario: str, tasks: list[list[str]]
) -> dict[str, object]:
    """Return the recipe's method for joint training of tasks with these class names."""
    if scenario == "task" or recipe.train_ce == "masked":
        return {"name": JointHeadsMethod.name, "groups": tasks}
    return {"name": "finetune"}
