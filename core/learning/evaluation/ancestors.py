"""The versions that a job starts from, and how its method starts from the parent.

They are read from files and manifests that the spec names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from core.contract.jobs.job_spec import LearnJobSpec, StartingVersion
from core.contract.manifest import FEATURES, Manifest
from core.learning.data import image_packs
from core.learning.data.dataset import DataError, Dataset
from core.learning.evaluation import predicting
from core.learning.evaluation.evaluate import Predict
from core.learning.methods.method import Method
from core.learning.networks import Network, get_architectures
from core.learning.problems.registry import get_problem
from core.learning.state import load_tensors

Which = Literal["parent", "base"]


class StartingVersions:
    """The parent and base versions that a job starts from, which may be the same.

    `parent`: the version that the task continues. `base`: version 0 of the model.
    """

    def __init__(self, spec: LearnJobSpec, device: torch.device) -> None:
        self._spec = spec
        self._device = device
        self.problem = get_problem(spec.problem)
        self._datasets: dict[tuple[Path, tuple[str, ...]], Dataset] = {}
        # In a first task: nothing has to be loaded or measured twice.
        self.same = spec.base.version == spec.parent.version

    def list_classes_indexed_by_labels(self, classes: list[str]) -> list[str]:
        """Return the classes that the labels in a dataset file index: the model's or the task's.

        They are the model's classes in the data scenario, else the task's.
        """
        # In the data scenario a file may label a subset of the classes, by their place among all.
        fixed = self._spec.classes
        return list(fixed) if self._spec.scenario == "data" and fixed else list(classes)

    def list_outputs_for_labels(self, classes: list[str]) -> list[str]:
        """List the head outputs that a task with these label names needs."""
        return self.problem.list_outputs_for_labels(self.list_classes_indexed_by_labels(classes))

    def read_dataset(self, path: Path, classes: list[str]) -> Dataset:
        """Read a task's dataset file, whose labels index these names.

        Raises DataError as `Dataset.read_dataset_file` does.
        """
        # Each phase reads the held-out parts of all earlier tasks. Their images stay on disk.
        names = self.list_classes_indexed_by_labels(classes)
        # By names too: equal images sent under other classes are one file.
        key = path, tuple(names)
        if key not in self._datasets:
            self._datasets[key] = Dataset.read_dataset_file(path, names, self.problem)
        return self._datasets[key]

    def get_parent_or_base_manifest(self, which: Which) -> Manifest:
        """Return the manifest of the parent or base version.

        In the data scenario it has the model's classes from version 0 on.
        """
        source = self._get_parent_or_base_version(which)
        manifest = source.manifest.model_copy(update={"version": source.version})
        if self._spec.scenario == "data" and not manifest.classes:
            return manifest.model_copy(
                update={"classes": self.list_outputs_for_labels(self._spec.task.classes)}
            )
        return manifest

    def load_version_network(self, which: Which, *, without_classes: bool = False) -> Network:
        """Load the network of the parent or base version on the CPU; `without_classes` leaves out
        its classes.
        """
        manifest = self.get_parent_or_base_manifest(which)
        if without_classes:
            manifest = manifest.model_copy(update={"classes": []})
        return predicting.load_version_network(manifest, self._get_part_paths_by_name(which))

    def read_backbone_parameters(self, which: Which) -> dict[str, Tensor]:
        """Load the backbone's parameters of the parent or base version on the CPU, by name."""
        return {
            name: p.detach()
            for name, p in self.load_version_network(which).named_parameters()
            if name.startswith("backbone.")
        }

    def load_prediction_function(self, which: Which) -> Predict:
        """Load the function with which the parent or base version predicts, by its own method and
        state.
        """
        made_by = predicting.load_prediction_method(
            self.get_parent_or_base_manifest(which),
            self._get_part_paths_by_name(which),
            self._device,
        )
        return made_by.predict_logits

    def get_temperature(self, which: Which) -> float:
        """Return the softmax temperature of the parent or base version."""
        return self.get_parent_or_base_manifest(which).logit_divisor

    def load_part_tensors(self, which: Which, kind: str) -> dict[str, Tensor]:
        """Load the tensors of a version's part of one type; an empty dict if it has none."""
        for part in self._get_parent_or_base_version(which).parts:
            if part.type == kind:
                return load_tensors(part.path)
        return {}

    def can_version_predict_task(self, which: Which, task: int, names: list[str]) -> bool:
        """Return True if the parent or base version can predict the task, judging by its manifest
        alone.
        """
        manifest = self.get_parent_or_base_manifest(which)
        if manifest.scenario == "task":
            return manifest.find_head_entry(task) is not None
        # Without images no class is present, and nothing can be measured.
        return bool(names) and set(names) <= set(manifest.classes or [])

    def _get_parent_or_base_version(self, which: Which) -> StartingVersion:
        return self._spec.parent if which == "parent" else self._spec.base

    def _get_part_paths_by_name(self, which: Which) -> dict[str, Path]:
        return {part.name: part.path for part in self._get_parent_or_base_version(which).parts}


def require_method_fits_network(network: Network, method: Method, spec: LearnJobSpec) -> None:
    """Raise DataError if the method cannot train a network of this architecture, or learn this
    problem.
    """
    name, version = spec.architecture.name, spec.parent.version
    problem = get_problem(spec.problem)
    if reason := problem.explain_unsupported_method(type(method)):
        raise DataError(f"{method.name} does not learn {problem.name}: {reason}")
    accepted = method.accepts.architectures
    # Checked here and not in the method, whose first error would be about a missing layer.
    if accepted is not None and get_architectures()[name].family not in accepted:
        raise DataError(
            f"{method.name} works on architectures of {', '.join(accepted)}, not on {name}"
        )
    if version != 0 and network.family != method.family:
        raise DataError(
            f"version {version} is a {network.family} network, and {method.name} trains "
            f"{method.family} ones: "
            "use a method of that family, or start a new model"
        )


def load_method_state_of_parent(
    method: Method, parent: StartingVersion, device: torch.device, warn: Callable[[str], None]
) -> None:
    """Load a method's state from the parent: all of it for the same method, else inheritable types.

    Warns if earlier tasks are unprotected because state could not be used.
    """
    # features only evaluate the classifier, so their deletion loses no protection
    before, deleted_types = parent.manifest.method, set(parent.deleted) - {FEATURES}
    # JSON values of a deleted type describe tensors that are gone.
    values = (
        {} if before is None else {k: v for k, v in before.state.items() if k not in deleted_types}
    )
    parts = image_packs.read_method_state(parent.parts, parent.class_numbers)
    if before is not None and before.name != method.name:
        unused_types = sorted((set(parts) | set(values)) - set(method.inherited_state))
        parts = {kind: named for kind, named in parts.items() if kind in method.inherited_state}
        values = {kind: named for kind, named in values.items() if kind in method.inherited_state}
        if unused_types or (method.inherited_state and not parts):
            unused = f" ({', '.join(unused_types)} not used)" if unused_types else ""
            warn(
                f"the method changed from {before.name} to {method.name}{unused}: "
                "earlier tasks are unprotected where nothing was taken over"
            )
        deleted_types &= set(method.inherited_state)
    if deleted_types:
        warn(
            f"the stored images of earlier tasks ({', '.join(sorted(deleted_types))}) were deleted: "
            f"{method.name} "
            "starts with an empty memory, and earlier tasks are unprotected"
        )
    method.state.replace_content(parts, values, device)
