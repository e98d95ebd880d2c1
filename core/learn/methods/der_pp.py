"""Dark experience replay++: DER with a third term, the labels of a second and independent draw.

L = CE(new) + alpha · MSE(z(buffer), z_stored) + beta · CE(second draw), Buzzega et al. 2020. With beta 0 it
equals DER bit for bit.

With `draws` "shared" both terms read one draw: a step passes 2 batches in place of 3. Each term is a mean over a
uniform draw from the same memory, and an expectation is linear, so loss and gradient have the same expectation as with
two draws. Only the variance differs, by twice the covariance of the two terms on the same images.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from core.learn.method import CLIP_FROM_RANDOM, Footprint
from core.learn.methods.der import Der, DerHyper, ItemsLoss, stored_labels_loss
from core.learn.recipe import NotNegative, Strict
from core.learn.registration import register


class DerPlusPlusHyper(DerHyper):
    """As DER's. `beta` weighs stored labels; 0: no draw for them.

    `draws`: stored logits and labels are of two independent draws, or of one that both terms share.
    """

    alpha: NotNegative = 0.1
    beta: NotNegative = 0.5
    draws: Literal["separate", "shared"] = "separate"


@register
class DerPlusPlus(Der):
    """Replay of logits and of labels, from two independent draws or from one."""

    name = "der++"
    footprint = Footprint(batches=3.0)
    description = "Dark experience replay++: replays stored examples with their old logits and their labels."
    Hyper: ClassVar[type[Strict]] = DerPlusPlusHyper
    neutral: ClassVar[Strict | None] = DerPlusPlusHyper(alpha=0.0, beta=0.0)
    regularisers = ("logits", "labels")
    from_random: ClassVar[Mapping[str, Any]] = {
        "method": {"beta": 1.0},
        "optimizer": {"lr": 0.1, "clip": CLIP_FROM_RANDOM},
    }
    hyper: DerPlusPlusHyper

    def replayed(self) -> dict[str, tuple[float, ItemsLoss]]:
        """As DER's, and the cross-entropy of stored labels."""
        return {**super().replayed(), "labels": (self.hyper.beta, stored_labels_loss)}

    @property
    def shares_draw(self) -> bool:
        """True where the recipe asks for one draw."""
        return self.hyper.draws == "shared"
