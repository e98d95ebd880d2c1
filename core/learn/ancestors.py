"""The versions that a job starts from, read from files and manifests that its spec names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from core.learn import predicting
from core.learn.evaluate import Predict
from core.learn.networks import Network
from core.learn.state import load_tensors
from core.protocol.job_spec import JobSpec, SpecVersion
from core.protocol.manifest import Manifest

Which = Literal["parent", "base"]


class Ancestors:
    """The two versions that a job starts from, which may be the same.

    `parent`: the version that the task continues. `base`: version 0 of the model.
    """

    def __init__(self, spec: JobSpec, device: torch.device) -> None:
        self._spec = spec
        self._device = device
        self.same = spec.base.version == spec.parent.version

    def resolve_label_names(self, classes: list[str]) -> list[str]:
        """Return the classes that labels in a dataset file index.

        They are the model's classes in the data scenario, else the task's.
        """
        fixed = self._spec.classes
        return list(fixed) if self._spec.scenario == "data" and fixed else list(classes)

    def get_manifest(self, which: Which) -> Manifest:
        """Return the manifest of the parent or base version.

        In the data scenario it has the model's classes from version 0 on.
        """
        source = self._get_version(which)
        manifest = source.manifest.model_copy(update={"version": source.version})
        if self._spec.scenario == "data" and not manifest.classes:
            return manifest.model_copy(
                update={"classes": self.resolve_label_names(self._spec.task.classes)}
            )
        return manifest

    def load_network(self, which: Which, *, without_classes: bool = False) -> Network:
        """Return a version's network on the CPU; `without_classes` without its classes."""
        manifest = self.get_manifest(which)
        if without_classes:
            manifest = manifest.model_copy(update={"classes": []})
        return predicting.load_network(manifest, self._map_part_paths(which))

    def answers_of(self, which: Which) -> Predict:
        """Return a version's prediction function, with its own method and state."""
        made_by = predicting.method_of(
            self.get_manifest(which), self._map_part_paths(which), self._device
        )
        return made_by.predict_logits

    def temperature_of(self, which: Which) -> float:
        """Return the number that a version's logits are divided by before their softmax."""
        return self.get_manifest(which).divisor

    def load_part_tensors(self, which: Which, kind: str) -> dict[str, Tensor]:
        """Return the tensors of a version's part of a type; an empty dict when it has none."""
        for part in self._get_version(which).parts:
            if part.type == kind:
                return load_tensors(part.path)
        return {}

    def may_answer(self, which: Which, task: int, names: list[str]) -> bool:
        """Apply `evaluate.can_answer` to the manifest alone, without building a network."""
        manifest = self.get_manifest(which)
        if manifest.scenario == "task":
            return manifest.head_of(task) is not None
        return bool(names) and set(names) <= set(manifest.classes or [])

    def _get_version(self, which: Which) -> SpecVersion:
        return self._spec.parent if which == "parent" else self._spec.base

    def _map_part_paths(self, which: Which) -> dict[str, Path]:
        return {part.name: part.path for part in self._get_version(which).parts}
