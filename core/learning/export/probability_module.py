"""The module that a graph is traced from: a version from pixels to probabilities, by its method."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from core.contract.architecture import Normalisation
from core.contract.jobs.export_job import get_head_output_name, get_sure_flag_output_name
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.precision import InputNormaliser


class ProbabilityModule(nn.Module):
    """A module for export that maps uint8 [B, channels, size, size] to each head's probabilities.

    Each is float32 [B, classes] and sums to 1. The numbers are those of
    `core.learning.evaluation.predicting.predict_images`, whose images have their channels last.

    Attributes:
        tasks: tasks of the heads, in the order of the outputs; None for a single head.
        temperature: divides scores before their softmax.
        sure_from: least probability of a sure answer; None: no output for it.
        normalise: mean and standard deviation of its images; None for the default.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        network: Network,
        method: Method,
        normalise: Normalisation | None,
        channels: int,
        temperature: float = 1.0,
        sure_from: float | None = None,
    ) -> None:
        super().__init__()
        self.network = network.eval()
        self.tasks = network.list_tasks_with_own_head()
        self.method = method
        self.temperature = temperature
        self.sure_from = sure_from
        self.normalise = normalise
        resolved = InputNormaliser(normalise, channels, torch.device("cpu")).normalise
        # Buffers become constants of the graph, which then takes raw pixels.
        self.register_buffer("shift", torch.tensor([[[255 * mean]] for mean in resolved.mean]))
        self.register_buffer("scale", torch.tensor([[[1 / (255 * std)]] for std in resolved.std]))

    @property
    def output_names(self) -> list[str]:
        """Names of the exported graph's outputs, in their order."""
        names = [get_head_output_name(task) for task in self.tasks]
        return (
            names
            if self.sure_from is None
            else names + [get_sure_flag_output_name(task) for task in self.tasks]
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Compute each head's probabilities in the order of `tasks`, then a mask of confident
        predictions.

        Masks are bool [B]; there are none without `sure_from`.
        """
        # In the same order of operations as `InputNormaliser`, so that both round alike.
        x = (images.float() - self.shift) * self.scale
        scores = (self.method.predict_logits(self.network, x, task).float() for task in self.tasks)
        if self.temperature != 1:  # at 1 the graph gets no node for it
            scores = (score / self.temperature for score in scores)
        probabilities = tuple(score.softmax(1) for score in scores)
        if self.sure_from is None:
            return probabilities
        return probabilities + tuple(each.amax(1) >= self.sure_from for each in probabilities)
