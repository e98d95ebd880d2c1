"""Checks of an edit's operations, all together, and what they change in each task.

Nothing here reads the database. Labels in `relabel` are the names after the edit; names in
`rename`, `merge` and `drop` are those before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.contract.responses.task_image import Split
from core.edits.operations import MergeClasses, Operation, Relabel, Remove
from core.errors import Invalid, NotFound, WrongState

ImageEdits = dict[int, str | None]
"""Row of a part → its new label; None: the image is removed."""


@dataclass(frozen=True)
class TaskForEditCheck:
    """A task of a model with its classes, image counts and standing, as edit checks need it.

    Attributes:
        classes: labels of its images.
        sizes: images by part.
        standing: see `core.lineage.standing`; only a learned task can be edited.
        is_deleted: True if its data was deleted on request.
    """

    number: int
    classes: frozenset[str]
    sizes: Mapping[Split, int]
    standing: str
    is_deleted: bool = False

    def copy_as_learned_task(self) -> "TaskForEditCheck":
        """Return a copy of the task with the standing set to `learned`."""
        return replace(self, standing="learned")


@dataclass(frozen=True)
class EditChanges:
    """Label, image and class changes that the operations of an edit make together.

    Attributes:
        classes: former class → its new name; None: it is dropped.
        images: by task and part.
        dropped: tasks whose images are all removed.
    """

    classes: dict[str, str | None] = field(default_factory=dict)
    images: dict[tuple[int, Split], ImageEdits] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()

    def list_changed_tasks(self, tasks: Mapping[int, TaskForEditCheck]) -> list[int]:
        """Return the numbers of the tasks whose data the edit changes, in the order of `tasks`."""
        edited = {number for number, _ in self.images} | self.dropped
        return [
            number
            for number, task in tasks.items()
            if number in edited or task.classes & self.classes.keys()
        ]

    def is_only_renaming_classes(self, model_classes: Sequence[str]) -> bool:
        """Return True if an edit renames classes and changes nothing else.

        Args:
            model_classes: classes of the model.
        """
        names = [self.classes.get(name, name) for name in model_classes]
        return self.changes_only_classes and None not in names and len(set(names)) == len(names)

    @property
    def changes_only_classes(self) -> bool:
        """Return True if the edit changes only whole classes, and no single image or task."""
        return not (self.images or self.dropped)

    def list_class_renames_without_merges(self, model_classes: Sequence[str]) -> dict[str, str]:
        """Return former name → new name of the classes that the edit renames without merging
        them.
        """
        sources = self.list_class_sources(model_classes)
        return {
            name: new
            for name, new in self.classes.items()
            if new is not None and len(sources.get(new, [])) == 1
        }

    def drop_tasks_left_without_classes(
        self, tasks: Mapping[int, TaskForEditCheck]
    ) -> "EditChanges":
        """Return the edit's changes with tasks that would have no class left marked as dropped."""
        empty = {
            number
            for number, task in tasks.items()
            if task.classes and all(self.classes.get(name, name) is None for name in task.classes)
        }
        return replace(self, dropped=self.dropped | empty)

    def leaves_task_without_images(self, task: TaskForEditCheck) -> bool:
        """Return True if the edit leaves a task without training images, as far as its counts
        tell.
        """
        trained = task.sizes.get("train", 0)
        if task.number in self.dropped or not trained:  # it has none to lose
            return False
        images = self.images.get((task.number, "train"), {})
        removed = sum(label is None for label in images.values())
        has_no_class = all(self.classes.get(name, name) is None for name in task.classes)
        return removed == trained or (
            bool(task.classes) and has_no_class and len(images) == removed
        )

    def list_class_sources(self, model_classes: Sequence[str]) -> dict[str, list[int]]:
        """Map each class after the edit to the numbers of the former classes it is made of.

        They are in the order of their first source.
        """
        sources: dict[str, list[int]] = {}
        for number, name in enumerate(model_classes):
            new = self.classes.get(name, name)
            if new is not None:
                sources.setdefault(new, []).append(number)
        return sources

    @property
    def removes_images(self) -> bool:
        """Return True if the edit removes any image, by itself or with its class."""
        removed = any(label is None for edits in self.images.values() for label in edits.values())
        return removed or bool(self.dropped) or None in self.classes.values()


def make_emptied_task_error(number: int) -> Invalid:
    """Build the error for an edit that would leave a task without training images."""
    return Invalid(
        f"Task {number} would have no training image left. Remove the whole task instead: "
        f'{{"remove": {{"task": {number}}}}}.',
        extra={"task": number},
    )


def check_and_combine_operations(
    operations: Sequence[Operation],
    scenario: str,
    tasks: Mapping[int, TaskForEditCheck],
    model_classes: Sequence[str],
) -> EditChanges:
    """Check the operations of an edit request, and combine them into one set of changes.

    Args:
        scenario: of the model: class or data.
        tasks: all tasks of the model by number, in the order in which they were taught.
        model_classes: classes of the model, in the order of its outputs.

    Raises:
        Invalid: operations that contradict each other or that this model cannot take.
        NotFound: an image or a class that the model does not have.
        WrongState: a task that the newest version was not taught.
    """
    if scenario == "task":
        raise Invalid(
            "A model of the scenario `task` has one head for each task, and cannot be edited. "
            "Correct the batch and send it again: it becomes a task with a head of its own, which "
            "predictions name by ?task=."
        )
    classes = _check_and_map_class_operations(operations, scenario, model_classes)
    images: dict[tuple[int, Split], ImageEdits] = {}
    dropped: set[int] = set()
    for operation_index, operation in enumerate(operations):
        change = operation.relabel or operation.remove
        if change is None:
            continue
        task = _require_editable_task(change, tasks)
        if change.image is None:
            dropped.add(task.number)
        else:
            _add_edit_operation_on_image(images, operation_index, change, task)
    if twice := dropped & {number for number, _ in images}:
        raise _make_operation_error(
            f"All images of task {min(twice)} are removed; keep that operation alone."
        )
    if scenario == "data":
        _refuse_unknown_labels(images, model_classes)
    # All operations apply to the names before the edit, so a chain of renames would depend on
    # their order.
    for name, target in classes.items():
        if target is not None and target in classes and target != name:
            raise _make_operation_error(
                f"The class {target!r} is the new name of {name!r} and is changed itself in the "
                f"same edit. Send two edits, one after the other."
            )
    return EditChanges(classes, images, frozenset(dropped))


def _check_and_map_class_operations(
    operations: Sequence[Operation], scenario: str, model_classes: Sequence[str]
) -> dict[str, str | None]:
    """Map each class that an edit renames, merges or drops to its new name; None for a dropped
    class.
    """
    changed: dict[str, str | None] = {}

    def record_class_change(index: int, name: str, to: str | None) -> None:
        if scenario == "data":
            raise _make_operation_error(
                "The classes of a model of the scenario `data` are fixed: only images can be "
                "relabelled or removed."
            )
        if name not in model_classes:
            raise NotFound(
                f"The model has no class {name!r}.{_format_first_few_class_names(model_classes)}"
            )
        if name in changed:
            raise _make_operation_error(
                f"Two operations change the class {name!r}; keep one.", index
            )
        changed[name] = to

    for operation_index, operation in enumerate(operations):
        if operation.rename is not None:
            source, to = operation.rename.from_, operation.rename.to
            if source == to:
                raise _make_operation_error(
                    f"The class {source!r} has this name already.", operation_index
                )
            if to in model_classes:
                raise _make_operation_error(
                    f"There is a class {to!r} already. To make one class of both, send "
                    f'{{"merge": {{"from": ["{source}"], "into": "{to}"}}}}.',
                    operation_index,
                )
            if to in changed.values():
                raise _make_operation_error(
                    f"Two classes would be called {to!r}; merge them instead.", operation_index
                )
            record_class_change(operation_index, source, to)
        elif operation.merge is not None:
            for name in _list_classes_merged_into_target(operation.merge, operation_index):
                record_class_change(operation_index, name, operation.merge.into)
        elif operation.drop is not None:
            record_class_change(operation_index, operation.drop.class_, None)
    # Checked at the end: each drop alone may be fine, and only all of them together are not.
    remaining = {changed.get(name, name) for name in model_classes} - {None}
    if model_classes and not remaining:
        raise _make_operation_error(
            "A model needs at least one class; these operations drop all of them."
        )
    return changed


def _list_classes_merged_into_target(merge: MergeClasses, operation_index: int) -> list[str]:
    names = list(dict.fromkeys(merge.from_))
    if len(names) != len(merge.from_):
        raise _make_operation_error("A merge names a class twice.", operation_index)
    source_classes = [name for name in names if name != merge.into]
    if not source_classes:
        raise _make_operation_error(
            f"The class {merge.into!r} cannot be merged into itself.", operation_index
        )
    return source_classes


def _require_editable_task(
    change: Relabel | Remove, tasks: Mapping[int, TaskForEditCheck]
) -> TaskForEditCheck:
    assert change.task is not None, "patterns are resolved before"
    task = tasks.get(change.task)
    if task is None:
        raise NotFound(f"The model has no task {change.task}.")
    if task.is_deleted:
        raise NotFound(f"The data of task {change.task} was deleted.")
    if task.standing != "learned":
        raise WrongState(
            f"Task {change.task} is {task.standing.replace('_', ' ')}, and the newest version was "
            f"not taught it. Only learned tasks can be edited.",
            extra={"standing": task.standing},
        )
    return task


def _add_edit_operation_on_image(
    images: dict[tuple[int, Split], ImageEdits],
    operation_index: int,
    change: Relabel | Remove,
    task: TaskForEditCheck,
) -> None:
    assert change.image is not None, "whole tasks are dropped"
    size = task.sizes.get(change.part, 0)
    if change.image >= size:
        count = f"{size} images, from 0 on" if size else "no images"
        raise NotFound(
            f"The {change.part.replace('_', '-')} part of task {task.number} has {count}: "
            f"{change.image} is none of them."
        )
    edits = images.setdefault((task.number, change.part), {})
    if change.image in edits:
        raise _make_operation_error(
            f"Two operations change image {change.image} of task {task.number}; keep one.",
            operation_index,
        )
    edits[change.image] = change.label if isinstance(change, Relabel) else None


def _refuse_unknown_labels(
    images: Mapping[tuple[int, Split], ImageEdits], model_classes: Sequence[str]
) -> None:
    for edits in images.values():
        for label in edits.values():
            if label is not None and label not in model_classes:
                raise _make_operation_error(
                    f"The model has no class {label!r}, and its classes are fixed."
                    f"{_format_first_few_class_names(model_classes)}"
                )


def _make_operation_error(text: str, operation_index: int | None = None) -> Invalid:
    fields = (
        []
        if operation_index is None
        else [{"field": f"operations.{operation_index}", "message": text}]
    )
    return Invalid(text, fields=fields)


def _format_first_few_class_names(model_classes: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in model_classes[:10])
    return f" Its classes: {shown}{' …' if len(model_classes) > 10 else ''}."
