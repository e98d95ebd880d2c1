"""What a graph is made of: a version from pixels to probabilities, with its method's own way to answer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from core.learn.method import Method
from core.learn.networks import Network
from core.learn.precision import Inputs
from core.protocol.architecture import Normalisation
from core.protocol.export_job import output_name, sure_name


class Answers(nn.Module):
    """uint8 [B, channels, size, size] to float32 [B, classes] that sum to 1, a tensor for each head.

    tasks: what names the heads, in the order of the outputs; None for a single head. temperature: divides scores before
    their softmax. sure_from: the probability from which on an answer is sure; None: that is no output. The numbers are
    those of `core.learn.predicting.predict`, whose images have their channels last.
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
        self.tasks = network.head_tasks()
        self.method = method
        self.temperature = temperature
        self.sure_from = sure_from
        known = Inputs(normalise, channels, torch.device("cpu")).normalise
        self.register_buffer("shift", torch.tensor([[[255 * mean]] for mean in known.mean]))
        self.register_buffer("scale", torch.tensor([[[1 / (255 * std)]] for std in known.std]))

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        names = [output_name(task) for task in self.tasks]
        return names if self.sure_from is None else names + [sure_name(task) for task in self.tasks]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """A tensor for each head, in the order of `tasks`; then bool [B] for each: whether the answer is sure."""
        x = (images.float() - self.shift) * self.scale
        scores = (self.method.predict_logits(self.network, x, task).float() for task in self.tasks)
        if self.temperature != 1:  # a graph of a version without one has no node for it
            scores = (score / self.temperature for score in scores)
        probabilities = tuple(score.softmax(1) for score in scores)
        if self.sure_from is None:
            return probabilities
        return probabilities + tuple(each.amax(1) >= self.sure_from for each in probabilities)
