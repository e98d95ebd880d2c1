"""Experience replay with an asymmetric loss: new images compete with the classes of their batch, old ones with all.

Caccia et al. 2022 (arXiv 2104.05025), ER-ACE. In plain replay the first steps on new classes push the old
classes' logits down for every new image, and the features of old classes move with them; here new images say
nothing of old classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from core.learn.context import Batch, Context
from core.learn.memory.replay import replay_inputs
from core.learn.methods.er import Er
from core.learn.registration import register


@register
class ErAce(Er):
    """As `er`, but for the loss: the sum of two means, one over the batch and one over what is replayed."""

    name = "er-ace"
    description = "Experience replay in which new images compete with the classes of their own batch alone."
    source = "Caccia et al. 2022, New Insights on Reducing Abrupt Representation Change, arXiv 2104.05025"
    scenarios = ("data", "class")
    neutral = None
    no_neutral = "without replay new images still compete with the classes of their batch alone"
    regularisers = ("replay",)
    no_shards = "new images compete with the classes of their whole batch, which a slice does not have"

    def loss_terms(self, ctx: Context, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the batch over its own classes, and of remembered images over all classes so far."""
        n = ctx.recipe.batch_size if self.hyper.replay_batch is None else self.hyper.replay_batch
        reservoir = self._reservoir(ctx)
        if n == 0 or reservoir.size == 0:
            logits = self.forward(ctx.network, batch.x, None).float()
            return {"task": batch_cross_entropy(logits, batch.y)}
        items, table = reservoir.draw(n, ctx.augment.columns)
        x = torch.cat([batch.x, replay_inputs(ctx, items, table)])
        logits, new = self.forward(ctx.network, x, None).float(), len(batch.y)
        return {
            "task": batch_cross_entropy(logits[:new], batch.y),
            "replay": functional.cross_entropy(logits[new:], items.labels),
        }


def batch_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of logits [B, C] over the classes that y, int64 [B], holds."""
    absent = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
    absent[y] = False
    return functional.cross_entropy(logits.masked_fill(absent, -torch.inf), y)
