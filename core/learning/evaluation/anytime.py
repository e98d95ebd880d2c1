"""Anytime Deployment Performance (ADP): the accuracy of a model deployed at any step of training.

A deployment at step s takes the state with the best validation so far. A state is validated often
at first and then every `MAX_GAP` steps. At the Fibonacci numbers the best one is tested, on the new
task and on the earlier ones (Varno et al. 2020, Learn Faster and Forget Slower, arXiv 2007.01388).
Everything here is a pure function of step numbers and accuracies; `validation.py` does the
measuring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from core.contract.figures import AnytimeDeploymentCurvePoint

MAX_GAP = 10
"""Largest number of steps between validations: v_0 = 0, v_k = v_{k-1} + min(k, MAX_GAP)."""

Accuracy = dict[str, float]
"""Accuracy on a task's held-out part by the task's number, as text as in JSON."""


def is_validation_step(step: int) -> bool:
    """Return true if training validates the network's state after `step` updates.

    These steps are 0, 1, 3, 6, 10, 15, …, 45, 55, 65, 75, …
    """
    grown = MAX_GAP * (MAX_GAP + 1) // 2
    if step >= grown:
        return (step - grown) % MAX_GAP == 0
    return _is_square_number(8 * step + 1)  # a triangular number


def is_adp_checkpoint(step: int) -> bool:
    """Return true if anytime deployment performance (ADP) has a checkpoint after `step` updates.

    A number n is a Fibonacci number exactly if 5n² + 4 or 5n² - 4 is a square.
    """
    return _is_square_number(5 * step * step + 4) or _is_square_number(5 * step * step - 4)


class AnytimePerformanceCurve:
    """Curve of anytime deployment performance (ADP): at each checkpoint, the best validated state's
    accuracy.

    `points` are in rising `step`. An interrupted run has the points up to its interruption.
    """

    def __init__(self, points: Sequence[AnytimeDeploymentCurvePoint] = ()) -> None:
        self.points = list(points)

    def add_checkpoint(
        self, step: int, best_step: int, validation: float, test: Callable[[], Accuracy]
    ) -> AnytimeDeploymentCurvePoint:
        """Add a checkpoint at `step` to the curve of anytime performance, and return its point.

        Args:
            step: number of updates so far.
            best_step: step of the best-validated state.
            validation: accuracy of that state on validation images.
            test: measures that state. Only called if it is not the state of the last checkpoint,
                whose numbers are used again otherwise.
        """
        last = self.points[-1] if self.points else None
        same = last is not None and last.best_step == best_step
        # The same state was tested at the last checkpoint: a test passes over all held-out images.
        accuracy = dict(last.accuracy) if last is not None and same else test()
        point = AnytimeDeploymentCurvePoint(
            accuracy=accuracy, best_step=best_step, step=step, validation=validation
        )
        self.points.append(point)
        return point

    def compute_adp_means(self) -> Accuracy:
        """Compute each task's ADP mean over the checkpoints from step 1 on: an average over log
        time.

        Only tasks tested at all of them are included: data may be deleted between an interruption
        and its end.
        """
        points = [point.accuracy for point in self.points if point.step >= 1]
        tasks = set(points[0]).intersection(*points) if points else set()
        return {
            task: math.fsum(accuracy[task] for accuracy in points) / len(points)
            for task in sorted(tasks, key=int)
        }


def _is_square_number(n: int) -> bool:
    # In integers: a float root is wrong for large numbers.
    return n >= 0 and math.isqrt(n) ** 2 == n
