"""The validation part, and the choice of the state to deploy.

A recipe with `validation` holds back a share of the training part. It alone chooses: after every
epoch, or with `anytime` at the steps that `anytime.py` names. Test parts are only measured, on the
state chosen so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from core.contract.figures import AnytimeDeploymentCurvePoint, AnytimeDeploymentPerformance
from core.contract.jobs.job_event import BestStateFoundEvent, JobEvent, MetricEvent
from core.contract.jobs.snapshot import BestStateScore, BestStateSelectionProgress
from core.learning.evaluation.anytime import (
    MAX_GAP,
    Accuracy,
    AnytimePerformanceCurve,
    is_adp_checkpoint,
    is_validation_step,
)
from core.learning.evaluation.evaluate import EvaluationImages, score_network_on_images
from core.learning.methods.method import Method
from core.learning.training.context import TaskTrainingContext

LEAST_PER_CLASS = 5
"""Minimum number of validation images per class: with fewer, the choice of a state is coarse."""
FORWARDS_PER_IMAGE = 3
"""Cost of training on an image, in forward passes.

One is its own, and its backward pass costs about two.
"""

Emit = Callable[[JobEvent], None]


@dataclass
class BestValidatedState:
    """The best validated state of a training run so far.

    It has `correct` right predictions of `total` (in general, `correct` is the sum of their
    scores), and the tensors after `step` updates.
    """

    total: int
    correct: int | float = -1
    step: int = -1
    epoch: int = -1
    tensors: dict[str, Tensor] = field(default_factory=dict)


class RunValidator:
    """Validation of a training run, with its best state and its curve of anytime performance (ADP).

    Args:
        ctx: the training context.
        method: the method that is trained.
        part: the validation part; if it is empty, no state is ever chosen.
        steps: of the whole run; the state after the last one is validated too.
        emit: receives events.
        test: measures the present network on the held-out parts of the new task and of earlier
            ones.
    """

    def __init__(
        self,
        ctx: TaskTrainingContext,
        method: Method,
        part: EvaluationImages,
        steps: int,
        emit: Emit,
        test: Callable[[], Accuracy],
    ) -> None:
        self.total = len(part.targets)
        self.best = BestValidatedState(self.total)
        self.curve = AnytimePerformanceCurve()
        self.anytime = ctx.recipe.anytime and self.total > 0
        self._ctx = ctx
        self._method = method
        self._part = part
        self._steps = steps
        self._emit = emit
        self._test = test

    def validate_before_first_step(self) -> None:
        """Validate before the first step of a run, since that state may be deployed too.

        Not called again when a run resumes.
        """
        for text in self._iterate_validation_size_warnings():
            self._ctx.warn(text)
        self.validate_after_step(0, 0)
        if self.total and not self.anytime and self._method.get_loss_forecast_limit() is not None:
            self._validate_and_keep_best(0, 0)  # a state that is always within the budget

    def validate_after_step(self, step: int, epoch: int) -> None:
        """Validate and test after `step` updates, if the recipe's `anytime` has a checkpoint there.

        The last state is always validated, but after the curve has its point: ADP is of validations
        at fixed steps, for runs of any length.
        """
        if not self.anytime:
            return
        if is_validation_step(step):
            self._validate_and_keep_best(step, epoch)
        if is_adp_checkpoint(step):
            self._record_adp_checkpoint(step)
        if step == self._steps and not is_validation_step(step):
            self._validate_and_keep_best(step, epoch)

    def validate_after_epoch(self, step: int, epoch: int) -> None:
        """Validate after an epoch, for recipes without `anytime`."""
        if self.total and not self.anytime:
            self._validate_and_keep_best(step, epoch)

    def load_best_state(self) -> None:
        """Load the best validated state into the network, if there is any."""
        if self.best.tensors:
            self._ctx.network.load_state_dict(self.best.tensors, strict=True)

    def build_anytime_performance(self) -> AnytimeDeploymentPerformance | None:
        """Build the result's curve of anytime performance, with each task's ADP mean; None without
        `anytime`.
        """
        return (
            AnytimeDeploymentPerformance(
                curve=self.curve.points, mean=dict(self.curve.compute_adp_means())
            )
            if self.anytime
            else None
        )

    def emit_best_state_event(self) -> None:
        """Emit an event that a best validated state is available."""
        if self.anytime and self.best.tensors:
            self._emit(BestStateFoundEvent(step=self.best.step))

    # Snapshots.

    def get_validation_state(self) -> BestStateSelectionProgress:
        """Return the validation state for a snapshot, besides the tensors of the best state."""
        best = self.best
        return BestStateSelectionProgress(
            best=BestStateScore(correct=best.correct, step=best.step, epoch=best.epoch),
            curve=self.curve.points,
        )

    def restore_validation_state(
        self, state: BestStateSelectionProgress, tensors: Mapping[str, Tensor]
    ) -> None:
        """Restore the validation state from a snapshot."""
        best = state.best
        self.best = BestValidatedState(
            self.total, best.correct, best.step, best.epoch, dict(tensors)
        )
        self.curve = AnytimePerformanceCurve(state.curve)

    def _iterate_validation_size_warnings(self) -> Iterator[str]:
        """Yield warnings about too few validation images."""
        recipe, classes = self._ctx.recipe, self._ctx.class_rows.numel()
        if not recipe.validation:
            return
        if self.total == 0:
            consequence = ", and there are no anytime states" if recipe.anytime else ""
            yield (
                f"too few images for a validation part of {recipe.validation:g}: the state after "
                f"the last step is deployed{consequence}"
            )
        elif self._part.problem.has_classes and self.total < LEAST_PER_CLASS * classes:
            yield (
                f"{self.total} images of {classes} classes are few to choose the state to deploy "
                f"by, and of equals the earliest is taken: raise validation (now "
                f"{recipe.validation:g}) or send more images at once"
            )
        if self.anytime and self.total > MAX_GAP * recipe.batch_size * FORWARDS_PER_IMAGE:
            yield (
                f"validating {self.total} images after every {MAX_GAP} steps takes longer than "
                f"those steps: raise batch_size (now {recipe.batch_size}) or lower validation (now "
                f"{recipe.validation:g})"
            )

    # Measuring.

    def sum_validation_scores(self) -> int | float:
        """Sum the scores of the network's predictions on the validation images.

        In classification it is the number of correct predictions.
        """
        ctx = self._ctx
        scores = score_network_on_images(
            ctx.network,
            self._part,
            ctx.task_argument_of_forward,
            self._method.predict_logits,
            ctx.inputs,
        )
        return self._part.problem.multiply_measure_by_image_count(scores)

    def _validate_and_keep_best(self, step: int, epoch: int) -> None:
        """Score the network on the validation images, and keep its state if it is the best so
        far.
        """
        correct, network = self.sum_validation_scores(), self._ctx.network
        measure = self._part.problem.primary_measure.name
        self._emit_metric(f"validation_{measure}", step, correct / self.total)
        # Of equal states the earliest stays.
        if correct > self.best.correct and self._is_forecast_within_limit():
            tensors = {name: t.detach().clone() for name, t in network.state_dict().items()}
            # A copy: training goes on in the same tensors.
            self.best = BestValidatedState(self.total, correct, step, epoch, tensors)
            self.emit_best_state_event()

    def _is_forecast_within_limit(self) -> bool:
        """Return true if the forecast loss rise of earlier tasks is within the recipe's limit."""
        budget = self._method.get_loss_forecast_limit()
        # A first task has no earlier ones to lose.
        if budget is None or self._ctx.first:
            return True
        predicted = self._method.forecast_loss_rise(self._ctx)
        return predicted is None or predicted <= budget

    def _record_adp_checkpoint(self, step: int) -> None:
        """Add a checkpoint to the curve of anytime performance, and emit it as a metric."""

        def measure_best_state_on_held_out_parts() -> Accuracy:
            with self._use_best_state_temporarily():
                return self._test()

        point = self.curve.add_checkpoint(
            step,
            self.best.step,
            self.best.correct / self.total,
            measure_best_state_on_held_out_parts,
        )
        self._emit_metric("adp", step, point.accuracy.get(str(self._ctx.task)), point)

    @contextmanager
    def _use_best_state_temporarily(self) -> Iterator[None]:
        """Context manager that runs with the best state loaded, and restores the present one bit
        for bit.
        """
        network = self._ctx.network
        # Buffers too: BatchNorm's statistics belong to the weights.
        present = {name: t.detach().clone() for name, t in network.state_dict().items()}
        network.load_state_dict(self.best.tensors, strict=True)
        try:
            yield
        finally:
            network.load_state_dict(present, strict=True)

    def _emit_metric(
        self,
        name: str,
        step: int,
        value: float | None,
        point: AnytimeDeploymentCurvePoint | None = None,
    ) -> None:
        event = MetricEvent(name=name, step=step, value=value)
        self._emit(event if point is None else event.model_copy(update={"data": point.to_json()}))
