"""The job process of a patch: classes are merged or dropped in a version, and nothing is learned.

It needs no image of the batches. A closed form adds the sums of merged classes and is solved again.
A head gets the mean of its former rows, and where the method remembers images, the head alone is
then fitted to these, with equally many of each class. The patched version is measured on all
held-out images that are stored.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import torch
from torch import Tensor

from core.contract.jobs.job_event import DoneEvent
from core.contract.jobs.job_result import LearnJobResult
from core.contract.jobs.patch_job import ClassPatchJobSpec
from core.contract.manifest import PER_TASK, STATISTICS, TOTALS
from core.learning.class_map import ClassMap
from core.learning.data import image_packs
from core.learning.data.augment import derive_seed
from core.learning.data.features import use_network_without_gradients
from core.learning.data.sampler import draw_class_balanced_row_batches
from core.learning.methods.method import Method
from core.learning.optimizers.build import NamedOptimizer
from core.learning.precision import move_network_to_device
from core.learning.recipe import is_head_parameter
from core.learning.training import log_lines
from core.learning.training.context import TaskTrainingContext
from core.learning.training.control import EmptyControlRequestSource
from core.learning.training.job import LearningJob
from core.learning.training.job_process import (
    Emit,
    run_job_and_write_events,
    start_exit_on_stop_request_listener,
)
from core.learning.training.output_folders import (
    Part,
    copy_network_as_version_parts,
    replace_network_result_folder,
    write_predictions_features_and_totals,
)

FIT_STEPS = 300
"""Optimizer steps of the head's fit; features are computed once, so a step costs little."""
_DRAWN = 7
"""Number of the seed that draws the batches of the fit."""
_PASS = 32
"""Images of one pass through the backbone."""


class ClassMergeOrDropJob(LearningJob):
    """A patch job in its process: merges or drops classes of a version without training data."""

    def __init__(self, spec: ClassPatchJobSpec, emit: Emit) -> None:
        super().__init__(spec, emit, EmptyControlRequestSource())
        self._names = spec.names
        self._class_map = ClassMap(spec.sources, len(spec.parent.manifest.classes or []))

    def run_job_phases(self) -> None:
        """Patch the parent version, measure it, and write the result."""
        network, method = self._ancestors.load_version_network("parent"), self._build_method()
        self._inherit_state_and_erase_deleted_tasks(method)
        self._emit_phase("consolidate")
        network.merge_drop_or_add_classes(self._names, self._class_map, add=method.outputs_add)
        # Before the renumbering below, which overwrites the rows that this reads.
        unchanged = self._list_tasks_with_classes_only_renumbered(method)
        method.renumber_and_drop_classes(self._class_map)
        move_network_to_device(network, self._device)
        network.requires_grad_(False)
        ctx = self._build_context(network)
        if self._class_map.has_merged_classes:
            self._train_head_on_remembered_images(ctx, method)
        method.recompute_after_class_patch(ctx)
        self._emit_phase("evaluate")
        self._report_log(log_lines.EVALUATING)
        figures = self._evaluator.measure_new_version(network, method, ctx)
        self._report_log(log_lines.format_accuracy_by_task_line(self._evaluator.rows, self._number))
        document = LearnJobResult(
            **self._describe_network(network, method, 0).get_explicitly_set_field_values(),
            **figures.get_explicitly_set_field_values(),
            **self._evaluator.build_matrix_and_temperature_fields(),
            trainable=0,
            parameters=sum(parameter.numel() for parameter in network.parameters()),
            images=0,
            warnings=self._warnings,
        )
        parts = [
            *copy_network_as_version_parts(network),
            *_build_state_parts_changed_by_patch(method, unchanged),
        ]
        totals = method.state[TOTALS].to_tensors()
        path = replace_network_result_folder(
            self._spec.out,
            "result",
            parts,
            document,
            lambda folder: write_predictions_features_and_totals(
                folder, self._evaluator.answers, self._features, totals
            ),
        )
        self._emit(DoneEvent(path=path))

    def _list_tasks_with_classes_only_renumbered(self, method: Method) -> set[int]:
        """List the tasks whose classes a patch only renumbers, so that older parts stay usable."""
        rows = {
            int(name.split(".")[0]): tensor
            for name, tensor in method.state[STATISTICS].tensors.items()
            if name.endswith(".rows")
        }
        return {
            task
            for task, task_rows in rows.items()
            if self._class_map.is_only_renumbering(task_rows)
        }

    def _train_head_on_remembered_images(self, ctx: TaskTrainingContext, method: Method) -> None:
        """Train the head alone on replayed images, with equally many of each class."""
        remembered = {} if method.remembers is None else method.state[method.remembers].tensors
        if "images" not in remembered:
            self._report_log(
                "No image is remembered, so merged classes keep the mean of their former rows."
            )
            return
        network, labels = ctx.network, remembered["labels"].cpu()
        with use_network_without_gradients(ctx):
            features = torch.cat(
                [
                    network.features(ctx.inputs(images)).float()
                    for images in remembered["images"].split(_PASS)  # type: ignore[no-untyped-call]
                ]
            )
        head = {name: p for name, p in network.named_parameters() if is_head_parameter(name)}
        for parameter in head.values():
            parameter.requires_grad_(True)
        recipe = self._recipe.optimizer
        # The rate of the head, as in a recipe's `rebalance`; nothing pulls its rows back.
        rate = {"lr": recipe.head_lr or recipe.lr, "head_lr": None, "olor": None}
        optimizer = NamedOptimizer(recipe.model_copy(update=rate), head, FIT_STEPS)
        for step, rows in enumerate(self._draw_class_balanced_row_batches(labels)):
            ctx.alive()
            optimizer.set_learning_rates_for_step(step)
            network.zero_grad(set_to_none=True)
            logits = network.logits(features[rows.to(features.device)]).float()
            loss = method.compute_head_tuning_loss(logits, labels[rows].to(logits.device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        self._report_log(
            f"The head was fitted to {len(labels):,} remembered images, with an equal share of "
            f"each class."
        )

    def _draw_class_balanced_row_batches(self, labels: Tensor) -> list[Tensor]:
        """Draw each step's batch rows, with equal shares of the classes."""
        seed = derive_seed(self._recipe.seed, self._number, _DRAWN)
        rows = torch.arange(len(labels))
        return draw_class_balanced_row_batches(
            seed, 0, rows, labels, self._recipe.batch_size, FIT_STEPS
        )


def _build_state_parts_changed_by_patch(method: Method, unchanged: Collection[int]) -> list[Part]:
    """List the parts of a patched method's state, without those of unchanged tasks.

    Args:
        unchanged: tasks whose sums and features an older version has.
    """
    parts: list[Part] = []
    for kind, tensors in method.state.collect_tensors_by_type(without=(TOTALS,)).items():
        if kind in PER_TASK:
            tasks = {int(name.split(".")[0]) for name in tensors}
            for task in sorted(tasks.difference(unchanged)):
                parts += image_packs.select_state_parts_of_task(kind, task, tensors)
        else:
            # New packs, without the images of dropped classes.
            parts += image_packs.build_parts_of_state_type(kind, tensors, {})
    return parts


def main(spec_path: str, out_fd: int, control_fd: int, before: Emit = lambda event: None) -> int:
    """Run the patch job of a spec file, which merges or drops classes of a version.

    Write events to `out_fd`, and return the exit status.

    The process ends on a stop request, and when the control pipe closes.
    """

    def run_patch(emit: Emit) -> None:
        start_exit_on_stop_request_listener(control_fd, out_fd)
        spec = ClassPatchJobSpec.from_json(json.loads(Path(spec_path).read_text()))
        job = ClassMergeOrDropJob(spec, emit)
        with job.numerics.use_numerics_flags():
            job.run_job_phases()

    return run_job_and_write_events(out_fd, before, run_patch)
