"""The report of a batch at submission, when only names and sizes have been examined.

Classes are new, known or suspected typing errors in comparison with the classes that the model has.
In the class scenario these are the classes of all tasks that are learned or will be; in the data
scenario, the fixed list once the model has one. In the task scenario every task has its own names,
so a batch is compared only with itself. A batch that is accepted at the same moment is not
considered.
"""

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from core.contract.reports.data_report import ClassCount
from core.contract.reports.report import (
    BatchReport,
    ClassNames,
    ConflictsPolicy,
    DuplicatesPolicy,
    LookAlike,
)
from core.database.session import Database
from core.database.states import JobState
from core.database.tables import Job, Model, Task
from core.errors import LabelsInvalid
from core.ingest.findings.batch_data import build_class_balance_report
from core.ingest.first_report import NAMES_AND_SIZES, build_batch_report_before_decoding
from core.ingest.inspect import ArchiveSummary
from core.ingest.names import quote_name
from core.lineage import wording
from core.requests.actor import Actor, find_model
from core.tasks.class_names import ComparedClassNames, compare_class_names

CHECKED = NAMES_AND_SIZES
_MOST_WARNINGS = 20
FEW = 10
"""Number of images of a new class below which a check states the recall to expect."""
RECALL = {6: 0.39, 12: 0.57, 25: 0.69}
"""Recall of a class by the number of its training images, measured on photos by `python -m
bench.research.closed_forms`.
"""
_MOST_LISTED = 20
_NOT_LEARNED = sorted((JobState.REJECTED, JobState.CANCELLED, JobState.FAILED))


def require_batch_classes_known_to_model(model: Model, directory: ArchiveSummary) -> None:
    """Check that a model with fixed classes knows all classes of a batch (data scenario).

    Raises:
        LabelsInvalid: the batch has an unknown class.
    """
    if model.scenario != "data" or model.classes is None:
        return
    unknown = sorted(set(directory.classes) - set(model.classes))
    if not unknown:
        return
    similar_names = dict(compare_class_names(unknown, model.classes).look_alike)
    listed = [
        _append_similar_name(name, similar_names, model.classes) for name in unknown[:_MOST_LISTED]
    ]
    more = f" and {len(unknown) - _MOST_LISTED} more" if len(unknown) > _MOST_LISTED else ""
    raise LabelsInvalid(
        f"This model knows a fixed list of classes; the batch also has {', '.join(listed)}{more}.",
        # Cut, since a batch may name many thousands of classes.
        extra={"unknown": unknown[:1000], "classes": model.classes},
    )


def list_known_classes(session: Session, model: Model) -> set[str]:
    """Return the class names that a model knows, to compare a new batch with them."""
    if model.scenario == "task":
        return set()
    if model.scenario == "data" and model.classes is not None:
        return set(model.classes)
    # A batch that was rejected, cancelled or failed taught the model no class.
    learned = exists().where(Job.task_id == Task.id, Job.state.not_in(_NOT_LEARNED))
    class_names: set[str] = set()
    for classes in session.scalars(select(Task.classes).where(Task.model_id == model.id, learned)):
        class_names.update(classes)
    return class_names


def read_known_classes(db: Database, actor: Actor, model: str) -> set[str]:
    """Read from the database the class names that a model knows, to compare a new batch with them.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        return list_known_classes(session, find_model(session, actor, model))


def build_task_report_before_decoding(
    directory: ArchiveSummary,
    compared: ComparedClassNames,
    policy: DuplicatesPolicy,
    conflicts: ConflictsPolicy,
) -> BatchReport:
    """Return the report of a task before its images are decoded.

    `classes` and both policies remain in the report for good.
    """
    look_alikes: list[LookAlike] = [
        {"label": label, "like": similar} for label, similar in compared.look_alike
    ]
    classes: ClassNames = {
        "new": compared.new,
        "known": compared.existing,
        "look_alike": look_alikes,
    }
    sizes: dict[str, ClassCount] = {
        label: {"images": count, "held_out": None} for label, count in directory.classes.items()
    }
    return {
        "classes": classes,
        "data": build_class_balance_report(sizes),
        "reading": directory.reading,
        **build_batch_report_before_decoding(
            directory.ignored,
            directory.ignored_files,
            directory.notes,
            policy,
            directory.bad_entries,
            directory.bad_entries_count,
        ),
        "conflicts_policy": conflicts,
        "rejected": list(directory.first_look.first),
        "rejected_count": directory.first_look.unreadable,
    }


def list_layout_and_class_name_warnings(
    directory: ArchiveSummary, compared: ComparedClassNames, model: str, scenario: str
) -> list[str]:
    """Return warnings about a batch's similar class names and its layout.

    Args:
        model, scenario: name and scenario of the model.
    """
    batch = set(compared.new)

    def describe_merge_of_similar_classes(label: str, similar: str) -> str:
        # Only models of this scenario can be edited so.
        return (
            wording.describe_class_merge_request(model, label, similar)
            if scenario == "class"
            else ""
        )

    sentences = [
        f"The class {quote_name(label)} is new, and looks like {quote_name(similar)}, which "
        + ("is in this batch too: " if similar in batch else "the model knows: ")
        + f"if they are one class, give them one name.{describe_merge_of_similar_classes(label, similar)}"
        for label, similar in compared.look_alike[:_MOST_WARNINGS]
    ]
    more = len(compared.look_alike) - len(sentences)
    if more > 0:
        sentences.append(f"{more} more new classes look like others: the report names them all.")
    return [*directory.warnings, *sentences]


def list_warnings_of_single_class_model(
    session: Session, model: Model, directory: ArchiveSummary
) -> list[str]:
    """Return a warning if the model would know only one class after the batch.

    Its version is published but not promoted.
    """
    # `list_known_classes` is empty in the task scenario, although earlier tasks have classes.
    if len(directory.classes) != 1 or (model.scenario == "task" and model.next_task > 1):
        return []
    (label,) = directory.classes
    if list_known_classes(session, model) - {label}:
        return []
    return [
        f"The batch has one class, {quote_name(label)}, and the model knows no other. Its version calls "
        "every image by it, so it is published and not put in production. Send another class with "
        "it, or in the next batch."
    ]


def list_few_images_of_new_class_warnings(
    directory: ArchiveSummary, compared: ComparedClassNames
) -> list[str]:
    """Return a warning about new classes with few images, with the recall measured for so few."""
    few = {
        label: directory.classes[label] for label in compared.new if directory.classes[label] < FEW
    }
    if not few:
        return []
    listed = [
        f"{quote_name(label)} ({count})"
        for label, count in sorted(few.items(), key=lambda one: one[1])
    ]
    more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    measured = ", ".join(f"{share:.0%} with {images}" for images, share in RECALL.items())
    return [
        f"New classes with fewer than {FEW} images: {', '.join(listed[:_MOST_LISTED])}{more}. Of "
        f"photos of one such class beside nine others the default of a new model recognised "
        f"{measured} images to "
        "learn from. Send more of them."
    ]


def describe_unmade_batch_checks(directory: ArchiveSummary) -> list[str]:
    """Return a sentence for each check of the batch that was not made.

    Such checks need more than the names and sizes of the files.
    """
    decoding = "Images were not decoded: damaged files are found by the job."
    if directory.first_look.is_partly_checked:
        decoding = (
            f"Images were not decoded, and the kinds of {directory.first_look.looked:,} of "
            f"{directory.first_look.images:,} looked at: "
            "damaged files, and others that cannot be read, are found by the job."
        )
    return [
        *([decoding] if directory.encoded else []),
        "Images were not compared: duplicates, the same image under two classes, and test images "
        "that are in the training part too are found by the job.",
        "Nothing was learned: what the version can do, and whether it passes its gate, is measured "
        "by the job.",
    ]


def _append_similar_name(name: str, similar_names: dict[str, str], known_names: list[str]) -> str:
    """Return a class name, with the similar known name as a suggestion if there is one."""
    return (
        f"{name} (did you mean {similar_names[name]}?)"
        if similar_names.get(name) in known_names
        else name
    )
