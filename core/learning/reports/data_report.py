"""Report of a task's images by the network that starts from them: shift, and suspicious labels.

It takes one pass in eval mode over at most `MOST_IMAGES` training images and some held-out images
of earlier tasks, then sums and a kernel of a few hundred images. That costs a thirtieth of ten
epochs of training; at most 5 % was measured. Only the report is stored. All draws are from a
generator of its own, so that training has the same bits with and without the report.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from core.contract.jobs.job_spec import EarlierTask, LearnJobSpec
from core.contract.reports.data_report import DataReport, Suspect
from core.learning.data.augment import derive_seed
from core.learning.data.dataset import Dataset
from core.learning.data.held_out_features import FeatureDataset
from core.learning.evaluation.ancestors import StartingVersions
from core.learning.evaluation.probe import choose_evenly_spaced_rows, compute_image_features
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.learning.reports.data_findings import build_data_findings
from core.learning.reports.duplicates import group_near_duplicates, read_or_compute_hashes
from core.learning.reports.mislabelled import find_mislabelled_classes
from core.learning.reports.parent_predictions import (
    ParentPredictor,
    find_most_predicted_class_of_new_classes,
)
from core.learning.reports.shift import (
    MOST,
    DataShiftSample,
    compute_image_channel_statistics,
    measure_data_shift,
)
from core.learning.reports.suspicious_labels import find_images_with_suspect_labels

MOST_IMAGES = 20_000
"""Most training images that are looked at, evenly spaced."""
# A person looks through some pictures; the counts cover all.
SHOWN = 100
_EARLIER = 4 * MOST
"""Most held-out images of earlier tasks that are looked at, over all tasks."""
_STREAM = 9
"""Stream of the job's seeds that only this report draws from."""
_PASS = 1024


class BatchHeldSignal(Exception):
    """Raised to hold a batch until the user accepts its data findings, as its recipe asks."""


@dataclass(frozen=True)
class TaskImageInspector:
    """Inspects a task's images before training, with the version that the job starts from.

    Attributes:
        alive: called during long passes.
        stored_features: task → features float32 [N, D] of held-out images by this network, which
            save a pass.
    """

    network: Network
    inputs: InputNormaliser
    spec: LearnJobSpec
    ancestors: StartingVersions
    alive: Callable[[], None]
    stored_features: Mapping[int, Tensor] = field(default_factory=dict)

    def build_data_report(self, data: Dataset) -> DataReport:
        """Build the data report of a task's training images, with all findings about the batch."""
        spec = self.spec
        # A generator of its own: a report must not move the draws of the training.
        seed = derive_seed(int(spec.recipe.seed or 0), spec.task.number, _STREAM)
        generator = torch.Generator().manual_seed(seed)
        rows = choose_evenly_spaced_rows(len(data), MOST_IMAGES)
        seen_features = self._compute_features(data.images, rows)
        report: DataReport = {
            **(spec.data or {}),
            "shift": None,
            "suspects": [],
            "suspects_count": 0,
            "examined": 0,
        }
        # A network that has diverged has features that nothing can be compared by.
        if bool(torch.isfinite(seen_features).all()):
            report |= self._build_suspect_images_report_fields(data, rows, seen_features, generator)
            earlier = self._sample_earlier_held_out_images()
            if earlier is not None:
                new = DataShiftSample(
                    seen_features,
                    compute_image_channel_statistics(data.images[rows]),
                    [data.names[i] for i in data.labels[rows].tolist()],
                )
                by_class = spec.scenario != "task"
                report["shift"] = measure_data_shift(
                    new, earlier, by_class=by_class, generator=generator
                )
        # Features save a second pass, but only where those of all images are known.
        is_whole = self.network.takes_features and len(rows) == len(data)
        inspected = FeatureDataset(seen_features, data.labels, data.names) if is_whole else data
        if spec.scenario == "class":
            report["would_say"] = find_most_predicted_class_of_new_classes(
                self._build_parent_predictor(), inspected
            )
            self.alive()
        if spec.scenario != "task" and self.network.classes:
            self._add_mislabelled_classes_to_report(report, inspected, rows)
            self.alive()
        report["suspects"] = report["suspects"][:SHOWN]
        held_out = self._read_held_out(spec.task)
        num_held_out = 0 if held_out is None else len(held_out)
        report["findings"] = build_data_findings(report, len(data), num_held_out, spec.settled)
        return report

    def _build_parent_predictor(self) -> ParentPredictor:
        """Build the predictor of the parent version for the data report."""
        return ParentPredictor(
            self.network,
            self.ancestors.load_prediction_function("parent"),
            self.inputs,
            self.ancestors.get_temperature("parent"),
            self.spec.parent.version,
            self.spec.sure_from,
        )

    def _build_suspect_images_report_fields(
        self, data: Dataset, rows: Tensor, features: Tensor, generator: torch.Generator
    ) -> DataReport:
        looks = read_or_compute_hashes(self.spec.task.traces, "train", data)
        alike = group_near_duplicates([(len(rows), None if looks is None else looks[rows.numpy()])])
        suspicious = find_images_with_suspect_labels(features, data.labels[rows], generator, alike)
        paths = _read_training_image_paths(self.spec)
        entries: list[Suspect] = []
        for row, suggested, score in zip(*(part.tolist() for part in suspicious[:3]), strict=True):
            index = int(rows[row])
            entries.append(
                {
                    "index": index,
                    "path": paths[index] if paths else None,
                    "label": data.names[int(data.labels[index])],
                    "suggested": data.names[suggested],
                    "score": round(score, 1),
                }
            )
        return {
            "suspects": entries,
            "suspects_count": len(suspicious.rows),
            "examined": suspicious.examined,
        }

    def _add_mislabelled_classes_to_report(
        self, report: DataReport, data: Dataset, rows: Tensor
    ) -> None:
        """Add known classes whose labels look swapped or wrong to the report, and their images to
        the suspects.
        """

        def iterate_earlier_held_out_parts() -> Iterator[tuple[Dataset, Tensor]]:
            for _, part, part_rows in self._iterate_held_out_parts(
                *self._select_earlier_tasks_to_compare()
            ):
                self.alive()
                yield part, part_rows

        doubts = find_mislabelled_classes(
            self._build_parent_predictor(), data, rows, iterate_earlier_held_out_parts
        )
        report["mislabelled"] = doubts.classes[:SHOWN]
        if not doubts.classes:
            return
        # By index, so that an image that both checks accuse is listed once.
        accused = {one["index"]: one for one in report["suspects"]}
        paths = _read_training_image_paths(self.spec)
        for index, suggested, score in zip(
            doubts.rows.tolist(), doubts.suggested, doubts.scores.tolist(), strict=True
        ):
            accused[index] = {
                "index": index,
                "path": paths[index] if paths else None,
                "label": data.names[int(data.labels[index])],
                "suggested": suggested,
                "score": round(score, 1),
            }
        report["suspects"] = sorted(accused.values(), key=lambda one: -one["score"])
        report["suspects_count"] = len(accused)
        report["examined"] = max(report["examined"], len(rows))

    def _select_earlier_tasks_to_compare(self) -> tuple[list[EarlierTask], set[str]]:
        """List earlier tasks with held-out images, preferably with classes of the batch; also those
        classes.
        """
        with_held_out = [task for task in self.spec.history if task.held_out is not None]
        mine = set(self.spec.task.classes)
        # The same class in earlier and new images shows a shift; other classes look different
        # anyway.
        if self.spec.scenario != "task" and any(mine & set(task.classes) for task in with_held_out):
            with_held_out = [task for task in with_held_out if mine & set(task.classes)]
        return with_held_out, mine

    def _sample_earlier_held_out_images(self) -> DataShiftSample | None:
        """Collect held-out images of earlier tasks as a sample, to compare the batch with.

        Each task contributes an equal share of the images there is room for. None if there are
        none.
        """
        with_held_out, mine = self._select_earlier_tasks_to_compare()
        parts, lit, labels = list[Tensor](), list[Tensor](), list[str]()
        for task, data, rows in self._iterate_held_out_parts(with_held_out, mine):
            known_features = self.stored_features.get(task)
            parts.append(
                self._compute_features(data.images, rows)
                if known_features is None
                else known_features[rows]
            )
            lit.append(compute_image_channel_statistics(data.images[rows]))
            labels += [data.names[i] for i in data.labels[rows].tolist()]
        if not labels:
            return None
        # A network that has diverged gives infinite features, between which no distance is defined.
        all_of_them = torch.cat(parts)
        return (
            DataShiftSample(all_of_them, torch.cat(lit), labels)
            if bool(torch.isfinite(all_of_them).all())
            else None
        )

    def _iterate_held_out_parts(
        self, tasks: list[EarlierTask], mine: set[str]
    ) -> Iterator[tuple[int, Dataset, Tensor]]:
        """Yield number, held-out dataset and selected rows of each earlier task."""
        share = max(1, _EARLIER // max(1, len(tasks)))
        # Each task gives one image at least, so beyond so many tasks only the newest count.
        for task in tasks[-_EARLIER:]:
            data = self._read_held_out(task)
            assert data is not None, "only tasks that keep it"
            rows = torch.arange(len(data))
            if mine & set(task.classes) and self.spec.scenario != "task":
                is_shared = torch.tensor([name in mine for name in data.names])
                rows = is_shared[data.labels].nonzero().squeeze(1)
            if len(rows):
                yield task.number, data, rows[choose_evenly_spaced_rows(len(rows), share)]

    def _read_held_out(self, task: EarlierTask) -> Dataset | None:
        return (
            None
            if task.held_out is None
            else self.ancestors.read_dataset(task.held_out, task.classes)
        )

    def _compute_features(self, images: Tensor, rows: Tensor) -> Tensor:
        """Compute the features of selected images, float32 [n, width], on the CPU."""
        head = self.spec.task.number if self.spec.scenario == "task" else None
        parts = []
        for chunk in rows.split(_PASS):  # type: ignore[no-untyped-call]
            parts.append(
                compute_image_features(self.network, images[chunk], self.inputs, head).cpu()
            )
            self.alive()
        return torch.cat(parts).clone()


def join_findings_that_hold_job(report: DataReport) -> str:
    """Join the texts of report findings that hold a job; empty if there are none."""
    return " ".join(one["text"] for one in report["findings"] if one["holds"])


def log_data_findings_or_hold_batch(
    report: DataReport,
    response: Literal["warn", "hold"],
    log: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Log the findings of a data report; those that may hold a job as warnings.

    Args:
        report: the report.
        response: the recipe's response to findings that may hold a job.
        log: called with each finding that holds nothing.
        warn: called with each finding that may hold a job, where the recipe only warns.

    Raises:
        BatchHeldSignal: the recipe holds the batch because of the findings.
    """
    for one in report["findings"]:
        if not one["holds"]:
            log(one["text"])
        elif response == "warn":
            warn(one["text"])
    if response == "hold" and (why := join_findings_that_hold_job(report)):
        raise BatchHeldSignal(why)


def _read_training_image_paths(spec: LearnJobSpec) -> list[str] | None:
    """Read the paths of the training images, or None if they are not known."""
    if spec.task.paths is None:
        return None
    paths: list[str] = json.loads(spec.task.paths.read_text())
    return paths
