"""Experience replay with an asymmetric loss: new images compete with their batch's classes alone.

Replayed images compete with all classes. Caccia et al. 2022 (arXiv 2104.05025), ER-ACE. In plain
replay the first steps on new classes push the old classes' logits down for every new image. The
features of old classes move with them. Here the loss of new images leaves out the classes that are
not in their batch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.memory.replay import make_inputs_of_replay_items
from core.learning.methods.registration import register_method
from core.learning.methods.replay.er import ExperienceReplay
from core.learning.training.context import TaskTrainingContext, TrainingBatch


@register_method
class ExperienceReplayAce(ExperienceReplay):
    """The method `er-ace`: experience replay whose new images compete only with classes of their
    batch.
    """

    name = "er-ace"
    description = (
        "Experience replay in which new images compete with the classes of their own batch alone."
    )
    source = (
        "Caccia et al. 2022, New Insights on Reducing Abrupt Representation Change, arXiv "
        "2104.05025"
    )
    scenarios = ("data", "class")
    neutral = None
    no_neutral = "without replay new images still compete with the classes of their batch alone"
    regularisers = ("replay",)
    no_shards = (
        "new images compete with the classes of their whole batch, which a slice does not have"
    )

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute the cross-entropies of new images (over their batch's classes) and of replayed
        ones.

        New images are scored over the batch's classes, replayed ones over all classes so far.
        """
        n, reservoir = self._get_replay_size(ctx), self._open_reservoir(ctx)
        if n == 0 or reservoir.item_count == 0:
            logits = self.forward(ctx.network, batch.x, None).float()
            return {"task": compute_cross_entropy_over_batch_classes(logits, batch.y)}
        items, table = reservoir.draw_items_and_augmentation_numbers(n, ctx.augment.columns)
        x = torch.cat([batch.x, make_inputs_of_replay_items(ctx, items, table)])
        # One pass over both, so that BatchNorm sees new and old images together.
        logits, new = self.forward(ctx.network, x, None).float(), len(batch.y)
        return {
            "task": compute_cross_entropy_over_batch_classes(logits[:new], batch.y),
            "replay": functional.cross_entropy(logits[new:], items.labels),
        }


def compute_cross_entropy_over_batch_classes(logits: Tensor, y: Tensor) -> Tensor:
    """Compute the mean cross-entropy of logits [B, C] over only the classes that occur in y.

    y: int64 [B].
    """
    # `unique` would make a GPU wait for the host, and so would `absent[y] = False`.
    absent = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
    absent.index_fill_(0, y, False)
    return functional.cross_entropy(logits.masked_fill(absent, -torch.inf), y)
