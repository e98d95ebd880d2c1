"""What a batch's report says at the submit, when only names and sizes were looked at.

Which classes are new, known, or look like a slip of the pen is decided by the classes that the model has: in the
class scenario those of all its tasks that are learned or will be; in the data scenario its fixed list, once it has
one. In the task scenario every task has names of its own, so that a batch is only compared with itself. A batch that
is accepted at the same moment is not seen.
"""

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from core.db.states import State
from core.db.tables import Job, Model, Task
from core.errors import LabelsInvalid
from core.ingest.batch_data import balance
from core.ingest.first_report import NAMES_AND_SIZES, first_report
from core.ingest.inspect import Directory
from core.ingest.names import show
from core.protocol.data_report import ClassCount
from core.protocol.report import BatchReport, ClassNames, ConflictsPolicy, DuplicatesPolicy, LookAlike
from core.requests.class_names import Compared, compare

CHECKED = NAMES_AND_SIZES
_MOST_WARNINGS = 20
FEW = 10
"""Images of a new class below which a check says what recall to expect."""
RECALL = {6: 0.39, 12: 0.57, 25: 0.69}
"""Images to learn from → recall of their class, as `python -m bench.research.closed_forms` measures it on photos."""
_MOST_LISTED = 20
_NOT_LEARNED = sorted((State.REJECTED, State.CANCELLED, State.FAILED))


def check_classes(model: Model, found: Directory) -> None:
    """Raise LabelsInvalid for a class that the model does not know (data scenario, once its classes are fixed)."""
    if model.scenario != "data" or model.classes is None:
        return
    unknown = sorted(set(found.classes) - set(model.classes))
    if not unknown:
        return
    like = dict(compare(unknown, model.classes).look_alike)
    listed = [_with_hint(name, like, model.classes) for name in unknown[:_MOST_LISTED]]
    more = f" and {len(unknown) - _MOST_LISTED} more" if len(unknown) > _MOST_LISTED else ""
    raise LabelsInvalid(
        f"This model knows a fixed list of classes; the batch also has {', '.join(listed)}{more}.",
        extra={"unknown": unknown[:1000], "classes": model.classes},
    )


def known_classes(session: Session, model: Model) -> set[str]:
    """The class names that a new batch is compared with."""
    if model.scenario == "task":
        return set()
    if model.scenario == "data" and model.classes is not None:
        return set(model.classes)
    learned = exists().where(Job.task_id == Task.id, Job.state.not_in(_NOT_LEARNED))
    known: set[str] = set()
    for classes in session.scalars(select(Task.classes).where(Task.model_id == model.id, learned)):
        known.update(classes)
    return known


def report(
    found: Directory, compared: Compared, policy: DuplicatesPolicy, conflicts: ConflictsPolicy
) -> BatchReport:
    """The report of a task until its images were decoded; `classes` and both policies stay in it for good."""
    like: list[LookAlike] = [{"label": label, "like": other} for label, other in compared.look_alike]
    classes: ClassNames = {"new": compared.new, "known": compared.known, "look_alike": like}
    sizes: dict[str, ClassCount] = {
        label: {"images": count, "held_out": None} for label, count in found.classes.items()
    }
    return {
        "classes": classes,
        "data": balance(sizes),
        "reading": found.reading,
        **first_report(
            found.ignored,
            found.ignored_files,
            found.notes,
            policy,
            found.bad_entries,
            found.bad_entries_count,
        ),
        "conflicts_policy": conflicts,
        "rejected": list(found.seen.first),
        "rejected_count": found.seen.unreadable,
    }


def warnings(found: Directory, compared: Compared) -> list[str]:
    """Sentences about names that look alike, and about the layout."""
    batch = set(compared.new)
    said = [
        f"The class {show(label)} is new, and looks like {show(other)}, which "
        + ("is in this batch too: " if other in batch else "the model knows: ")
        + "if they are one class, give them one name."
        for label, other in compared.look_alike[:_MOST_WARNINGS]
    ]
    more = len(compared.look_alike) - len(said)
    if more > 0:
        said.append(f"{more} more new classes look like others: the report names them all.")
    return [*found.warnings, *said]


def one_class(session: Session, model: Model, found: Directory) -> list[str]:
    """Warn of a batch after which the model knows one class: its version is published and not promoted."""
    if len(found.classes) != 1 or (model.scenario == "task" and model.next_task > 1):
        return []
    (label,) = found.classes
    if known_classes(session, model) - {label}:
        return []
    return [
        f"The batch has one class, {show(label)}, and the model knows no other. Its version calls every image by it, "
        "so it is published and not put in production. Send another class with it, or in the next batch."
    ]


def warn_of_few(found: Directory, compared: Compared) -> list[str]:
    """Warn of new classes with few images, and say how many of their photos are recognised."""
    few = {label: found.classes[label] for label in compared.new if found.classes[label] < FEW}
    if not few:
        return []
    listed = [f"{show(label)} ({count})" for label, count in sorted(few.items(), key=lambda one: one[1])]
    more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    measured = ", ".join(f"{share:.0%} with {images}" for images, share in RECALL.items())
    return [
        f"New classes with fewer than {FEW} images: {', '.join(listed[:_MOST_LISTED])}{more}. Of photos of one such "
        f"class beside nine others the default of a new model recognised {measured} images to learn from. Send more "
        "of them."
    ]


def not_checked(found: Directory) -> list[str]:
    """What the names and sizes of a batch do not show, one sentence each."""
    decoding = "Images were not decoded: damaged files are found by the job."
    if found.seen.is_sample:
        decoding = (
            f"Images were not decoded, and the kinds of {found.seen.looked:,} of {found.seen.images:,} looked at: "
            "damaged files, and others that cannot be read, are found by the job."
        )
    return [
        *([decoding] if found.encoded else []),
        "Images were not compared: duplicates, the same image under two classes, and test images that are in the "
        "training part too are found by the job.",
        "Nothing was learned: what the version can do, and whether it passes its gate, is measured by the job.",
    ]


def _with_hint(name: str, like: dict[str, str], known: list[str]) -> str:
    return f"{name} (did you mean {like[name]}?)" if like.get(name) in known else name
