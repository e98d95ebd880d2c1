"""Counts of the calls in training steps for which the host waits for its device."""

from __future__ import annotations

import functools
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any, Protocol

from core.learning.methods import registry
from core.learning.methods.method import Method
from core.learning.training.loop import TrainingLoop


class Calls(Protocol):
    """Calls of this process so far, by their place in the code."""

    @property
    def places(self) -> Counter[str]: ...

    def paused(self) -> AbstractContextManager[None]:
        """Count nothing within the block."""


class StepCounts:
    """Counts blocking calls from the end of an epoch's first step to the end of its last; reports
    are left out.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.steps = 0
        self.places: Counter[str] = Counter()
        self._before: Counter[str] = Counter()

    def watch(self) -> None:
        """Count in all loops of this process from now on."""
        step = TrainingLoop._run_training_step

        def run_step_and_count(loop: TrainingLoop, *args: Any, **kwargs: Any) -> None:
            first = loop.position.batch == 0
            step(loop, *args, **kwargs)
            if not first:
                self.steps += 1
                self.places += self._calls.places - self._before
            self._before = self._calls.places.copy()

        TrainingLoop._run_training_step = run_step_and_count  # type: ignore[method-assign,assignment]
        report = self._uncounted(TrainingLoop._check_loss_and_report_progress)
        TrainingLoop._check_loss_and_report_progress = report  # type: ignore[method-assign]
        kinds: set[type[Method]] = {Method, *registry.METHODS.values()}
        for kind in kinds:
            if "forecast_loss_rise" in vars(kind):  # made for reports only
                kind.forecast_loss_rise = self._uncounted(kind.forecast_loss_rise)  # type: ignore[method-assign]

    def taken(self) -> dict[str, Any]:
        """Calls per step and their places, since the last time."""
        steps, places = max(1, self.steps), self.places
        self.steps, self.places = 0, Counter()
        return {
            "per_step": round(sum(places.values()) / steps, 2),
            "places": {place: round(count / steps, 2) for place, count in places.most_common()},
        }

    def _uncounted(self, call: Any) -> Any:
        @functools.wraps(call)
        def call_without_counting(*args: Any, **kwargs: Any) -> Any:
            with self._calls.paused():
                return call(*args, **kwargs)

        return call_without_counting
