"""A linear classifier that may start without rows and grows by whole rows.

`W' = [W; new]`, `b' = [b; new]`: old rows stay bit-identical, and so do the logits of old classes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.learning.class_map import ClassMap

INITS = ("zero", "default")


class ClassifierHead(nn.Module):
    """A linear head: logits [B, rows] of features [B, width]. Starts with `rows` rows of zeros."""

    def __init__(self, width: int, rows: int = 0) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.zeros(rows, width))
        self.bias = nn.Parameter(torch.zeros(rows))

    def forward(self, features: Tensor) -> Tensor:
        """Map features [B, width] to logits [B, rows]."""
        return functional.linear(features, self.weight, self.bias)

    def append_head_rows(self, rows: int, init: str, generator: torch.Generator) -> None:
        """Append head rows for new classes: zeros, or U(-1/sqrt(width), 1/sqrt(width)) ("default").

        The parameters are new objects afterwards: identify a parameter by its name. Draws come from
        the CPU generator, weights first. Raises ValueError for an unknown init.
        """
        check_head_initialisation_name(init)
        if rows < 1:
            return
        weight, bias = torch.zeros(rows, self.width), torch.zeros(rows)
        # From a CPU generator, so that a GPU starts from the same rows.
        if init == "default":
            bound = 1 / math.sqrt(self.width)
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)
        self.weight = _copy_parameter_with_appended_rows(self.weight, weight)
        self.bias = _copy_parameter_with_appended_rows(self.bias, bias)

    def merge_rows_by_class_map(self, classes: ClassMap, *, add: bool = False) -> None:
        """Replace the head's rows by rows of new classes, each the mean of former ones.

        A class of k former ones gets the mean of their rows, and log k is added to its bias. The
        softmax of the former head gives them together Σ e^z, and by Jensen's inequality log Σ e^z
        is at least the mean of z plus log k. With `add` it gets their sum, which is the least
        squares solution for merged one-hot labels. The parameters are new objects afterwards.
        """
        weight = classes.average_rows_of_merged_classes(self.weight.detach())
        bias = classes.average_rows_of_merged_classes(self.bias.detach())
        counts = torch.tensor([len(numbers) for numbers in classes.sources]).to(bias)
        if add:
            weight, bias = weight * counts[:, None], bias * counts
        else:
            bias = bias + counts.log()
        self.weight = nn.Parameter(weight, requires_grad=self.weight.requires_grad)
        self.bias = nn.Parameter(bias, requires_grad=self.bias.requires_grad)


def check_head_initialisation_name(init: str) -> None:
    """Raise ValueError for an unknown name of a head row initialisation."""
    if init not in INITS:
        raise ValueError(f"unknown head init {init!r}; known: {', '.join(INITS)}")


def _copy_parameter_with_appended_rows(old: nn.Parameter, rows: Tensor) -> nn.Parameter:
    """Copy a parameter with rows appended, in its device and dtype."""
    # Concatenation copies the old rows bit for bit.
    new = torch.cat([old.detach(), rows.to(old.device, old.dtype)])
    return nn.Parameter(new, requires_grad=old.requires_grad)
