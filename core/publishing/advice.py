"""Advice against a slow decline of a lineage: the condition, the one request that helps, and its
cost.

Advice is given once. Versions that descend from the one that gave it are silent while its condition
holds, and so are later versions of the same batch, learned again. Conditions that hold and were
advised on are stored with each version, so that the next one only looks at its parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from core.contract.figures import BaselineClassifierCorrectCounts
from core.database import measurements
from core.database.measurements import ADVICE, ALL_TASKS, MeasurementRow
from core.database.tables import Job, Model, Task, Version, VersionMeasurement, VersionTaskResult
from core.lineage import wording
from core.lineage.accuracy_row import read_accuracy_matrix_row
from core.lineage.coverage import list_taught_tasks
from core.lineage.lineage import read_tasks_by_numbers
from core.packaged import imagenet_base
from core.publishing.confused_pairs import ConfusedPair
from core.recipe.duration_estimate import BASE_SIZE, estimate_seconds_per_image_on_base
from perennial.steps import ApiRequestForAdvice

FAR = Fraction(1, 10)
"""Accuracy below that of a larger base's features from which a change of base is advised."""
SPREADS = 2
"""Standard errors that a difference must exceed, so that it is not by chance."""
LEAST_OF_CLASS = 5
"""Fewest held-out images of a class that can be named as the worst."""
_VERSIONS = 3
_LOOKED_AT = 100
"""Newest other models of the owner among which one on the larger base is searched."""


@dataclass(frozen=True)
class VersionAccuracyOverTasks:
    """Numbers of correct predictions and of images of a version, over all tasks so far."""

    version: int
    right: int
    images: int

    @property
    def accuracy_fraction(self) -> Fraction:
        """Accuracy of the version as a share in [0, 1]."""
        return Fraction(self.right, self.images)

    def format_accuracy_with_version(self) -> str:
        """Format the accuracy with its version: `84 % (version 4)`."""
        return f"{100 * float(self.accuracy_fraction):.0f} % (version {self.version})"


@dataclass(frozen=True)
class ModelOnLargerBase:
    """Another model of the owner that learned the same batches on the larger base for photos.

    Attributes:
        model: its name.
        version: number of its version.
        right: images that its features classify correctly.
        images: images that were classified.
    """

    model: str
    version: int
    right: int
    images: int


@dataclass(frozen=True)
class _AccuracyProblem:
    """A problem with a model's accuracy and advice on it; `key` is the same as long as the problem
    lasts.
    """

    key: str
    text: str


def choose_and_record_accuracy_advice(
    session: Session,
    model: Model,
    version: Version,
    job: Job,
    confused: Sequence[ConfusedPair],
    *,
    says_other: bool,
) -> str | None:
    """Return advice on problems that are new with a measured version, or None; record what was
    advised on.

    Args:
        confused: pairs of confused classes, the worst first.
        says_other: the version has another warning with a remedy already: no advice is added.
    """
    conditions = _find_accuracy_problems(session, model, version, job, confused)
    before = _read_keys_of_given_advice(session, model, version)
    # Recorded while they hold: a condition that ends and returns is advised on again.
    repeated_keys = [one.key for one in conditions if one.key in before]
    fresh = None if says_other else next((one for one in conditions if one.key not in before), None)
    if fresh is not None:
        repeated_keys.append(fresh.key)
    if repeated_keys:
        row = MeasurementRow(ADVICE, ALL_TASKS, None, {"given": repeated_keys})
        measurements.insert_measurement_rows(session, model.id, version.number, [row])
    return None if fresh is None else fresh.text


def is_accuracy_falling(last: Sequence[VersionAccuracyOverTasks]) -> bool:
    """Return True if the accuracy fell twice over the last three versions, and in all by more than
    chance.

    Args:
        last: the newest versions of a lineage, the oldest first.
    """
    if len(last) < _VERSIONS:
        return False
    first, second, third = last[-_VERSIONS:]
    return (
        first.accuracy_fraction > second.accuracy_fraction > third.accuracy_fraction
        and _is_accuracy_difference_beyond_chance(
            (first.right, first.images), (third.right, third.images)
        )
    )


def is_far_below_larger_base(
    own_accuracy: VersionAccuracyOverTasks, larger: ModelOnLargerBase
) -> bool:
    """Return True if a version's accuracy is over 10 points, and more than chance, below that on a
    larger base.
    """
    # Exact, since 0.8 - 0.7 exceeds 0.1 in floating point.
    lead = Fraction(larger.right, larger.images) - own_accuracy.accuracy_fraction
    return lead > FAR and _is_accuracy_difference_beyond_chance(
        (larger.right, larger.images), (own_accuracy.right, own_accuracy.images)
    )


def _is_accuracy_difference_beyond_chance(better: tuple[int, int], worse: tuple[int, int]) -> bool:
    shares = [right / images for right, images in (better, worse)]
    sizes = (better[1], worse[1])
    spread = (
        sum(share * (1 - share) / size for share, size in zip(shares, sizes, strict=True)) ** 0.5
    )
    return bool(shares[0] - shares[1] > SPREADS * spread)


def _find_accuracy_problems(
    session: Session, model: Model, version: Version, job: Job, confused: Sequence[ConfusedPair]
) -> list[_AccuracyProblem]:
    """Return all problems with a version's accuracy, the one whose remedy helps most first."""
    conditions: list[_AccuracyProblem] = []
    tasks = read_tasks_by_numbers(
        session, model, list_taught_tasks(version.manifest), with_reports=False
    )
    last = _read_accuracies_of_last_versions(session, model, version)
    # No move is advised to a base that this machine cannot provide.
    can_move = (
        model.base != imagenet_base.NAME and not imagenet_base.explain_missing_imagenet_base()
    )
    larger = (
        _find_model_of_batches_on_larger_base(session, model, tasks) if last and can_move else None
    )
    if larger is not None and is_far_below_larger_base(last[-1], larger):
        text = (
            f"Version {version.number} gets {last[-1].right:,} of {last[-1].images:,} held-out "
            f"images of all tasks right; a linear discriminant on the features of model "
            f"{larger.model}, which learned the same batches on a larger base, gets "
            f"{larger.right:,} of {larger.images:,}."
        )
        conditions.append(
            _AccuracyProblem(
                f"below:{larger.model}",
                f"{text} {_advise_move_to_larger_base(session, model, tasks)}",
            )
        )
    if is_accuracy_falling(last):
        fell = wording.join_words_with_conjunction(
            [one.format_accuracy_with_version() for one in last[-_VERSIONS:]]
        )
        text = f"Accuracy over all tasks so far has fallen over the last three versions: {fell}."
        help_ = (
            _advise_move_to_larger_base(session, model, tasks)
            if can_move
            else _advise_on_worst_class(session, model, version, job, tasks)
        )
        conditions.append(_AccuracyProblem("falls", f"{text} {help_}"))
    conditions += [
        _build_confused_pair_problem(model, version, job, pair, tasks) for pair in confused
    ]
    return conditions


def _read_keys_of_given_advice(session: Session, model: Model, version: Version) -> set[str]:
    """Return keys of problems already advised on, with the version's parent or earlier versions of
    its batch.
    """
    same = select(Version.number).where(
        Version.model_id == model.id,
        Version.task_number == version.task_number,
        Version.number < version.number,
    )
    query = select(VersionMeasurement.detail).where(
        VersionMeasurement.model_id == model.id,
        VersionMeasurement.name == ADVICE,
        or_(
            VersionMeasurement.version == (version.parent or 0),
            VersionMeasurement.version.in_(same),
        ),
    )
    return {key for detail in session.scalars(query) for key in detail["given"]}


def _read_accuracies_of_last_versions(
    session: Session, model: Model, version: Version
) -> list[VersionAccuracyOverTasks]:
    """Return the accuracies of the last three versions in the model's lineage, the oldest first.

    A version without held-out images ends the search.
    """
    last: list[VersionAccuracyOverTasks] = []
    number: int | None = version.number
    # Version 0 was taught nothing, so 0 ends the walk as None does.
    while number and len(last) < _VERSIONS:
        cells = read_accuracy_matrix_row(session, model.id, number).values()
        images = sum(cell.total for cell in cells)
        if not images:
            break
        last.insert(
            0, VersionAccuracyOverTasks(number, sum(cell.correct for cell in cells), images)
        )
        parent = select(Version.parent).where(
            Version.model_id == model.id, Version.number == number
        )
        number = session.scalar(parent)
    return last


def _find_model_of_batches_on_larger_base(
    session: Session, model: Model, tasks: Sequence[Task]
) -> ModelOnLargerBase | None:
    """Return the owner's newest other model on the larger base that has learned all of these
    batches.
    """
    of_owner = (Model.owner_id == model.owner_id, Model.id != model.id, Model.deleted_at.is_(None))
    query = select(Model.id, Model.name, Model.base, Model.head, Model.scenario).where(*of_owner)
    candidates = {
        id: (name, head)
        for id, name, base, head, scenario in session.execute(
            query.order_by(Model.id.desc()).limit(_LOOKED_AT)
        )
        # Filtered after the limit, so that an owner of thousands of models costs no more.
        if base == imagenet_base.NAME and scenario == model.scenario and head
    }
    batch_digests = {task.sha256 for task in tasks}
    batches = select(Task.model_id, Task.sha256, Task.number).where(
        Task.model_id.in_(candidates), Task.sha256.in_(batch_digests)
    )
    learned: dict[str, dict[int, str]] = {}
    for id, digest, number in session.execute(batches) if candidates else ():
        learned.setdefault(id, {})[number] = digest
    for id in sorted(learned, reverse=True):
        name, head = candidates[id]
        manifest = session.scalar(
            select(Version.manifest).where(Version.model_id == id, Version.number == head)
        )
        row = session.get(VersionMeasurement, (id, head, "baseline_lda", ALL_TASKS))
        if manifest is None or row is None:
            continue
        # A batch that was sent but not learned proves nothing about the features.
        if {learned[id].get(number) for number in list_taught_tasks(manifest)} >= batch_digests:
            right, images = BaselineClassifierCorrectCounts.from_json(row.detail).all
            return ModelOnLargerBase(name, head, right, images)
    return None


def _advise_move_to_larger_base(session: Session, model: Model, tasks: Sequence[Task]) -> str:
    under_way = select(Model.name).where(
        Model.rebased_from == model.id, Model.rebased_at.is_(None), Model.deleted_at.is_(None)
    )
    new = session.scalar(under_way.order_by(Model.id.desc()).limit(1))
    if new is not None:
        path = f"/v1/models/{model.name}/rebase"
        return (
            f"Its move to a larger base has begun with model {new}: compare both with GET {path}, "
            f"and let production move with POST {path}/finish."
        )
    images = sum((task.n_train or 0) + (task.n_held_out or 0) for task in tasks)
    seconds = images * estimate_seconds_per_image_on_base(imagenet_base.NAME, BASE_SIZE).forward_s
    begin = ApiRequestForAdvice(
        "POST", f"/v1/models/{model.name}/rebase", body={"base": imagenet_base.NAME}
    )
    return (
        f"Move the model to the base for photos, whose features tell more classes apart: "
        f"{begin}. A pass over the {images:,} images of its tasks takes about "
        f"{max(1, round(seconds)):,} s of one core there."
    )


def _advise_on_worst_class(
    session: Session, model: Model, version: Version, job: Job, tasks: Sequence[Task]
) -> str:
    """Return advice to send more images of the class with the lowest accuracy."""
    query = select(VersionTaskResult.per_class).where(
        VersionTaskResult.model_id == model.id, VersionTaskResult.version == version.number
    )
    counts: dict[str, list[int]] = {}
    for per_class in session.scalars(query):
        for label, (right, images) in per_class.items():
            before = counts.setdefault(label, [0, 0])
            counts[label] = [before[0] + right, before[1] + images]
    judged_classes = {label: pair for label, pair in counts.items() if pair[1] >= LEAST_OF_CLASS}
    if not judged_classes:
        return f"Send more images of each class: POST /v1/models/{model.name}/tasks."
    worst = min(
        judged_classes,
        # The label decides between equals, so that advice does not depend on the order of rows.
        key=lambda label: (judged_classes[label][0] / judged_classes[label][1], label),
    )
    right, images = judged_classes[worst]
    return (
        f"Of its classes {worst} is worst, with {right} of {images} right. "
        f"{_advise_more_images_of_classes(model, job, tasks, [worst], version.created_at)}"
    )


def _build_confused_pair_problem(
    model: Model, version: Version, job: Job, pair: ConfusedPair, tasks: Sequence[Task]
) -> _AccuracyProblem:
    first, second = pair.labels
    pair_tasks = [task for task in tasks if pair.task in (0, task.number)]
    more = _advise_more_images_of_classes(model, job, pair_tasks, pair.labels, version.created_at)
    text = (
        f"Version {version.number} takes {first} and {second} for each other: it answers "
        f"{pair.confused[0]} of {pair.images[0]} held-out images of {first} with {second}, and "
        f"{pair.confused[1]} of {pair.images[1]} the other way round. {more} If both are one "
        "thing, start a model whose batches give them one label: labels that were learned "
        "cannot be merged."
    )
    return _AccuracyProblem(f"confused:{pair.task}:{first}|{second}", text)


def _advise_more_images_of_classes(
    model: Model, job: Job, tasks: Sequence[Task], labels: Sequence[str], now: float
) -> str:
    """Return advice to send as many further images of some classes as were learned, with the
    expected seconds.
    """
    counts = {label: sum(task.classes.get(label, 0) for task in tasks) for label in labels}
    counted_labels = wording.join_words_with_conjunction(
        [f"{count:,} of {label}" for label, count in counts.items()]
    )
    text = (
        f"Send as many more images as it has learned, {counted_labels}: POST "
        f"/v1/models/{model.name}/tasks."
    )
    last = next((task for task in tasks if task.number == job.task_number), None)
    if last is None or not last.n_train or job.started_at is None:
        return text
    seconds = (now - job.started_at) / last.n_train * sum(counts.values())
    return (
        f"{text} By the seconds of this batch, learning them takes about "
        f"{max(1, round(seconds)):,} s."
    )
