"""Dark experience replay++: DER with a third term, the labels of a second, independent draw.

L = CE(new) + alpha · MSE(z(buffer), z_stored) + beta · CE(second draw), Buzzega et al. 2020. With
beta 0 it equals DER bit for bit.

With `draws` "shared" both terms use one draw: a step passes 2 batches in place of 3. Each term is a
mean over a uniform draw from the same replay buffer, and an expectation is linear. Loss and
gradient therefore have the same expectation as with two draws. Only the variance differs, by twice
the covariance of the two terms on the same images.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from core.learning.methods.method import CLIP_FROM_RANDOM, TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.methods.replay.der import (
    DarkExperienceReplay,
    DerHyper,
    ItemsLoss,
    compute_stored_labels_loss,
)
from core.learning.recipe import NotNegative, StrictRecipeModel


class DerPlusPlusHyper(DerHyper):
    """Hyper-parameters of the method `der++`, in addition to those of DER.

    `beta` weighs stored labels; 0: no draw for them. `draws`: take stored logits and labels from
    two independent draws, or from one that both terms share.
    """

    alpha: NotNegative = 0.1
    beta: NotNegative = 0.5
    draws: Literal["separate", "shared"] = "separate"


@register_method
class DarkExperienceReplayPlusPlus(DarkExperienceReplay):
    """The method `der++`: replays stored logits and labels, from separate draws or one."""

    name = "der++"
    footprint = TrainingMemoryMultiples(batches=3.0)
    description = (
        "Dark experience replay++: replays stored examples with their old logits and their labels."
    )
    Hyper: ClassVar[type[StrictRecipeModel]] = DerPlusPlusHyper
    neutral: ClassVar[StrictRecipeModel | None] = DerPlusPlusHyper(alpha=0.0, beta=0.0)
    regularisers = ("logits", "labels")
    from_random: ClassVar[Mapping[str, Any]] = {
        "method": {"beta": 1.0},
        "optimizer": {"lr": 0.1, "clip": CLIP_FROM_RANDOM},
    }
    hyper: DerPlusPlusHyper

    def get_replay_loss_terms(self) -> dict[str, tuple[float, ItemsLoss]]:
        """Return the replay loss terms of DER and the cross-entropy of stored labels."""
        # Behind the logits: the order of draws is part of the run, and with beta 0 it is DER's.
        return {
            **super().get_replay_loss_terms(),
            "labels": (self.hyper.beta, compute_stored_labels_loss),
        }

    @property
    def shares_one_replay_draw(self) -> bool:
        """True if the recipe uses one draw from the buffer for both replay terms."""
        return self.hyper.draws == "shared"
