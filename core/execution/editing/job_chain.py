"""The job processes of an edit: each learns one task again, on top of the result before.

With kept features (`recompute`), each edited task is learned from its features on top of the
lineage head, whose sums it replaces; all other tasks keep theirs. Otherwise (`relearn`) the tasks
from the first edited one on are learned from their images, starting from the version before it.
Only the last result becomes a version. Where neither is kept (`patch`), one process changes rows of
the head's classifier.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.contract.architecture import ArchitectureWithHyperParameters, ImageSettings
from core.contract.edit import EditResult
from core.contract.figures import VersionFeatureKnnProbeResult
from core.contract.jobs.job_result import LearnJobResult, NewVersionPartFile
from core.contract.jobs.job_spec import (
    EarlierTask,
    LearnJobSpec,
    LocalVersionPartFile,
    StartingVersion,
    TaskToLearn,
)
from core.contract.jobs.patch_job import PATCH, ClassPatchJobSpec
from core.contract.manifest import PER_TASK
from core.contract.recipe import Recipe
from core.database.session import Database
from core.edits import record, rewrite
from core.edits.matrix_recount import recount_matrix_cells
from core.edits.rewrite import get_names_of_task_feature_parts
from core.errors import Invalid
from core.execution.editing.data import (
    EditedTaskData,
    choose_fallback_temperature,
    write_and_store_edited_task_data,
)
from core.execution.editing.edit_lineage import (
    IntermediateEditedVersion,
    renumber_classes_of_edited_version,
)
from core.execution.editing.edit_rows import RowsForEditJob
from core.execution.editing.renaming import write_head_as_result_with_renamed_classes
from core.execution.prepare import (
    fetch_blob_if_undamaged,
    fetch_files_of_earlier_task,
    fetch_version_parts,
    fill_in_missing_recipe_fields,
    find_reusable_held_out_features,
)
from core.ingest.dataset import write_image_dataset_file
from core.jobs.fence import JobClaim
from core.lineage.class_numbers import GONE, map_former_to_new_class_numbers
from core.lineage.coverage import list_taught_tasks
from core.retention import retention
from core.settings import Settings
from core.storage import Blobs


class EditProcessChain:
    """The chain of learning processes with which a job carries out an edit.

    Args:
        folder: scratch space of the attempt.
    """

    def __init__(
        self,
        db: Database,
        blobs: Blobs,
        settings: Settings,
        claim: JobClaim,
        facts: RowsForEditJob,
        folder: Path,
    ) -> None:
        self._db, self._blobs, self._settings, self._claim = db, blobs, settings, claim
        self._facts, self._folder = facts, folder
        self._edited: dict[int, EditedTaskData] = {}
        self._carrier: int | None = None
        # Parts of earlier tasks that the new version stores, since its ancestors' are outdated.
        self._renewed: set[str] = set()
        self._class_numbers: list[int] | None = None
        self._held_out_features = find_reusable_held_out_features(
            list(facts.tasks.values()), facts.parts
        )

    @property
    def relearned_tasks(self) -> list[int]:
        """Numbers of the tasks that the edit job learns again, in order."""
        dropped = self._facts.changes.dropped
        task_numbers = [number for number in self._facts.recipes if number not in dropped]
        return [self._carrier] if self._carrier is not None else task_numbers

    @property
    def _tasks_remaining_after_edit(self) -> list[int]:
        """Numbers of the tasks that the edited version is taught, in order."""
        dropped = self._facts.changes.dropped
        return [number for number in self._facts.taught if number not in dropped]

    def store_edited_data_of_all_tasks(self) -> None:
        """Build and store the edited data files of all tasks that the edit changes.

        Raises:
            Invalid: no task would be left, or none that has to be learned again.
        """
        facts = self._facts
        if not self._tasks_remaining_after_edit:
            raise Invalid("The model would have no task left. Delete the model instead.")
        for number in facts.edit.tasks:
            self._store_edited_task_files(number)
        self._require_training_images_of_classes()
        if facts.recipes and not self.relearned_tasks:
            if not facts.relearns_from_features:
                raise Invalid(
                    f"No task was learned after those that are removed: roll back to version "
                    f"{facts.start.number} instead."
                )
            # Sums are solved when a task is learned, so one that stays is learned again as it is.
            with_features = [
                n
                for n in self._tasks_remaining_after_edit
                if get_names_of_task_feature_parts(n)[0] in facts.features
            ]
            if not with_features:
                raise Invalid("No other task has features that the model could be solved from.")
            self._carrier = with_features[-1]
            self._store_edited_task_files(self._carrier)

    def _require_training_images_of_classes(self) -> None:
        """Refuse an edit that leaves a class with held-out images but without training images."""
        facts, edited = self._facts, self._edited
        trained = {
            name
            for number in self._tasks_remaining_after_edit
            for name in (
                edited[number].list_trained_classes()
                if number in edited
                else facts.tasks[number].classes
            )
        }
        for number, data in edited.items():
            without = sorted(set(data.after.classes) - trained)
            if without:
                raise Invalid(
                    f"The class {without[0]!r} would have held-out images in task {number}, and no "
                    f"training image anywhere. Relabel or remove these in the same edit."
                )

    def _store_edited_task_files(self, number: int) -> None:
        folder = self._folder / f"task-{number}"
        self._edited[number] = write_and_store_edited_task_data(
            self._blobs, self._facts, number, folder
        )

    def write_result_of_renaming_edit(self) -> Path:
        """Write the job result of an edit that only renames classes, and return its folder."""
        out = self._folder / "renamed"
        write_head_as_result_with_renamed_classes(self._db, self._blobs, self._facts, out)
        self._write_edit_result_and_files(out)
        return out

    def load_first_starting_version(self) -> IntermediateEditedVersion:
        """Return the version state from which an edit's first learning process starts."""
        start = self._fetch_starting_version_state()
        return (
            self._renumber_version_classes_after_edit(start)
            if self._facts.relearns_from_features
            else start
        )

    def _fetch_starting_version_state(self) -> IntermediateEditedVersion:
        facts = self._facts
        version = fetch_version_parts(self._blobs, facts.start, facts.parts, facts.numbers)
        named = {part.name: part for part in version.parts}
        manifest = version.manifest.model_copy(
            update={
                "knn_probe": self._select_knn_probe_of_unchanged_tasks(),
                "temperature": choose_fallback_temperature(
                    facts,
                    self._edited,
                    self._tasks_remaining_after_edit,
                    version.manifest.temperature,
                ),
            }
        )
        return IntermediateEditedVersion(manifest, named, version.class_numbers)

    def _select_knn_probe_of_unchanged_tasks(self) -> VersionFeatureKnnProbeResult | None:
        """Return the head version's k-NN probe of the tasks that the edit does not change."""
        probe = self._facts.probe
        if probe is None:
            return None
        unchanged = {task: n for task, n in probe.tasks.items() if int(task) not in self._edited}
        return probe.model_copy(update={"tasks": unchanged})

    def write_class_patch_spec(self) -> tuple[IntermediateEditedVersion, Path]:
        """Write the spec of a process that patches the head version to merge or drop classes."""
        facts, number = self._facts, self._tasks_remaining_after_edit[-1]
        folder = self._folder / "patch"
        folder.mkdir()
        head = self._fetch_starting_version_state()
        head = replace(head, parts=self._add_unread_feature_parts(head.parts))
        assert facts.head.manifest.recipe is not None, "a version that was taught has a recipe"
        recipe = fill_in_missing_recipe_fields(
            self._settings, facts.model, facts.head.manifest.recipe.to_json()
        )
        history = self._fetch_other_tasks_to_measure(None)
        task = TaskToLearn(
            **next(
                each for each in history if each.number == number
            ).get_explicitly_set_field_values(),
            train=self._write_empty_training_dataset(folder),
        )
        other_tasks = [each for each in history if each.number != number]
        classes = list(head.manifest.classes or [])
        sources = facts.changes.list_class_sources(classes)
        if any(part.type in PER_TASK for part in head.parts.values()):
            self._record_class_number_changes(
                map_former_to_new_class_numbers(list(sources.values()), len(classes))
            )
        spec = ClassPatchJobSpec(
            **self._build_job_spec(
                head, recipe, task, other_tasks, folder
            ).get_explicitly_set_field_values(),
            work=PATCH,
            names=list(sources),
            sources=list(sources.values()),
        )
        return head, _write_process_spec(folder, spec)

    def _write_empty_training_dataset(self, folder: Path) -> Path:
        """Write an empty training dataset, since patching a version learns from no images."""
        image, path = self._facts.model.image, folder / "train.safetensors"
        shape = (image["size"], image["size"], image["channels"])
        write_image_dataset_file(path, np.zeros(0, np.int64), shape, [])
        return path

    def write_relearning_spec(
        self, intermediate_version: IntermediateEditedVersion, number: int
    ) -> Path:
        """Write the spec of a process that learns one task again, and return its path."""
        folder = self._folder / f"job-{number}"
        folder.mkdir(parents=True)
        task = self._build_task_to_learn(number, folder)
        # Results in between are not measured, since no version is made of them.
        is_last = number == self.relearned_tasks[-1]
        history = self._fetch_other_tasks_to_measure(number) if is_last else []
        return _write_process_spec(
            folder,
            self._build_job_spec(
                intermediate_version, self._find_task_recipe(number), task, history, folder
            ),
        )

    def _build_job_spec(
        self,
        intermediate_version: IntermediateEditedVersion,
        recipe: Recipe,
        task: TaskToLearn,
        history: list[EarlierTask],
        folder: Path,
    ) -> LearnJobSpec:
        facts, settings = self._facts, self._settings
        base = fetch_version_parts(self._blobs, facts.base, facts.base_parts)
        return LearnJobSpec(
            architecture=ArchitectureWithHyperParameters.from_json(facts.model.architecture),
            image=ImageSettings.from_json(facts.model.image),
            scenario=facts.model.scenario,
            problem=facts.model.problem,
            recipe=recipe,
            normalise=facts.base.manifest.normalise,
            classes=facts.model.classes if facts.model.scenario == "data" else None,
            task=task,
            history=history,
            erased_tasks=facts.erased,
            held_out_stays=facts.model.held_out != retention.COUNTS,
            # Those of the head are measured, and of others nobody asks.
            with_ancestors=False,
            # The edit itself changes the report of a batch that it learns again.
            inspects_task=False,
            parent=StartingVersion(
                version=intermediate_version.manifest.version or 0,
                manifest=intermediate_version.manifest,
                parts=list(intermediate_version.parts.values()),
                class_numbers=intermediate_version.class_numbers,
            ),
            base=base,
            out=folder / "out",
            threads=settings.threads,
            device=settings.device if self._claim.device == "auto" else self._claim.device,
            ranks=settings.ranks,
            gpu_memory_share=settings.gpu_memory_share,
        )

    def build_next_starting_version(
        self, intermediate_version: IntermediateEditedVersion, number: int, out: Path
    ) -> IntermediateEditedVersion:
        """Return the version state from which the edit's next learning process starts."""
        document = _read_job_result(out)
        recipe = self._find_task_recipe(number)
        dropped = self._facts.changes.dropped
        taught = [n for n in list_taught_tasks(intermediate_version.manifest) if n not in dropped]
        manifest = intermediate_version.manifest.model_copy(
            update={
                "version": (intermediate_version.manifest.version or 0) + 1,
                "task": number,
                "tasks": taught if number in taught else [*taught, number],
                "classes": document.classes,
                "heads": document.heads,
                "recipe": recipe,
                "method": document.method,
                "network": document.network,
                "normalise": document.normalise,
                "temperature": document.temperature,
            }
        )
        earlier = {
            name: part for name, part in intermediate_version.parts.items() if part.type in PER_TASK
        }
        new_parts = {
            part.name: LocalVersionPartFile(name=part.name, type=part.type, path=out / part.file)
            for part in document.parts
        }
        self._renewed |= {name for name, part in new_parts.items() if part.type in PER_TASK}
        parts = {
            **new_parts,
            **{name: part for name, part in earlier.items() if name not in new_parts},
        }
        return replace(intermediate_version, manifest=manifest, parts=parts)

    def complete_result_with_unchanged_tasks(
        self, intermediate_version: IntermediateEditedVersion, out: Path
    ) -> None:
        """Complete the final result of an edit with parts of unchanged tasks and with database
        changes.

        Args:
            intermediate_version: the version after the last process.
        """
        document = _read_job_result(out)
        present = {part.name for part in document.parts}
        parts = list(document.parts)
        for name in sorted(self._renewed - present):
            part = intermediate_version.parts[name]
            file = f"parts/{name}.safetensors"
            shutil.copyfile(part.path, out / file)
            parts.append(NewVersionPartFile(name=name, type=part.type, file=file))
        fields = {
            "parts": parts,
            # Counts of versions in between, which nobody has; those of the head are stored.
            "results": [cell for cell in document.results if cell.version == "new"],
            "answers": [file for file in document.answers if file.version == "new"],
        }
        changed = document.model_copy(update=fields).to_json()
        changed.pop("changes", None)
        (out / "result.json").write_text(json.dumps(changed, ensure_ascii=False, sort_keys=True))
        self._write_edit_result_and_files(out)

    def _write_edit_result_and_files(self, out: Path) -> None:
        changes = self._build_edit_result().to_json()
        (out / record.FILE).write_text(json.dumps(changes, ensure_ascii=False))
        (out / record.STORED).mkdir()
        for data in self._edited.values():
            for digest, path in data.stored.items():
                # Linked, since both paths are in the attempt's scratch folder. Two tasks may have
                # equal files, which share one digest.
                if not (linked := out / record.STORED / digest).exists():
                    os.link(path, linked)

    def _build_edit_result(self) -> EditResult:
        facts, edited = self._facts, list(self._edited.values())
        counts = [
            part.count_changed_images(facts.changes.classes)
            for data in edited
            for part in (data.train, data.held_out)
            if part is not None
        ]
        removed = sum(count for _, count in counts)
        held_out = {
            data.after.number: data.held_out
            for data in edited
            if data.held_out is not None
            and data.held_out.is_changed
            and data.after.number not in facts.changes.dropped
        }
        renames = facts.changes.list_class_renames_without_merges(facts.head.manifest.classes or [])
        return EditResult(
            parent=facts.start.number,
            taught=self._tasks_remaining_after_edit,
            classes=facts.changes.classes,
            before=[data.before for data in edited],
            after=[data.after for data in edited],
            cells=recount_matrix_cells(
                self._db, self._blobs, facts.model.id, held_out, facts.changes.classes
            ),
            measured_otherwise=[
                number
                for number, labels in held_out.items()
                if labels.has_relabelled_or_removed_images(renames)
            ],
            reports={
                data.after.number: data.build_task_report_facts_changed_by_edit(facts.changes)
                for data in edited
            },
            removed_paths=[path for data in edited for path in data.removed_paths],
            relabelled=sum(count for count, _ in counts),
            removed=removed,
            can_undo=not removed and not facts.changes.removes_images,
            class_numbers=self._class_numbers,
        )

    def _build_task_to_learn(self, number: int, folder: Path) -> TaskToLearn:
        data, task = self._edited.get(number), self._facts.tasks[number]
        if data is None:
            assert task.train_sha256 is not None, "checked when the facts were read"
            earlier = fetch_files_of_earlier_task(self._blobs, task, None, None)
            return TaskToLearn(
                number=number,
                classes=sorted(task.classes),
                held_out=earlier.held_out,
                train=self._blobs.fetch_verified_file(task.train_sha256),
            )
        held_out = data.files.get("held_out")
        if data.held_out is not None and not data.held_out.remaining_labels:
            held_out = None
        assert data.train is not None, "a task is learned from images or features"
        if data.rows is None:
            train, features = data.files["train"], None
        else:
            train, features = rewrite.write_feature_key_dataset_and_features(
                folder, data.rows, data.train, data.names
            )
        return TaskToLearn(
            number=number,
            classes=sorted(data.after.classes),
            held_out=held_out,
            train=train,
            known=features,
            features=self._fetch_held_out_features(data),
        )

    def _find_task_recipe(self, number: int) -> Recipe:
        """Return the recipe with which a task was learned; the newest recipe if it has none."""
        recipes = self._facts.recipes
        return recipes.get(number) or next(reversed(recipes.values()))

    def _fetch_other_tasks_to_measure(self, excluded_task: int | None) -> list[EarlierTask]:
        """Return the tasks of the edited version other than `excluded_task`, on which it is measured."""
        facts = self._facts
        listed = []
        for number in self._tasks_remaining_after_edit:
            data = self._edited.get(number)
            if number == excluded_task:
                continue
            if data is None:
                features = self._held_out_features.get(number)
                listed.append(
                    fetch_files_of_earlier_task(self._blobs, facts.tasks[number], None, features)
                )
            else:
                has_images = data.held_out is not None and bool(data.held_out.remaining_labels)
                listed.append(
                    EarlierTask(
                        number=number,
                        classes=sorted(data.after.classes),
                        held_out=data.files.get("held_out") if has_images else None,
                        features=self._fetch_held_out_features(data),
                    )
                )
        return listed

    def _fetch_held_out_features(self, data: EditedTaskData) -> Path | None:
        """Fetch stored features of a task's held-out images; None if the edit changes these."""
        digest = self._held_out_features.get(data.after.number)
        if digest is None or data.after.held_out != data.before.held_out:
            return None
        return fetch_blob_if_undamaged(self._blobs, digest)

    def _renumber_version_classes_after_edit(
        self, intermediate_version: IntermediateEditedVersion
    ) -> IntermediateEditedVersion:
        """Renumber the head version's classes in the order of first appearance after the edit.

        Sums and features of the edited tasks are left out: they are learned again.
        """
        facts, folder = self._facts, self._folder / "renumbered"
        folder.mkdir()
        classes, new = list(facts.head.manifest.classes or []), self._list_class_names_after_edit()
        position = {name: at for at, name in enumerate(new)}
        named = [facts.changes.classes.get(name, name) for name in classes]
        outdated = {
            name
            for name, part in intermediate_version.parts.items()
            if part.type in PER_TASK and int(name.split(".")[1]) in self._edited
        }
        current_parts = {
            name: part for name, part in intermediate_version.parts.items() if name not in outdated
        }
        numbers = [GONE if name is None else position.get(name, GONE) for name in named]
        self._record_class_number_changes(numbers)
        manifest = intermediate_version.manifest.model_copy(update={"classes": new})
        return renumber_classes_of_edited_version(
            replace(intermediate_version, manifest=manifest, parts=current_parts), numbers, folder
        )

    def _record_class_number_changes(self, numbers: list[int]) -> None:
        """Record the map from former to new class numbers, if any number changed."""
        if numbers != list(range(len(numbers))):
            self._class_numbers = numbers

    def _add_unread_feature_parts(
        self, parts: Mapping[str, LocalVersionPartFile]
    ) -> dict[str, LocalVersionPartFile]:
        """Add feature parts that no job reads, since their class numbers must be edited too."""
        facts = self._facts
        unread = [part for name, part in facts.features.items() if name not in parts]
        fetched = fetch_version_parts(self._blobs, facts.start, unread, facts.numbers)
        return {**parts, **{part.name: part for part in fetched.parts}}

    def _list_class_names_after_edit(self) -> list[str]:
        """Return the class names after the edit, in the order in which they first appear in the
        edited tasks."""
        facts = self._facts
        if facts.model.scenario == "data":
            return list(facts.model.classes or [])
        before = dict.fromkeys(
            name for number in facts.taught for name in sorted(facts.tasks[number].classes)
        )
        after = {
            number: self._edited[number].after.classes
            if number in self._edited
            else facts.tasks[number].classes
            for number in facts.taught
        }
        ordered = dict.fromkeys(name for number in facts.taught for name in sorted(after[number]))
        head_classes = list(facts.head.manifest.classes or [])
        if list(before) == head_classes:
            return list(ordered)
        # A line with tasks that were learned in another order keeps its order.
        renamed = dict.fromkeys(
            new
            for name in head_classes
            if (new := facts.changes.classes.get(name, name)) is not None and new in ordered
        )
        return list({**renamed, **ordered})


def _write_process_spec(folder: Path, spec: LearnJobSpec) -> Path:
    path = folder / "spec.json"
    path.write_text(json.dumps(spec.to_json(), ensure_ascii=False))
    return path


def _read_job_result(out: Path) -> LearnJobResult:
    return LearnJobResult.from_json(json.loads((out / "result.json").read_text()))
