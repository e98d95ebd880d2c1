"""The versions that a job starts from, as its spec names them: files and manifests, no store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from core.learn import predicting
from core.learn.evaluate import Predict
from core.learn.networks import Network
from core.learn.state import load_tensors

Which = Literal["parent", "base"]


class Ancestors:
    """`parent`: the version that the task continues. `base`: version 0 of the model. They may be the same."""

    def __init__(self, spec: Mapping[str, Any], device: torch.device) -> None:
        self._spec = spec
        self._device = device
        self.same = spec["base"]["version"] == spec["parent"]["version"]

    def names(self, classes: list[str]) -> list[str]:
        """What labels in a dataset file index: the model's classes in the data scenario, else the task's."""
        fixed = self._spec.get("classes")
        return list(fixed) if self._spec["scenario"] == "data" and fixed else list(classes)

    def manifest(self, which: Which) -> dict[str, Any]:
        """The manifest of a version, with what the model says."""
        spec, source = self._spec, self._spec[which]
        known = {"architecture": spec["architecture"], "image": spec["image"], "scenario": spec["scenario"]}
        manifest = {**known, **source["manifest"], "version": source["version"]}
        if spec["scenario"] == "data" and not manifest.get("classes"):
            manifest["classes"] = self.names(list(spec["task"]["classes"]))
        return manifest

    def network(self, which: Which, *, untaught: bool = False) -> Network:
        """A version's network on the CPU; `untaught` without the classes that it answers."""
        manifest = self.manifest(which)
        if untaught:
            manifest["classes"] = []
        return predicting.load(manifest, self._paths(which))

    def answers_of(self, which: Which) -> Predict:
        """How a version answers as it was deployed: by its own method and state, not by those of this task."""
        made_by = predicting.method_of(self.manifest(which), self._paths(which), self._device)
        return made_by.predict_logits

    def tensors(self, which: Which, kind: str) -> dict[str, Tensor]:
        """The tensors of a version's part of a type, {} when it has none."""
        for part in self._spec[which]["parts"]:
            if part["type"] == kind:
                return load_tensors(Path(part["path"]))
        return {}

    def may_answer(self, which: Which, task: int, names: list[str]) -> bool:
        """As evaluate.can_answer, from the manifest alone, so that no network is built in vain."""
        manifest = self.manifest(which)
        if manifest["scenario"] == "task":
            return any(int(head["task"]) == task for head in manifest.get("heads") or [])
        return bool(names) and set(names) <= set(manifest.get("classes") or [])

    def _paths(self, which: Which) -> dict[str, Path]:
        return {part["name"]: Path(part["path"]) for part in self._spec[which]["parts"]}
