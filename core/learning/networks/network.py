"""A backbone with its heads: the unit that is trained, measured, stored in parts, and rebuilt.

Scenarios `class` and `data` have one head whose rows are the known classes; `task` has a head per
task. Depth and storage follow the backbone's stages. A depth group is a set of names that are
trained or frozen together. A part holds the tensors of one stage or head, so tensors that training
cannot change are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch import Tensor, nn

from core.learning.class_map import ClassMap
from core.learning.networks.backbone import (
    Backbone,
    copy_tensor_of_same_shape,
    copy_to_contiguous_cpu_tensor,
)
from core.learning.networks.heads import ClassifierHead, check_head_initialisation_name

SCENARIOS = ("data", "task", "class")
_EVALUATED: WeakSet[Network] = WeakSet()
"""Networks within `use_eval_mode`."""
MAX_GROUPS = 5


@dataclass(frozen=True)
class HeadSpec:
    """Description of a network's heads: `classes` of one shared head, or `tasks` with one head
    each.

    Classes are the names of a head's outputs. `make` makes a head of zeros from the width of the
    features and the number of outputs.
    """

    classes: tuple[str, ...] = ()
    tasks: tuple[tuple[int, tuple[str, ...]], ...] = ()
    make: Callable[[int, int], ClassifierHead] = ClassifierHead

    @staticmethod
    def from_manifest(manifest: Mapping[str, Any]) -> HeadSpec:
        """Read the heads from a manifest's `classes` and `heads`; either may be missing or null."""
        heads = manifest.get("heads") or []
        return HeadSpec(
            tuple(manifest.get("classes") or ()),
            tuple((int(head["task"]), tuple(head["classes"])) for head in heads),
        )


class Network(nn.Module):
    """A backbone with classification heads, whose `forward` maps normalised images to logits.

    Images are float [B, channels, size, size], logits [B, classes (of the task)]. Other families
    (`families.py`) derive from this class and add parameters of their own. `pretrained`: False
    where the backbone's weights are random. `renamed`: prefix of tensor names in older snapshots →
    prefix now.
    """

    family: ClassVar[str] = "plain"
    renamed: ClassVar[Mapping[str, str]] = {}  # old prefix of tensor names → present prefix
    takes_features: ClassVar[bool] = True  # accepts features [B, width] in place of images

    def __init__(self, backbone: Backbone, scenario: str, heads: HeadSpec | None = None) -> None:
        """Build the heads of zeros. Raises ValueError for an unknown scenario or repeated class."""
        super().__init__()
        if scenario not in SCENARIOS:
            raise ValueError(f"unknown scenario {scenario!r}; known: {', '.join(SCENARIOS)}")
        heads = heads or HeadSpec()
        self.backbone = backbone
        self.scenario = scenario
        self.pretrained = True  # False: the backbone's weights are random
        self._make_head = heads.make
        self.classes: list[str] = []
        self.head_classes: dict[int, list[str]] = {}
        self.head: ClassifierHead | None = None
        self.heads = nn.ModuleDict()
        if scenario == "task":
            for task, names in heads.tasks:
                self.head_classes[task] = _require_unique_classes(names)
                self.heads[str(task)] = heads.make(backbone.width, len(names))
        else:
            self.classes = _require_unique_classes(heads.classes)
            self.head = heads.make(backbone.width, len(self.classes))

    def describe_for_manifest(self) -> dict[str, Any] | None:
        """Describe the network for the manifest, besides architecture and heads; None if nothing is
        needed.
        """
        return None

    def translate_older_tensor_name(self, name: str) -> str:
        """Translate a tensor name of an older snapshot to its present name."""
        for before, now in self.renamed.items():
            if name.startswith(before):
                return now + name.removeprefix(before)
        return name

    def prepare_to_load_state_dict(self, names: set[str]) -> None:
        """Change the network's shape to that of a state dict with these names.

        Only families that change shape during a task override this.
        """

    def features(self, x: Tensor, task: int | None = None) -> Tensor:
        """Map images [B, channels, size, size] to features [B, width].

        `task` matters in families with features per task. Features [B, width] in place of images
        are returned unchanged. Features with several readers are thus computed once
        (`core/learning/data/features.py`, `core/learning/data/held_out_features.py`).
        """
        return x if x.dim() == 2 else self.backbone(x)

    def logits(self, features: Tensor, task: int | None = None) -> Tensor:
        """Compute logits of features [B, width], in the order of `list_classes(task)`.

        Raises ValueError for a missing head.
        """
        return self._get_head(task)(features)  # type: ignore[no-any-return]

    def forward(self, x: Tensor, task: int | None = None) -> Tensor:
        """Map [B, channels, size, size] to logits [B, classes]."""
        return self.logits(self.features(x, task), task)

    def list_classes(self, task: int | None = None) -> list[str]:
        """List class labels in the order of the logits.

        In the task scenario `task` names the head. Raises ValueError if it is unknown.
        """
        if self.scenario != "task":
            return self.classes
        self._get_head(task)
        assert task is not None
        return self.head_classes[task]

    def list_tasks_with_own_head(self) -> list[int | None]:
        """List the heads' tasks in learning order, or [None] for a single head."""
        return list(self.head_classes) if self.scenario == "task" else [None]

    def find_first_class_number(self, task: int | None) -> int:
        """Return the number of a head's first class among the classes of all heads.

        The classes of all heads are counted one after the other.
        """
        heads = self.list_tasks_with_own_head()
        return sum(len(self.list_classes(head)) for head in heads[: heads.index(task)])

    def _get_head(self, task: int | None) -> nn.Module:
        """Return the head of a task. Raises ValueError if there is none."""
        if self.head is not None:
            return self.head
        if task is None:
            raise ValueError("in the task scenario the task must be named")
        if str(task) not in self.heads:
            raise ValueError(f"the network has no head for task {task}")
        return self.heads[str(task)]

    def add_task_classes(
        self, task: int, classes: Sequence[str], init: str, generator: torch.Generator
    ) -> None:
        """Add a task's classes. Old rows stay bit-identical; known classes add no row.

        Grown parameters are new objects: build the optimizer afterwards. `init`: "zero" or
        "default". Raises ValueError for an unknown class in the data scenario once its classes are
        fixed, for a repeated class, and for an unknown init.
        """
        names = _require_unique_classes(classes)
        check_head_initialisation_name(init)
        if self.scenario == "task":
            known_classes = self.head_classes.setdefault(task, [])
            if str(task) not in self.heads:
                # A new head goes to the device and dtype of the backbone.
                fresh = self._make_head(self.backbone.width, 0)
                backbone_parameter = next(self.backbone.parameters())
                self.heads[str(task)] = fresh.to(
                    backbone_parameter.device, backbone_parameter.dtype
                )
            head = self.heads[str(task)]
        else:
            known_classes = self.classes
            assert self.head is not None
            head = self.head
        new = [name for name in names if name not in set(known_classes)]
        if self.scenario == "data" and known_classes and new:
            raise ValueError(
                f"the class {new[0]!r} is not among the model's classes: "
                f"{', '.join(known_classes[:20])}"
            )
        assert isinstance(head, ClassifierHead)
        head.append_head_rows(len(new), init, generator)
        known_classes.extend(new)

    def merge_drop_or_add_classes(
        self, names: Sequence[str], classes: ClassMap, *, add: bool
    ) -> None:
        """Merge, drop or add classes of the single head, whose rows are made of the former ones.

        Args:
            names: the new classes.
            classes: the former classes that each is made of.
            add: see `ClassifierHead.merge_rows_by_class_map`.
        """
        assert self.head is not None, "a model with a head per task is not patched"
        self.head.merge_rows_by_class_map(classes, add=add)
        self.classes = _require_unique_classes(names)

    def list_tensor_names_by_depth(self) -> list[list[str]]:
        """Group state-dict names by training depth: [heads, last stage, …, first].

        Group 5 also has all stages before it. Depth d trains the first d groups. With fewer than
        five groups the greater depths are the same. Final norm layers belong to the last stage.
        """
        groups = [[name for name in self.state_dict() if not name.startswith("backbone.")]]
        for stage in reversed(range(len(self.backbone.stage_prefixes))):
            names = [f"backbone.{name}" for name in self.backbone.list_tensor_names_of_stage(stage)]
            if len(groups) < MAX_GROUPS:
                groups.append(names)
            else:
                # All earlier stages share the last group, so that depth 5 means the whole network
                # everywhere.
                groups[-1] = names + groups[-1]
        return groups

    def list_trainable_parameter_names(self, depth: int) -> set[str]:
        """List the names of the parameters (not buffers) that are trained at depth 1 … 5.

        Raises ValueError for another depth.
        """
        if not 1 <= depth <= MAX_GROUPS:
            raise ValueError(f"depth must lie between 1 and {MAX_GROUPS}, not {depth}")
        moving = {name for group in self.list_tensor_names_by_depth()[:depth] for name in group}
        # Buffers belong to a stage as well, but no gradient moves them.
        return moving & {name for name, _ in self.named_parameters()}

    def list_tensor_names_by_part(self) -> dict[str, list[str]]:
        """List the state-dict names of each stored part, by part name.

        Parts are `backbone.1` (input side) … `backbone.k`, then the heads.
        """
        names = {
            f"backbone.{stage + 1}": [
                f"backbone.{name}" for name in self.backbone.list_tensor_names_of_stage(stage)
            ]
            for stage in range(len(self.backbone.stage_prefixes))
        }
        if self.head is not None:
            # A part for each head, so that a task of the task scenario stores its own alone.
            names["head"] = [f"head.{name}" for name in self.head.state_dict()]
        for task in self.head_classes:
            tensors = self.heads[str(task)].state_dict()
            names[f"head.{task}"] = [f"heads.{task}.{name}" for name in tensors]
        return names

    def copy_parts_to_cpu(
        self, state: Mapping[str, Tensor] | None = None
    ) -> dict[str, dict[str, Tensor]]:
        """Copy every tensor of the network to the CPU, by stored part.

        `state`: another state dict of this network to take them from.
        """
        state = self.state_dict() if state is None else state
        return {
            part: {name: copy_to_contiguous_cpu_tensor(state[name]) for name in names}
            for part, names in self.list_tensor_names_by_part().items()
        }

    def copy_parameters_to_cpu(self, without: Collection[str] = ()) -> dict[str, Tensor]:
        """Copy the parameters to the CPU by name, except for those named in `without`."""
        return {
            # Copied and on the CPU: training changes the parameters in place.
            name: p.detach().cpu().contiguous().clone()
            for name, p in self.named_parameters()
            if name not in without
        }

    def load_parts(self, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load all stored parts into the network.

        Raises ValueError that names a missing or extra tensor, or one of another shape or dtype.
        """
        self._load_exact_parts(parts, self.list_tensor_names_by_part())

    def load_backbone_parts(self, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load only the backbone's parts into the network: a base taken from another model's
        version.

        Raises ValueError as `load_parts` does.
        """
        backbone_parts = {
            part: names
            for part, names in self.list_tensor_names_by_part().items()
            if part.startswith("backbone.")
        }
        self._load_exact_parts(parts, backbone_parts)

    def _load_exact_parts(
        self, parts: Mapping[str, Mapping[str, Tensor]], expected_parts: Mapping[str, list[str]]
    ) -> None:
        """Load parts into the network after checking that they are exactly those in `expected_parts`.

        Raises ValueError as `load_parts` does.
        """
        # All part names are checked before anything is copied.
        for part in parts:
            if part not in expected_parts:
                raise ValueError(f"unknown part {part}")
        state = self.state_dict()
        for part, names in expected_parts.items():
            if part not in parts:
                raise ValueError(f"the part {part} is missing")
            for name in parts[part]:
                if name not in names:
                    raise ValueError(f"the part {part} holds an unknown tensor: {name}")
            for name in names:
                if name not in parts[part]:
                    raise ValueError(f"the part {part} lacks the tensor {name}")
                copy_tensor_of_same_shape(name, state[name], parts[part][name])


@contextmanager
def use_eval_mode(network: Network) -> Iterator[None]:
    """Context manager that puts a network into eval mode, and restores every module's mode
    afterwards.
    """
    # An evaluation of many tasks enters once for all of them: modules are not visited for each.
    if network in _EVALUATED:
        yield
        return
    # By module: frozen ones are in eval mode while the others train.
    training = [module for module in network.modules() if module.training]
    if training:
        network.eval()
    _EVALUATED.add(network)
    try:
        yield
    finally:
        _EVALUATED.discard(network)
        for module in training:
            module.training = True


def get_type_of_part_name(part: str) -> str:
    """Return the type of a stored part from its name: `backbone`, `head`, or a family's own.

    It is the first word of the part's name.
    """
    return part.partition(".")[0]


def _require_unique_classes(classes: Sequence[str]) -> list[str]:
    """Return class names as a list. Raises ValueError for a repeated class."""
    names_so_far: set[str] = set()
    for name in classes:
        if name in names_so_far:
            raise ValueError(f"the class {name!r} is named twice")
        names_so_far.add(name)
    return list(classes)
