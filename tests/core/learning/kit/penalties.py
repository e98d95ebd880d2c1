"""A quadratic method with hand-made importance, and the part of a context that its penalty looks
at.
"""

from types import SimpleNamespace
from typing import Any

import torch
from recipes import resolve_patch
from torch import Tensor, nn

from core.learning.methods import registry
from core.learning.recipe import Recipe
from core.learning.state import MethodState

SLOW = {"lr": 1e-9}  # a rate at which no weight is held too steeply


class Ctx:
    """Trainable parameters by name, a recipe, and the values of one step."""

    def __init__(self, recipe: Recipe, **trainable: Tensor) -> None:
        self.recipe = recipe
        self.trainable = {name: nn.Parameter(p.clone()) for name, p in trainable.items()}
        self.network = SimpleNamespace(
            named_parameters=self.trainable.items, get_parameter=self.trainable.__getitem__
        )
        self.scratch: dict[str, Any] = {}
        self.cache: dict[str, Any] = {}
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def make_method(name: str, state: MethodState | None = None, **hyper: Any) -> Any:
    kind = registry.get_method(name)
    return kind(kind.Hyper.model_validate(hyper), state or MethodState())


def make_method_and_context(
    name: str, anchor: Tensor, importance: Tensor, optimizer: Any = SLOW, **hyper: Any
) -> Any:
    """Make (method, context) with one parameter `w` at its anchor, whose gradient is zero."""
    method = make_method(name, **hyper)
    method.stored_tensors.update(
        {method.get_importance_key("w"): importance.clone(), "anchor.w": anchor.clone()}
    )
    ctx = Ctx(resolve_patch({"method": name, "optimizer": optimizer}), w=anchor)
    ctx.trainable["w"].grad = torch.zeros_like(anchor)
    return method, ctx
