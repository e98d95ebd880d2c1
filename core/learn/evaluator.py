"""What a job measures: base and parent on the new task before it, the new version on every task after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from pydantic import JsonValue
from torch import Tensor

from core.learn.ancestors import Ancestors, Which
from core.learn.anytime import Accuracy
from core.learn.baselines import Baselines, baselines
from core.learn.comparison import changed_predictions, classes_present, drift, knn_probe
from core.learn.dataset import Dataset
from core.learn.evaluate import (
    Answers,
    Predict,
    answers_on_task,
    can_answer,
    correct_on_task,
    count_correct,
    mean_loss,
)
from core.learn.method import Method
from core.learn.networks import Network
from core.learn.precision import Inputs, place
from core.learn.probe import Probe
from core.protocol.figures import Change, Figures, Forecast, KnnProbe, LossRise
from core.protocol.job_event import AliveEvent, JobEvent, MetricEvent
from core.protocol.job_result import Measured, MeasuredCell
from core.protocol.job_spec import EarlierTask, JobSpec


class Evaluator:
    """Measures versions on held-out parts.

    `rows` are the cells so far, each also reported as a metric; `answers` what the versions said, by version and task.
    """

    def __init__(
        self,
        spec: JobSpec,
        ancestors: Ancestors,
        inputs: Inputs,
        emit: Callable[[JobEvent], None],
    ) -> None:
        self.rows: list[MeasuredCell] = []
        self.answers: dict[tuple[Measured, int], Answers] = {}
        self._spec = spec
        self._ancestors = ancestors
        self._inputs = inputs
        self._emit = emit
        self._number = spec.task.number

    def before(self, network: Network) -> None:
        """Base and parent (`network`, back on the CPU afterwards), as they are, on the new task's held-out part."""
        if not self._spec.task.held_out:
            return
        held_out = self._held_out_of(self._spec.task)
        names = classes_present(held_out)
        same = self._ancestors.same
        versions: tuple[Which, ...] = ("parent",) if same else ("base", "parent")
        for version in versions:
            if not self._ancestors.may_answer(version, self._number, names):
                continue
            measured = network if version == "parent" else self._ancestors.network("base")
            place(measured, self._inputs.device)
            self._result(version, measured, held_out, self._number, self._ancestors.answers_of(version))
        if same:
            self.rows += [row.model_copy(update={"version": "base"}) for row in self.rows]
            self.answers |= {("base", task): said for (_, task), said in self.answers.items()}
        network.to("cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def after(self, network: Network, method: Method) -> Figures:
        """The new version on every task that it can answer; what changed since its parent."""
        parts = self._held_out()
        right: dict[int, Tensor] = {}
        for task, data in parts.items():
            hits = self._result("new", network, data, task, method.predict_logits)
            if hits is not None:
                right[task] = hits
        older = {"parent": self._ancestors.network("parent")}
        if not self._ancestors.same:
            older["base"] = self._ancestors.network("base")
        for other in older.values():
            place(other, self._inputs.device)
        base = dict(older.get("base", older["parent"]).named_parameters())
        predict = self._ancestors.answers_of("parent")
        changes, said = changed_predictions(
            older["parent"], predict, parts, right, self._inputs, self._metric
        )
        for task, known in said.items():
            self.answers.setdefault(("parent", task), known)
        probe = Probe(network, len(parts), self._inputs)
        neighbours = knn_probe(probe, older, parts, self._number, self._inputs, self._metric)
        beside = self._baselines(network, probe, right)
        return Figures(
            drift=drift(network, base),
            changes={task: Change(**counts) for task, counts in changes.items()},
            knn_probe=KnnProbe.from_json(neighbours),
            baseline_ncm=beside.ncm,
            baseline_lda=beside.lda,
        )

    def _baselines(self, network: Network, probe: Probe, right: Mapping[int, Tensor]) -> Baselines:
        """What the features could do; nothing where held-out images do not stay."""
        if not self._spec.held_out_stays:
            return Baselines()
        found = baselines(network, probe.samples, right)
        for name, baseline in found._asdict().items():
            if baseline is not None:
                correct, total = baseline.all
                self._metric(f"baseline_{name}", {"correct": correct, "total": total}, correct / total)
        return found

    def rise(
        self, network: Network, method: Method, predicted: float, by_task: Mapping[int, float]
    ) -> Forecast:
        """What the method said the update would cost earlier tasks, beside what it did, on their held-out parts.

        In the units of the method's `example_losses`; `before` is the parent's. The mean weighs tasks alike.
        """
        parent = self._ancestors.network("parent")
        place(parent, self._inputs.device)
        tasks: dict[str, LossRise] = {}
        rises: list[float] = []
        for task, data in self._held_out().items():
            names = classes_present(data)
            if task == self._number or not len(data) or not can_answer(parent, task, names):
                continue
            before, after = (
                mean_loss(n, data, task, method.example_losses, self._inputs) for n in (parent, network)
            )
            if not (math.isfinite(before) and math.isfinite(after)):
                continue
            rise = LossRise(predicted=by_task.get(task), before=before, after=after)
            tasks[str(task)] = rise
            rises.append(after - before)
            self._metric("loss_rise", {"task": task, **rise.to_json()}, after - before)
        measured = sum(rises) / len(rises) if rises else None
        self._metric("predicted_loss_rise", {"measured": measured}, predicted)
        return Forecast(predicted=predicted, measured=measured, tasks=tasks)

    def during(self, network: Network, method: Method) -> Accuracy:
        """Accuracy of the network as it is on every task that it can answer: the new one and earlier ones."""
        found: Accuracy = {}
        for task, data in self._held_out().items():
            if len(data) and can_answer(network, task, classes_present(data)):
                right = correct_on_task(network, data, task, method.predict_logits, self._inputs)
                found[str(task)] = int(right.sum()) / len(data)
                self._emit(AliveEvent())  # many tasks take long together
        return found

    def _metric(self, name: str, data: Mapping[str, JsonValue], value: float | None = None) -> None:
        self._emit(MetricEvent(name=name, step=None, value=value, data=dict(data)))

    def _result(
        self, version: Measured, network: Network, data: Dataset, task: int, predict: Predict
    ) -> Tensor | None:
        """Measure one cell and report it; which answers are right, or None when the version cannot answer."""
        if len(data) == 0 or not can_answer(network, task, classes_present(data)):
            return None
        self.answers[version, task], right = answers_on_task(network, data, task, predict, self._inputs)
        row = MeasuredCell(version=version, task=task, **vars(count_correct(data, right)))
        self.rows.append(row)
        self._metric("result", row.to_json())
        return right

    def _held_out(self) -> dict[int, Dataset]:
        """Held-out parts by task: those of earlier tasks that are still there, and the new one."""
        return {
            task.number: self._held_out_of(task)
            for task in (*self._spec.history, self._spec.task)
            if task.held_out
        }

    def _held_out_of(self, task: EarlierTask) -> Dataset:
        assert task.held_out is not None
        return Dataset.read(task.held_out, self._ancestors.names(task.classes))
