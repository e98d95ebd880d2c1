"""The validation part, and the state of the run that it says to deploy.

A recipe with `validation` holds back a share of the training part. It alone chooses: after every epoch, or with
`anytime` at the steps that `anytime.py` names. Test parts are only measured, on the state chosen so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from core.learn.anytime import MAX_GAP, Accuracy, Curve, is_checkpoint, is_validated
from core.learn.context import Context
from core.learn.evaluate import correct_predictions
from core.learn.method import Method
from core.protocol.figures import Adp, Checkpoint
from core.protocol.job_event import BestEvent, JobEvent, MetricEvent
from core.protocol.snapshot import BestState, ValidationState

LEAST_PER_CLASS = 5
"""Images of the validation part: with fewer, which state is deployed is a coarse choice."""
FORWARDS_PER_IMAGE = 3
"""What it costs to train on an image, in forward passes: its own, and a backward pass of about two."""

Emit = Callable[[JobEvent], None]


@dataclass
class Best:
    """The best validated state so far: right answers of `total`, and the tensors after `step` updates."""

    total: int
    correct: int = -1
    step: int = -1
    epoch: int = -1
    tensors: dict[str, Tensor] = field(default_factory=dict)


class Validation:
    """Validates the network of a run, keeps the best state and the ADP curve.

    Args:
        images: uint8 [N, S, S, C], the validation part; it may be empty, and then nothing is ever chosen.
        wanted: int64 [N], rows of the head in use.
        steps: of the whole run; the state after the last one is validated too.
        test: measures the network as it is on the held-out parts of the new task and of earlier ones.
    """

    def __init__(
        self,
        ctx: Context,
        method: Method,
        images: Tensor,
        wanted: Tensor,
        steps: int,
        emit: Emit,
        test: Callable[[], Accuracy],
    ) -> None:
        self.total = wanted.numel()
        self.best = Best(self.total)
        self.curve = Curve()
        self.anytime = ctx.recipe.anytime and self.total > 0
        self._ctx = ctx
        self._method = method
        self._images = images
        self._wanted = wanted
        self._steps = steps
        self._emit = emit
        self._test = test

    def begin(self) -> None:
        """Before the first step of a run, which is also a state to deploy; not called again when it resumes."""
        for text in self._remarks():
            self._ctx.warn(text)
        self.after_step(0, 0)
        if self.total and not self.anytime and self._method.max_forecast() is not None:
            self._validate(0, 0)  # what is always affordable

    def after_step(self, step: int, epoch: int) -> None:
        """With `anytime`: validate and test where it is time to, after `step` updates.

        The last state is validated at any rate, but after the curve has its point: ADP is of validations at fixed
        steps, whatever the length of the run.
        """
        if not self.anytime:
            return
        if is_validated(step):
            self._validate(step, epoch)
        if is_checkpoint(step):
            self._record(step)
        if step == self._steps and not is_validated(step):
            self._validate(step, epoch)

    def after_epoch(self, step: int, epoch: int) -> None:
        """Without `anytime`: validate."""
        if self.total and not self.anytime:
            self._validate(step, epoch)

    def deploy(self) -> None:
        """Put the best state into the network, where anything was validated."""
        if self.best.tensors:
            self._ctx.network.load_state_dict(self.best.tensors, strict=True)

    def adp(self) -> Adp | None:
        """The curve and ADP-mean per task; None without `anytime`."""
        return Adp(curve=self.curve.points, mean=dict(self.curve.mean())) if self.anytime else None

    def announce(self) -> None:
        """Tell that there is a best state to ask for."""
        if self.anytime and self.best.tensors:
            self._emit(BestEvent(step=self.best.step))

    # Snapshots.

    def state(self) -> ValidationState:
        """What `resume` needs besides the tensors of the best state."""
        best = self.best
        return ValidationState(
            best=BestState(correct=best.correct, step=best.step, epoch=best.epoch), curve=self.curve.points
        )

    def resume(self, state: ValidationState, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what a snapshot holds."""
        best = state.best
        self.best = Best(self.total, best.correct, best.step, best.epoch, dict(tensors))
        self.curve = Curve(state.curve)

    def _remarks(self) -> Iterator[str]:
        """What is wrong with the size of the validation part."""
        recipe, classes = self._ctx.recipe, self._ctx.class_rows.numel()
        if not recipe.validation:
            return
        if self.total == 0:
            lost = ", and there are no anytime states" if recipe.anytime else ""
            yield (
                f"too few images for a validation part of {recipe.validation:g}: the state after the last step is "
                f"deployed{lost}"
            )
        elif self.total < LEAST_PER_CLASS * classes:
            yield (
                f"{self.total} images of {classes} classes are few to choose the state to deploy by, and of equals "
                f"the earliest is taken: raise validation (now {recipe.validation:g}) or send more images at once"
            )
        if self.anytime and self.total > MAX_GAP * recipe.batch_size * FORWARDS_PER_IMAGE:
            yield (
                f"validating {self.total} images after every {MAX_GAP} steps takes longer than those steps: raise "
                f"batch_size (now {recipe.batch_size}) or lower validation (now {recipe.validation:g})"
            )

    # Measuring.

    def correct(self) -> int:
        """How many images of the validation part the network as it is answers rightly."""
        ctx = self._ctx
        right = correct_predictions(
            ctx.network, self._images, self._wanted, ctx.head_task, self._method.predict_logits, ctx.inputs
        )
        return int(right.sum())

    def _validate(self, step: int, epoch: int) -> None:
        correct, network = self.correct(), self._ctx.network
        self._metric("validation_accuracy", step, correct / self.total)
        if correct > self.best.correct and self._affordable():
            held = {name: t.detach().clone() for name, t in network.state_dict().items()}
            self.best = Best(self.total, correct, step, epoch, held)
            self.announce()

    def _affordable(self) -> bool:
        """Whether the method's forecast of what earlier tasks lose is within the recipe's budget."""
        budget = self._method.max_forecast()
        if budget is None or self._ctx.first:
            return True
        predicted = self._method.forecast(self._ctx)
        return predicted is None or predicted <= budget

    def _record(self, step: int) -> None:
        def test() -> Accuracy:
            with self._deployed():
                return self._test()

        point = self.curve.record(step, self.best.step, self.best.correct / self.total, test)
        self._metric("adp", step, point.accuracy.get(str(self._ctx.task)), point)

    @contextmanager
    def _deployed(self) -> Iterator[None]:
        """The network in its best state, and back in the present one afterwards, bit for bit."""
        network = self._ctx.network
        present = {name: t.detach().clone() for name, t in network.state_dict().items()}
        network.load_state_dict(self.best.tensors, strict=True)
        try:
            yield
        finally:
            network.load_state_dict(present, strict=True)

    def _metric(self, name: str, step: int, value: float | None, point: Checkpoint | None = None) -> None:
        event = MetricEvent(name=name, step=step, value=value)
        self._emit(event if point is None else event.model_copy(update={"data": point.to_json()}))
