"""From a plan to the list of its runs, each with everything that decides it and a key that names
that.

The key is a hash over recipe, network, data, tasks, seed, device, versions of the learning code, of
this runner and of torch: a run whose key has a result need not be run again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from bench.experiment import joint
from bench.experiment.data import ExperimentDatasetCache
from bench.experiment.plan import (
    ExperimentPlan,
    Patch,
    PlanError,
    PlannedBase,
    PlannedDataSet,
    PlannedImages,
    PlannedMethod,
)
from bench.experiment.readout import TaskTestImages
from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.architecture import ArchitectureChoice
from core.errors import InvalidRecipe
from core.learning.catalogue import build_recipe_catalogue
from core.learning.networks import parse_architecture
from core.learning.recipe import Recipe
from core.packaged import packaged_base
from core.recipe.code_version import compute_learning_code_digest
from core.recipe.merge import merge_recipe
from core.recipe.resolve import resolve_recipe

ORDER_SEED = 1000
DECIDING = ("data.py", "grid.py", "joint.py", "readout.py", "runs.py", "unfinished.py")


Cell = tuple[str, str, str, str, int]
"""(data, scenario, protocol, method, depth); the runs of a cell are repetitions of each other."""


@dataclass(frozen=True)
class ExperimentTaskData:
    """Training data of one task in an experiment, and its test set."""

    train: Path
    classes: list[str]
    test: TaskTestImages


@dataclass(frozen=True)
class BaseTrainingRun:
    """A base network that an experiment trains before its runs: one task with all its classes."""

    name: str
    config: dict[str, Any]
    stage: ExperimentTaskData

    @property
    def result_inputs_digest(self) -> str:
        """Digest of everything that decides the result of training the base."""
        return digest_configuration(self.config)


@dataclass(frozen=True)
class NamedPackagedBase:
    """A packaged base from which runs of an experiment start, under the plan's name for it."""

    name: str
    packaged: str

    @property
    def result_inputs_digest(self) -> str:
        """SHA-256 of the packaged weights, in hex."""
        return hashlib.sha256(
            packaged_base.load_packaged_base_weights(3, self.packaged)
        ).hexdigest()


@dataclass(frozen=True)
class ExperimentRun:
    """One run of an experiment: a method learns a stream of tasks with one order and seed."""

    data: str
    scenario: str
    method: str
    depth: int
    order: int
    seed: int
    joint: bool | Literal["last"]
    reference: bool
    base: BaseTrainingRun | NamedPackagedBase | None
    config: dict[str, Any]
    stages: list[ExperimentTaskData]

    @property
    def result_inputs_digest(self) -> str:
        """Digest of everything that decides the result of the run."""
        return digest_configuration(self.config)

    @property
    def evaluation_protocols(self) -> list[str]:
        """Protocols by which the run is evaluated: heads per task, one head for all tasks, or both."""
        return ["class", "task"] if self.scenario == "class" else [self.scenario]

    @property
    def table_cells(self) -> list[Cell]:
        """Cells of the result tables to which the run contributes."""
        return [
            (self.data, self.scenario, readout, self.method, self.depth)
            for readout in self.evaluation_protocols
        ]

    @property
    def log_name(self) -> str:
        """Name of a run in the log."""
        variant = f"depth {self.depth} order {self.order} seed {self.seed}"
        return f"{self.data} {self.scenario} {self.method} {variant}"


def expand_plan_to_runs(
    plan: ExperimentPlan, files: ExperimentDatasetCache, device: str
) -> tuple[list[BaseTrainingRun], list[ExperimentRun]]:
    """Return the bases and runs of an experiment plan; orders and seeds vary last.

    Raises PlanError for a recipe or an architecture that cannot be used; no dataset file is made
    before.
    """
    cells = [
        (data, scenario, method, depth)
        for data in plan.data
        for scenario in plan.scenarios
        if data.has_split_for_scenario(scenario)
        for depth in sorted({d for m in plan.methods for d in m.depths or plan.depths})
        for method in plan.methods
        if depth in (method.depths or plan.depths)
        and scenario in (method.scenarios or plan.scenarios)
    ]
    for data, scenario, method, depth in cells:
        _check_network_buildable(plan, method, files.get_image_shape(data)["size"])
        resolve_planned_method_recipe(plan, method, scenario, depth, 0)
    bases = {base.name: _resolve_planned_base(base, files, device) for base in plan.bases}
    trained = [base for base in bases.values() if isinstance(base, BaseTrainingRun)]
    runs = []
    for order in range(plan.orders):
        for seed in plan.seeds:
            for data, scenario, method, depth in cells:
                if seed not in (method.seeds or plan.seeds) or seed not in (
                    data.seeds or plan.seeds
                ):
                    continue
                names = files.decode_experiment_data_set(data).names
                tasks = _list_task_classes(data, len(names), scenario, order)
                labels = [[names[c] for c in task] for task in tasks]
                if method.joint and scenario == "data":
                    labels = labels[:1]  # the same run, however the images are split
                recipe = resolve_planned_method_recipe(plan, method, scenario, depth, seed)
                if method.joint:
                    recipe = recipe.model_copy(
                        update={
                            "method": joint.choose_joint_method_of_recipe(recipe, scenario, labels)
                        }
                    )
                base = bases[method.base] if method.base else None
                config = {
                    **_build_run_config(
                        data, files, plan.get_method_architecture(method), recipe, device
                    ),
                    "scenario": scenario,
                    "joint": method.joint,
                    "tasks": labels,
                    **({"order": order} if scenario == "data" else {}),
                    "base": base.result_inputs_digest if base else None,
                }
                if isinstance(base, NamedPackagedBase):
                    normalisation = packaged_base.load_packaged_base_normalisation(
                        files.get_image_shape(data)["channels"], base.packaged
                    )
                    config["normalise"] = normalisation.to_json()
                if scenario == "data":
                    stages = _build_data_incremental_task_stages(
                        data, files, tasks, order, joint=bool(method.joint)
                    )
                else:
                    stages = _build_task_data_of_run(data, files, tasks, joint=bool(method.joint))
                key = (data.name, scenario, method.name, depth, order, seed)
                runs.append(
                    ExperimentRun(
                        *key,
                        method.joint,
                        bool(method.joint) or method.reference,
                        base,
                        config,
                        stages,
                    )
                )
    return trained, runs


def _list_task_classes(
    data: PlannedDataSet, count: int, scenario: str, order: int
) -> list[list[int]]:
    """Return the classes of each task; in the data scenario every task has all classes."""
    chosen = data.list_chosen_class_numbers(count)
    if scenario == "data":
        return [sorted(chosen)] * (data.splits or 1)
    return split_classes_into_tasks(
        chosen, data.classes_per_task or 1, order, data.name, data.first_task
    )


def split_classes_into_tasks(
    classes: list[int], per_task: int, order: int, name: str, first: int | None = None
) -> list[list[int]]:
    """Split classes into tasks; order 0 keeps their order, order k permutes them by a fixed seed.

    first: classes of the first task, `per_task` by default. Within a task classes ascend. Raises
    PlanError when the tasks do not come out even.
    """
    first = per_task if first is None else first
    if len(classes) < first or (len(classes) - first) % per_task:
        beside = "" if first == per_task else f" after a first task of {first}"
        raise PlanError(
            f"data: {name} has {len(classes)} classes, which {per_task} a task{beside} do not "
            f"divide"
        )
    if order:
        generator = np.random.default_rng(ORDER_SEED + order)
        classes = [classes[i] for i in generator.permutation(len(classes))]
    starts = [0, *range(first, len(classes), per_task)]
    return [sorted(classes[a:b]) for a, b in pairwise([*starts, len(classes)])]


def resolve_planned_method_recipe(
    plan: ExperimentPlan, method: PlannedMethod, scenario: str, depth: int, seed: int
) -> Recipe:
    """Return the complete recipe for a method in a scenario of the plan. Raises PlanError."""
    patch: Patch = dict(plan.recipe)
    for one in method.list_recipe_patches(scenario):
        patch = merge_recipe(patch, one)
    if method.joint:
        patch = merge_recipe(patch, {"method": "finetune"})
    elif "method" not in patch and "preset" not in patch:
        patch["method"] = "finetune"
    where = f"methods: {method.name} ({scenario} scenario, depth {depth})"
    patch |= {"depth": depth, "seed": seed}
    return _resolve_recipe_or_fail(patch, scenario, plan.get_method_architecture(method), where)


def _resolve_recipe_or_fail(
    patch: Patch, scenario: str, architecture: dict[str, Any], where: str
) -> Recipe:
    try:
        resolved_recipe = resolve_recipe(
            _get_cached_recipe_catalogue(),
            scenario,
            patch,
            architecture=cast(ArchitectureChoice, architecture),
        )
    except InvalidRecipe as error:
        first = error.fields[0]
        raise PlanError(f"{where}: {first['field']}: {first['message']}") from None
    return Recipe.model_validate(resolved_recipe.recipe)


@cache
def _get_cached_recipe_catalogue() -> RecipeCatalogue:
    return build_recipe_catalogue()


def _check_network_buildable(plan: ExperimentPlan, method: PlannedMethod, size: int) -> None:
    """Raise PlanError if a run's network cannot be built."""
    try:
        info, _ = parse_architecture(plan.get_method_architecture(method))
    except ValueError as error:
        raise PlanError(f"methods: {method.name}: architecture: {error}") from None
    if size < info.min_size:
        raise PlanError(
            f"methods: {method.name}: {info.name} needs {info.min_size} pixels, images have {size}"
        )


def _resolve_planned_base(
    base: PlannedBase, files: ExperimentDatasetCache, device: str
) -> BaseTrainingRun | NamedPackagedBase:
    if base.images is None:
        return NamedPackagedBase(base.name, base.packaged or packaged_base.PACKAGED)
    patch = {"method": "finetune", **base.recipe, "seed": base.seed}
    recipe = _resolve_recipe_or_fail(patch, "class", base.architecture, f"bases: {base.name}")
    classes = base.images.list_chosen_class_numbers(
        len(files.decode_experiment_data_set(base.images).names)
    )
    config = {
        **_build_run_config(base.images, files, base.architecture, recipe, device),
        "classes": classes,
    }
    return BaseTrainingRun(
        base.name,
        config,
        _build_data_of_one_experiment_task(base.images, files, 1, classes, classes),
    )


def _build_run_config(
    images: PlannedImages,
    files: ExperimentDatasetCache,
    architecture: dict[str, Any],
    recipe: Recipe,
    device: str,
) -> dict[str, Any]:
    """Return the configuration of a run without its tasks; it decides the result."""
    return {
        "architecture": architecture,
        "recipe": recipe.model_dump(mode="json", by_alias=True),
        "source": files.decode_experiment_data_set(images).content_digest,
        "images": images.model_dump(
            mode="json", include={"train_per_class", "test_per_class", "pad"}
        ),
        "form": files.get_image_shape(images),
        "normalise": images.normalise.model_dump(mode="json") if images.normalise else None,
        "device": device,
        "code": compute_learning_code_digest(),
        "runner": _hash_runner_files(),
        "torch": importlib.metadata.version("torch"),
    }


def _build_task_data_of_run(
    images: PlannedImages, files: ExperimentDatasetCache, tasks: list[list[int]], *, joint: bool
) -> list[ExperimentTaskData]:
    stages = []
    for number, task in enumerate(tasks, 1):
        union = sorted({c for earlier in tasks[:number] for c in earlier})
        stages.append(
            _build_data_of_one_experiment_task(
                images, files, number, union if joint else task, task
            )
        )
    return stages


def _build_data_incremental_task_stages(
    data: PlannedDataSet,
    files: ExperimentDatasetCache,
    tasks: list[list[int]],
    order: int,
    *,
    joint: bool,
) -> list[ExperimentTaskData]:
    """Split the data scenario into tasks: same classes and test images, different training images.

    A joint run has the last stage alone, with all images: with few images in each of many tasks,
    training from scratch on all so far at every stage would take longer than everything else.
    """
    classes, count = tasks[0], len(tasks)
    names = [files.decode_experiment_data_set(data).names[c] for c in classes]
    test = files.make_dataset_file_of_classes(data, classes, "test")
    if joint:
        return [
            ExperimentTaskData(
                files.make_dataset_file_of_classes(data, classes, "train"),
                names,
                TaskTestImages(count, test, names),
            )
        ]
    return [
        ExperimentTaskData(
            files.make_dataset_file_of_classes(data, classes, "train", (i, count, order)),
            names,
            TaskTestImages(i + 1, test, names),
        )
        for i in range(count)
    ]


def _build_data_of_one_experiment_task(
    images: PlannedImages,
    files: ExperimentDatasetCache,
    number: int,
    train: list[int],
    test: list[int],
) -> ExperimentTaskData:
    names = files.decode_experiment_data_set(images).names
    tested = TaskTestImages(
        number, files.make_dataset_file_of_classes(images, test, "test"), [names[c] for c in test]
    )
    return ExperimentTaskData(
        files.make_dataset_file_of_classes(images, train, "train"),
        [names[c] for c in train],
        tested,
    )


@cache
def _hash_runner_files() -> str:
    """Return the SHA-256 of this package's files that decide the result of a run."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in DECIDING)).hexdigest()


def digest_configuration(config: Mapping[str, Any]) -> str:
    """Return the digest of a run's configuration, 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:32]
