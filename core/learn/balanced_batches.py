"""Share of a training step for a task's images when a recipe asks for `balanced_batches`.

A batch of the task is stratified (`core/learn/sampler.py`), and the replay buffer is filled and
drawn evenly over classes (`core/learn/memory/evenly.py`). Even so, a task of one known class would
get half of each step. So a task of known classes alone takes its classes' share of the recipe's
batch: replayed images supply the other classes.
"""

from __future__ import annotations

from torch import Tensor

from core.learn.context import Context
from core.learn.method import Method

HEAD = "head.weight"


def batch_share(ctx: Context, method: Method, labels: Tensor) -> float:
    """Return the share of the recipe's batch size that a step takes from the task's images, in (0,
    1].

    Less than 1 only for known classes alone, under a head that they share with others whose images
    are replayed. With the shares of the classes in replay, each of the task's then has about twice
    that of another, not the half of all.

    Args:
        labels: int64 [n], rows of the head, of the training images.
    """
    if not (ctx.recipe.balanced_batches and method.replays) or ctx.first or ctx.scenario == "task":
        return 1.0
    before = ctx.weights_at("update_start").get(HEAD)
    present: Tensor = labels.unique()  # type: ignore[no-untyped-call]
    if before is None or int(present.max()) >= before.shape[0]:
        return 1.0
    return present.numel() / len(ctx.network.classes)
