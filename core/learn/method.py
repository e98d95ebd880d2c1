"""The one interface of a continual-learning method.

The loop calls a method's slots in this order:
loss_terms → one backward → penalty_grads → project → clip → optimizer step → after_step.
A method never steps an optimizer, saves or logs. Its memory is `self.state` and nothing else: setting a
tensor or a module as an attribute raises, because it would be lost when the process is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from core.learn.context import Batch, Context
from core.learn.networks import Network
from core.learn.recipe import Strict
from core.learn.state import State

SCENARIOS = ("data", "task", "class")


@dataclass(frozen=True)
class Accepts:
    """What a method can be combined with."""

    optimizers: tuple[str, ...] = ("sgd", "adam", "adamw")
    olor: bool = True
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    head_inits: tuple[str, ...] = ("zero", "default")
    architectures: tuple[str, ...] | None = None  # families of the registry; None: all
    task_only: tuple[str, ...] = ()  # hyper-parameters that must be off outside the task scenario
    refused: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # scenario → hyper-parameter → value


@dataclass(frozen=True)
class Footprint:
    """What a method holds at once while it learns, by which a job's memory is estimated before it runs; measured.

    Attributes:
        copies: of the weights: the network, its gradients, where the task began, what is being written, and what the
            method keeps. The optimizer's state comes on top.
        copies_with: hyper-parameter → value → `copies` in its place.
        examples: copies more where the gradients of single images are as large as the weights (convolutions, tokens).
        growing: copies more for each earlier task, up to 20 of them.
        batches: batches whose activations are held.
        images: images whose activations are held at once after or beside the steps.
    """

    copies: float = 7.0
    copies_with: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    examples: float = 0.0
    growing: float = 0.0
    batches: float = 1.0
    images: int = 0


@dataclass(frozen=True)
class Stage:
    """One pass of training with an optimizer of its own. `epochs` and `depth` None mean the recipe's."""

    name: str = "all"
    epochs: int | None = None
    depth: int | None = None  # how much of the network may move, 1 to 5


class Hyper(Strict):
    """Base of all hyper-parameter classes: a method without any uses it as it is."""


class Method:
    """Plain fine-tuning; methods override what they change."""

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str]
    scenarios: ClassVar[tuple[str, ...]] = SCENARIOS
    weak: ClassVar[Mapping[str, str]] = {}  # scenario → why it works badly there
    Hyper: ClassVar[type[Strict]] = Hyper
    accepts: ClassVar[Accepts] = Accepts()
    neutral: ClassVar[Strict | None] = None  # equals fine-tuning bit for bit
    no_neutral: ClassVar[str] = ""  # one line of reason when `neutral` is None
    footprint: ClassVar[Footprint] = Footprint()
    regularisers: ClassVar[tuple[str, ...]] = ()  # loss terms, or "penalty", that must act from task 2
    advice: ClassVar[
        Mapping[str, Any]
    ] = {}  # of a recipe that leaves it open, where the defaults do not suit
    takes: ClassVar[tuple[str, ...]] = ()  # types of state that it can take over from another method
    family: ClassVar[str] = "plain"  # what `build` makes of the network; a model keeps its family for life
    structure: ClassVar[
        tuple[str, ...]
    ] = ()  # hyper-parameters that shape the network, kept for life as well
    settled: ClassVar[tuple[str, ...]] = ()  # types of state that stay the parent's until `end_task`
    predicts_with: ClassVar[tuple[str, ...]] = ()  # types of state that `predict_logits` reads
    inference: ClassVar[str | None] = None  # file in core/export/loading/networks that answers with them

    def __init__(self, hyper: Any, state: State) -> None:
        self.hyper = hyper
        self.state = state

    def __setattr__(self, name: str, value: object) -> None:
        if _holds_tensors(value):
            raise AttributeError(
                f"{type(self).__name__}.{name} would hold a tensor or module outside `state` and be lost "
                "with the process: put it in self.state or in ctx.scratch"
            )
        super().__setattr__(name, value)

    # Structure: pure in (architecture, recipe, task history).

    def build(self, network: Network) -> Network:
        """The network to train, made from the one that the parent's manifest describes."""
        return network

    def forward(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Logits of the training forward."""
        return network(x, task)  # type: ignore[no-any-return]

    def predict_logits(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Logits that evaluation and prediction use."""
        return self.forward(network, x, task)

    def trainable(self, network: Network, depth: int) -> set[str]:
        """Names of the parameters that move: the set S."""
        return network.trainable_names(depth)

    def stages(self, ctx: Context) -> list[Stage]:
        """Training passes, in order. The method's state is not there yet."""
        return [Stage()]

    # A step.

    def loss_terms(self, ctx: Context, batch: Batch) -> dict[str, Tensor]:
        """Scalar losses by name; the loop adds them and runs one backward."""
        logits = self.forward(ctx.network, batch.x, batch.task)
        return {"task": ctx.cross_entropy(logits, batch.y)}

    def penalty_grads(self, ctx: Context) -> None:
        """Add closed-form gradients of penalties to `.grad` of the parameters in S."""

    def penalty(self, ctx: Context) -> float:
        """The value of what `penalty_grads` differentiates; for logs and tests only."""
        return 0.0

    def project(self, ctx: Context) -> None:
        """Change the gradient as a whole."""

    def after_step(self, ctx: Context, batch: Batch) -> None:
        """After the optimizer's step; insertion into a buffer comes last."""

    # A task.

    def begin_task(self, ctx: Context) -> None:
        """Once per task, before its first step; not called again when a run resumes."""

    def begin_stage(self, ctx: Context) -> None:
        """Before the first step of each stage; not called again when a run resumes in it."""

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        """After the last step. `batches`: the training part once, in a random order and unaugmented."""

    # What the method knows of earlier tasks without their data.

    def forecast(self, ctx: Context) -> float | None:
        """Predicted rise of the earlier tasks' mean loss since the task began, in units of `example_losses`.

        None: the method does not forecast. 0 at the start of a task.
        """
        return None

    def forecast_by_task(self, ctx: Context) -> dict[int, float]:
        """The same for single earlier tasks, where the method keeps what it takes."""
        return {}

    def example_losses(self, network: Network, x: Tensor, y: Tensor, task: int | None) -> Tensor:
        """The loss [B] that `forecast` speaks of, of inputs x and rows y of the head, as the network is.

        Raises NotImplementedError in methods that do not forecast.
        """
        raise NotImplementedError(f"{self.name} does not forecast")

    def budget(self) -> float | None:
        """The greatest forecast with which a validated state may be deployed; None: any."""
        return None

    def erase(self, tasks: set[int]) -> None:
        """Remove every stored example of these tasks."""


def _holds_tensors(value: object) -> bool:
    if isinstance(value, Tensor | nn.Module):
        return True
    if isinstance(value, dict):
        return any(_holds_tensors(v) for v in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_holds_tensors(v) for v in value)
    return False
