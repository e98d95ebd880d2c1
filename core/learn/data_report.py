"""What a network that starts a task sees in the task's images before it learns them: shift, and labels that look wrong.

One pass in eval mode over at most `MOST_IMAGES` training images and some held-out images of earlier tasks,
then sums and a kernel of a few hundred images: a thirtieth of what ten epochs of training cost, measured at
most 5 %. Nothing is stored but the report. All draws are from a generator of its own, so that training has
the same bits with and without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from core.learn.ancestors import Ancestors
from core.learn.augment import epoch_seed
from core.learn.data_findings import findings
from core.learn.dataset import Dataset
from core.learn.duplicates import group_alike, read_hashes
from core.learn.held_out_features import FeatureDataset
from core.learn.networks import Network
from core.learn.precision import Inputs
from core.learn.probe import evenly_spaced, features
from core.learn.shift import MOST, Labelled, light, shift
from core.learn.suspects import suspects
from core.learn.would_say import Parent, would_say
from core.protocol.data_report import DataReport, Suspect
from core.protocol.job_spec import EarlierTask, JobSpec

MOST_IMAGES = 20_000
"""Training images that are looked at, evenly spaced."""
SHOWN = 100
_EARLIER = 4 * MOST
"""Held-out images of earlier tasks that are looked at, over all tasks."""
_STREAM = 9
"""Of the job's seeds: no other part of a job draws from it."""
_PASS = 1024


class DataHeld(Exception):
    """The recipe holds what was found; the message says what."""


@dataclass(frozen=True)
class Looker:
    """What looks: the network that the job starts from, on its device; `alive` is called while it takes long.

    kept: task → features float32 [N, D] of held-out images by this network, in place of a pass.
    """

    network: Network
    inputs: Inputs
    spec: JobSpec
    ancestors: Ancestors
    alive: Callable[[], None]
    kept: Mapping[int, Tensor] = field(default_factory=dict)

    def report(self, data: Dataset) -> DataReport:
        """The report of the task's training part, with the findings of all that is known of the batch."""
        spec = self.spec
        seed = epoch_seed(int(spec.recipe.seed or 0), spec.task.number, _STREAM)
        generator = torch.Generator().manual_seed(seed)
        rows = evenly_spaced(len(data), MOST_IMAGES)
        seen = self._features(data.images, rows)
        found: DataReport = {
            **(spec.data or {}),
            "shift": None,
            "suspects": [],
            "suspects_count": 0,
            "examined": 0,
        }
        if bool(torch.isfinite(seen).all()):
            found |= self._suspects(data, rows, seen, generator)
            earlier = self._earlier()
            if earlier is not None:
                new = Labelled(
                    seen, light(data.images[rows]), [data.names[i] for i in data.labels[rows].tolist()]
                )
                by_class = spec.scenario != "task"
                found["shift"] = shift(new, earlier, by_class=by_class, generator=generator)
        if spec.scenario == "class":
            is_whole = self.network.takes_features and len(rows) == len(data)
            found["would_say"] = would_say(
                self._parent(), FeatureDataset(seen, data.labels, data.names) if is_whole else data
            )
            self.alive()
        held_out = self._held_out(spec.task)
        others = 0 if held_out is None else len(held_out)
        found["findings"] = findings(found, len(data), others, spec.settled)
        return found

    def _parent(self) -> Parent:
        """The version that the job starts from, as it answers."""
        return Parent(
            self.network,
            self.ancestors.answers_of("parent"),
            self.inputs,
            self.ancestors.temperature_of("parent"),
            self.spec.parent.version,
            self.spec.sure_from,
        )

    def _suspects(self, data: Dataset, rows: Tensor, seen: Tensor, generator: torch.Generator) -> DataReport:
        looks = read_hashes(self.spec.task.traces, "train", data)
        alike = group_alike([(len(rows), None if looks is None else looks[rows.numpy()])])
        found = suspects(seen, data.labels[rows], generator, alike)
        paths = _paths(self.spec)
        shown: list[Suspect] = []
        for row, suggested, score in zip(*(part[:SHOWN].tolist() for part in found[:3]), strict=True):
            index = int(rows[row])
            shown.append(
                {
                    "index": index,
                    "path": paths[index] if paths else None,
                    "label": data.names[int(data.labels[index])],
                    "suggested": data.names[suggested],
                    "score": round(score, 1),
                }
            )
        return {"suspects": shown, "suspects_count": len(found.rows), "examined": found.examined}

    def _earlier(self) -> Labelled | None:
        """Held-out images of earlier tasks, those of the batch's classes first, as many of each task as there
        is room for."""
        kept = [task for task in self.spec.history if task.held_out is not None]
        mine = set(self.spec.task.classes)
        if self.spec.scenario != "task" and any(mine & set(task.classes) for task in kept):
            kept = [task for task in kept if mine & set(task.classes)]
        parts, lit, labels = list[Tensor](), list[Tensor](), list[str]()
        for task, data, rows in self._of_tasks(kept, mine):
            known = self.kept.get(task)
            parts.append(self._features(data.images, rows) if known is None else known[rows])
            lit.append(light(data.images[rows]))
            labels += [data.names[i] for i in data.labels[rows].tolist()]
        if not labels:
            return None
        all_of_them = torch.cat(parts)
        return (
            Labelled(all_of_them, torch.cat(lit), labels) if bool(torch.isfinite(all_of_them).all()) else None
        )

    def _of_tasks(self, tasks: list[EarlierTask], mine: set[str]) -> Iterator[tuple[int, Dataset, Tensor]]:
        """Number, held-out part and rows of it that are looked at, task after task."""
        share = max(1, _EARLIER // max(1, len(tasks)))
        for task in tasks[-_EARLIER:]:
            data = self._held_out(task)
            assert data is not None, "only tasks that keep it"
            rows = torch.arange(len(data))
            if mine & set(task.classes) and self.spec.scenario != "task":
                wanted = torch.tensor([name in mine for name in data.names])
                rows = wanted[data.labels].nonzero().squeeze(1)
            if len(rows):
                yield task.number, data, rows[evenly_spaced(len(rows), share)]

    def _held_out(self, task: EarlierTask) -> Dataset | None:
        return (
            None if task.held_out is None else Dataset.read(task.held_out, self.ancestors.names(task.classes))
        )

    def _features(self, images: Tensor, rows: Tensor) -> Tensor:
        """float32 [n, width] on the CPU."""
        head = self.spec.task.number if self.spec.scenario == "task" else None
        parts = []
        for some in rows.split(_PASS):  # type: ignore[no-untyped-call]
            parts.append(features(self.network, images[some], self.inputs, head).cpu())
            self.alive()
        return torch.cat(parts).clone()


def held(report: DataReport) -> str:
    """What holds a job whose recipe asks for that; empty: nothing."""
    return " ".join(one["text"] for one in report["findings"] if one["holds"])


def _paths(spec: JobSpec) -> list[str] | None:
    """Paths of the training images, where they are known."""
    if spec.task.paths is None:
        return None
    found: list[str] = json.loads(spec.task.paths.read_text())
    return found
