"""Online elastic weight consolidation: one running Fisher around the weights after the latest task.

F ← gamma · F + F_task and penalty (lambda / 2) Σ F (θ - θ*)², θ* the weights after the latest task
(Schwarz et al. 2018, Huszár 2018). gamma acts once, when a task ends, and not again in the penalty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from core.learn.methods.ewc import Ewc, EwcHyper
from core.learn.methods.quadratic import weights_now
from core.learn.recipe import Share

if TYPE_CHECKING:
    from core.learn.context import Batch, Context


class EwcOnlineHyper(EwcHyper):
    """As EWC's; `gamma` is what is kept of the importance of earlier tasks when a task ends.

    With gamma 1 importance grows with every task; 0.95 suits streams of more than 20.
    """

    gamma: Share = 1.0


class EwcOnline(Ewc):
    """A diagonal Gaussian around the last solution."""

    name = "ewc-online"
    description = (
        "Elastic weight consolidation with one running Fisher and the latest anchor. Keeps no data. With SGD, "
        "weights that are held too steeply for lr take smaller steps."
    )
    source = "Schwarz et al. 2018, arXiv 1805.06370; Huszár 2018, arXiv 1712.03847"
    Hyper = EwcOnlineHyper
    neutral = EwcOnlineHyper.model_validate({"lambda": 0.0})
    hyper: EwcOnlineHyper

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        tensors = self.tensors
        fresh = self._fisher(ctx, batches)
        for name in self.stored():  # outside S too: no new importance, the old one still decays
            tensors[self.key(name)] = tensors[self.key(name)] * self.hyper.gamma
        for name, value in fresh.items():
            held = tensors.get(self.key(name))
            tensors[self.key(name)] = value if held is None else held + value
        for name in self.stored():
            tensors[f"anchor.{name}"] = weights_now(ctx, name)
