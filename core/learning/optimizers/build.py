"""A stock torch optimizer for the trainable parameters, with its state keyed by parameter name.

CPU and CUDA use fused kernels. The learning rate is a pure function of the step, so a resumed run
needs no scheduler state.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from core.learning.optimizers import eager
from core.learning.optimizers.olor import AnchoredParameter, OlorOptimizer
from core.learning.recipe import OptimizerRecipe, is_head_parameter

# At import, before the first call of an optimizer's method imports the compiler.
eager.remove_optimizer_compiler_wrappers()


class NamedOptimizer:
    """A torch optimizer with parameters by name, in the groups `backbone` at lr and `head` at
    head_lr.
    """

    def __init__(
        self,
        recipe: OptimizerRecipe,
        parameters: Mapping[str, nn.Parameter],
        steps: int,
        rollback: Sequence[AnchoredParameter] = (),
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        """Build the optimizer for a stage of training.

        Args:
            recipe: the optimizer's part of the recipe.
            parameters: the trainable parameters by name, in network order.
            steps: optimizer steps of the whole stage.
            rollback: parameters that OLOR pulls back after each step; empty without OLOR.
            warn: called with a message for the user.
        """
        self.recipe = recipe
        self.steps = steps
        self._warn = warn
        self._parameters = dict(parameters)
        body = [p for name, p in self._parameters.items() if not is_head_parameter(name)]
        head = [p for name, p in self._parameters.items() if is_head_parameter(name)]
        self._peaks: list[float] = []
        groups: list[dict[str, object]] = []
        for members, peak in ((body, recipe.lr), (head, recipe.head_lr or recipe.lr)):
            if members:
                groups.append({"params": members, "lr": peak})
                self._peaks.append(peak)
        self.torch = _create_torch_optimizer(recipe, groups)
        if recipe.name == "sgd" and recipe.momentum > 0:
            # The fused kernel needs a buffer for all parameters or for none, but replay may reach
            # the head of an old task later than the others. A buffer of zeros gives the same bits;
            # with dampening it makes a moving average from the first step on.
            for parameter in self._parameters.values():
                zero = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                self.torch.state[parameter]["momentum_buffer"] = zero
        self._step = (
            OlorOptimizer(self.torch, self._peaks, rollback, warn).step
            if rollback
            else partial(eager.step_optimizer_without_hooks, self.torch)
        )

    def set_learning_rates_for_step(self, step: int) -> None:
        """Set the learning rates for an optimizer step, 0 to steps - 1."""
        factor = compute_learning_rate_factor(self.recipe, step, self.steps)
        for group, peak in zip(self.torch.param_groups, self._peaks, strict=True):
            group["lr"] = peak * factor

    def step(self) -> None:
        """Take one optimizer step, after clipping the gradient's norm if the recipe says so."""
        if self.recipe.clip is not None:
            # After penalties and projection, over all groups together: the bound is on the whole
            # step.
            torch.nn.utils.clip_grad_norm_(self._parameters.values(), self.recipe.clip)
        self._step()

    def iterate_optimizer_state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all optimizer state as pairs (`<parameter>|<slot>`, tensor)."""
        for name, parameter in self._parameters.items():
            # Sorted, so that two runs write the same order of tensors.
            for slot, value in sorted(self.torch.state.get(parameter, {}).items()):
                if isinstance(value, Tensor):
                    yield f"{name}|{slot}", value

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load optimizer state of `iterate_optimizer_state`, in the memory layout of each parameter.

        Rows that a parameter has gained start at zero. Parameters that are not trained now are
        skipped. State of another kind of optimizer is skipped with a warning.
        """
        expected_slots = _list_optimizer_slots(self.recipe)
        if any(key.rpartition("|")[2] not in expected_slots for key in state):
            self._warn(
                f"the state of another optimizer is not used: {self.recipe.name} starts afresh"
            )
            return
        for key, value in state.items():
            name, _, slot = key.rpartition("|")
            parameter = self._parameters.get(name)
            if parameter is None:
                continue
            if value.dim() == 0:
                slot_value = value.clone()
                if self.torch.defaults.get("fused") or self.torch.defaults.get("capturable"):
                    slot_value = slot_value.to(parameter.device)
            else:
                # Fused kernels walk memory linearly: state must be laid out exactly as the
                # parameter is.
                slot_value = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                # A head that has grown has more rows than the stored state.
                slot_value[: value.shape[0]].copy_(value)
            self.torch.state[parameter][slot] = slot_value


def compute_learning_rate_factor(recipe: OptimizerRecipe, step: int, steps: int) -> float:
    """Compute the learning rate at a step as a share of the peak rate, by warm-up and schedule.

    Linear warm-up, then constant, or cosine to zero.
    """
    # A task may be shorter than the warm-up.
    warmup = min(recipe.warmup_steps, steps)
    if step < warmup:
        return (step + 1) / warmup
    if recipe.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _create_torch_optimizer(
    recipe: OptimizerRecipe, groups: list[dict[str, object]]
) -> torch.optim.Optimizer:
    if recipe.name == "sgd":
        return torch.optim.SGD(
            groups,
            lr=recipe.lr,
            momentum=recipe.momentum,
            dampening=recipe.dampening,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
    if recipe.name == "adam":
        return torch.optim.Adam(groups, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
    return torch.optim.AdamW(groups, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)


def _list_optimizer_slots(recipe: OptimizerRecipe) -> frozenset[str]:
    """List the names of the tensors that the optimizer stores for each parameter."""
    if recipe.name == "sgd":
        return frozenset({"momentum_buffer"} if recipe.momentum > 0 else ())
    return frozenset({"step", "exp_avg", "exp_avg_sq"})


DESCRIPTIONS: dict[str, str] = {
    "sgd": "Stochastic gradient descent with momentum, dampened on request.",
    "adam": "Adam with betas 0.9, 0.999; weight decay is added to the gradient.",
    "adamw": "Adam with decoupled weight decay, betas 0.9, 0.999.",
}
