"""Reports of batches after an edit: present class names and counts, and nothing of removed images.

A report names images by their paths, and shows some as small pictures. Entries about a removed
image leave the reports of all tasks of the model, since those of later tasks may refer to it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from core.contract.edit import TaskReportFactsChangedByEdit
from core.contract.reports.data_report import ClassCount, DataReport, Suspect
from core.contract.reports.report import BatchReport
from core.ingest.findings.batch_data import build_class_balance_report

Entry = TypeVar("Entry")
_OF_IMAGES = ("duplicate_paths", "conflicts", "near_conflicts", "rejected", "ignored_files")
"""Lists of a report whose entries name images."""


@dataclass(frozen=True)
class EditChangesForDataReports:
    """Changes of an edit that affect data reports: class names, removed images, edited tasks.

    Attributes:
        classes: former class → new name; None: it is dropped.
        removed_paths: paths of the removed images.
        edited: changes of edited tasks by number.
    """

    classes: Mapping[str, str | None]
    removed_paths: Collection[str] = ()
    edited: Mapping[int, TaskReportFactsChangedByEdit] = field(default_factory=dict)


def build_batch_report_after_edit(
    report: BatchReport, task: int, changes: EditChangesForDataReports
) -> BatchReport:
    """Return a task's data report updated for an edit."""
    edited = cast(
        BatchReport, _remove_report_entries_of_images(dict(report), set(changes.removed_paths))
    )
    if "classes" in edited and changes.classes:
        names = edited["classes"]
        edited["classes"] = {
            "new": _rename_and_drop_classes(names["new"], changes.classes),
            "known": _rename_and_drop_classes(names["known"], changes.classes),
            "look_alike": [
                one
                for one in names["look_alike"]
                if not {one["label"], one["like"]} & changes.classes.keys()
            ],
        }
    if "data" in edited:
        edited["data"] = _build_data_report_after_edit(
            edited["data"], changes, changes.edited.get(task)
        )
        if "suspects" in edited["data"] and "suspects_count" in edited["data"]:
            # The list is bounded, and the count is of all.
            removed_count = len(report["data"]["suspects"]) - len(edited["data"]["suspects"])
            edited["data"]["suspects_count"] -= removed_count
    return edited


def _build_data_report_after_edit(
    data: DataReport,
    changes: EditChangesForDataReports,
    edited: TaskReportFactsChangedByEdit | None,
) -> DataReport:
    updated_report = cast(DataReport, dict(data))
    classes = changes.classes
    if edited is not None and "balance" in updated_report:
        updated_report |= build_class_balance_report(
            _recount_report_images_by_class(updated_report["balance"], edited, classes)
        )
    if "suspects" in updated_report:
        suspects = [
            _adjust_suspect_entry_to_edit(one, classes, edited)
            for one in updated_report["suspects"]
        ]
        updated_report["suspects"] = [one for one in suspects if one is not None]
    if "would_say" in updated_report:
        updated_report["would_say"] = _rename_or_drop_report_entries(
            updated_report["would_say"], classes
        )
    if "mislabelled" in updated_report:
        updated_report["mislabelled"] = _rename_or_drop_report_entries(
            updated_report["mislabelled"], classes
        )
    return updated_report


def _recount_report_images_by_class(
    balance: Mapping[str, ClassCount],
    edited: TaskReportFactsChangedByEdit,
    classes: Mapping[str, str | None],
) -> dict[str, ClassCount]:
    """Update the numbers of training and held-out images of each class after an edit.

    If the edit did not count held-out images, they are the sums over the former classes; None if
    those are unknown.
    """
    summed: dict[str, int] = {}
    for name, count in balance.items():
        new = classes.get(name, name)
        if new is not None:
            summed[new] = summed.get(new, 0) + (count["held_out"] or 0)
    is_known = all(count["held_out"] is not None for count in balance.values())
    held_out = edited.held_out if edited.held_out is not None else summed if is_known else None
    return {
        name: {
            "images": count,
            "held_out": None if held_out is None else held_out.get(name, 0),
        }
        for name, count in sorted(edited.classes.items())
    }


def _adjust_suspect_entry_to_edit(
    suspect: Suspect, classes: Mapping[str, str | None], edited: TaskReportFactsChangedByEdit | None
) -> Suspect | None:
    """Update a report's entry about a suspected wrong label after an edit; None if it no longer
    applies.
    """
    label = classes.get(suspect["label"], suspect["label"])
    suggested = classes.get(suspect["suggested"], suspect["suggested"])
    index = suspect["index"]
    if edited is not None and edited.touched is not None:
        if index in edited.touched:
            return None
        index -= sum(row < index for row in edited.removed)
    # Merged classes are told apart no longer.
    if label is None or suggested is None or label == suggested:
        return None
    return {**suspect, "index": index, "label": label, "suggested": suggested}


def _rename_or_drop_report_entries(
    entries: Sequence[Entry], classes: Mapping[str, str | None]
) -> list[Entry]:
    """Rename the true and predicted classes in report entries; entries of dropped or merged classes
    go.
    """
    renamed: list[Entry] = []
    for entry in entries:
        values = cast(dict[str, Any], entry)
        label, predicted_label = (
            classes.get(values[name], values[name]) for name in ("label", "said")
        )
        if label is not None and predicted_label is not None and label != predicted_label:
            renamed.append(cast(Entry, {**values, "label": label, "said": predicted_label}))
    return renamed


def _rename_and_drop_classes(names: Sequence[str], classes: Mapping[str, str | None]) -> list[str]:
    new = dict.fromkeys(classes.get(name, name) for name in names)
    return [name for name in new if name is not None]


def _remove_report_entries_of_images(report: dict[str, Any], paths: set[str]) -> dict[str, Any]:
    """Return a data report without entries that name one of these image paths."""
    if not paths:
        return report

    # Some findings list paths in `paths`, others name an image in a field of their own, so all
    # texts of an entry are compared.
    def remove_entries_of_images(entries: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [
            one
            for one in entries
            if not paths & {*one.get("paths", ()), *(v for v in one.values() if isinstance(v, str))}
        ]

    edited = {
        **report,
        **{name: remove_entries_of_images(report[name]) for name in _OF_IMAGES if name in report},
    }
    data = report.get("data")
    if data is not None:
        edited["data"] = dict(data)
        if "suspects" in data:
            edited["data"]["suspects"] = remove_entries_of_images(data["suspects"])
        near = data.get("near_duplicates")
        if near is not None:
            edited["data"]["near_duplicates"] = {
                **near,
                "within": {
                    **near["within"],
                    "examples": remove_entries_of_images(near["within"]["examples"]),
                },
                "held_out": {
                    **near["held_out"],
                    "examples": remove_entries_of_images(near["held_out"]["examples"]),
                },
                "earlier": [
                    {**one, "examples": remove_entries_of_images(one["examples"])}
                    for one in near["earlier"]
                ],
            }
    return edited
