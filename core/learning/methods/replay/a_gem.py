"""Averaged GEM: no step may raise the loss on a random batch of earlier examples.

g_ref is the gradient on that batch. If g · g_ref < 0, the step's gradient becomes g - (g · g_ref /
|g_ref|²) g_ref (Chaudhry et al. 2019, equation 11); else it stays as it is, bit for bit. The memory
is a reservoir over all earlier tasks. The current task's examples enter it when the task ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from core.learning.memory.gradient import (
    add_vector_to_gradient,
    compute_replay_gradient_vector,
    read_gradient_vector,
)
from core.learning.methods.method import TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.methods.replay.with_reservoir import BufferHyper, ReservoirMethod
from core.learning.training.context import TaskTrainingContext, TrainingBatch

FLAT = 1e-12  # squared norm below which a reference gradient is ignored


class AGemHyper(BufferHyper):
    """Hyper-parameters of the method `a-gem`; `buffer`: number of examples retained from all tasks.

    `reference_batch`: examples of the reference gradient, 0 for none.
    """

    reference_batch: Annotated[int, Field(ge=0, le=65_536)] = 256


@register_method
class AGemMethod(ReservoirMethod):
    """The method `a-gem` (averaged GEM): one linear constraint on the gradient, from a sample of
    all tasks.
    """

    name = "a-gem"
    footprint = TrainingMemoryMultiples(copies=9.0, images=256)
    description = (
        "Averaged GEM: projects each step so that a random batch of earlier examples "
        "does not get worse."
    )
    source = "Chaudhry et al. 2019, arXiv 1812.00420"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "class": "a step that does not hurt the average of old classes still forgets many of them"
    }
    Hyper = AGemHyper
    neutral = AGemHyper(reference_batch=0)
    no_shards = ""
    hyper: AGemHyper

    def project_gradient(self, ctx: TaskTrainingContext) -> None:
        """Project the gradients in place if they oppose the gradient of a replayed batch (equation
        11); without memory they stay.
        """
        reservoir = self._open_reservoir(ctx)
        if reservoir.item_count == 0 or self.hyper.reference_batch == 0:
            return
        # The table for augmentation is drawn as well, but a memory's gradient is of unaugmented
        # images.
        items, _ = reservoir.draw_items_and_augmentation_numbers(self.hyper.reference_batch)
        parameters = list(ctx.trainable.values())
        reference = compute_replay_gradient_vector(self, ctx, items, parameters)
        products = torch.stack(
            [read_gradient_vector(parameters) @ reference, reference @ reference]
        )
        conflict, norm = products.tolist()  # one copy for both, since a GPU is waited for at each
        if conflict < 0 and norm >= FLAT:
            add_vector_to_gradient(-conflict / norm * reference, parameters)

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Offer the task's examples to the reservoir replay buffer at its end."""
        for batch in batches:
            # Only now, so that the reference gradient is of earlier tasks alone.
            self._open_reservoir(ctx).offer_items_to_reservoir(batch.raw, batch.y, ctx.task)
