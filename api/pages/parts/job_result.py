"""The result of a job, for its page: accuracies, the gate's comparison, and labels to look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.pages.parts.gate_checks import describe_gate_comparison_with_production
from core.contract.responses.job import JobOut
from core.contract.responses.task import TaskOut
from core.database.session import Database
from core.errors import PerennialError
from core.requests.actor import Actor
from core.tasks import task_images, tasks
from core.versions import metrics, versions
from core.versions.metrics import MatrixWindow

TASKS = 12
"""Maximum number of tasks whose accuracy is shown; the page of the model has all."""
SUSPECTS = 6
"""Maximum number of images with a suspicious label; the page of the task shows more."""


_NO_FINDINGS: Mapping[str, Any] = {"suspects": []}


@dataclass(frozen=True)
class TaskAccuracy:
    """Accuracy of a version on a task, in [0, 1], and the held-out images that it rests on."""

    task: int
    accuracy: float
    images: int


@dataclass(frozen=True)
class JobResultView:
    """The task, version and accuracies that a job produced, for the job's page.

    Attributes:
        accuracies: of its version, on tasks that it was taught; the newest `TASKS`.
        compared: sentences about the comparison with the version in production.
        task: the batch; None: the job learned none, or it was deleted.
        data: findings of the batch's data report.
        pictures: True while its training images are kept, so that they can be shown.
    """

    accuracies: list[TaskAccuracy] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    task: TaskOut | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    pictures: bool = False


def load_job_result_view(db: Database, actor: Actor, job: JobOut) -> JobResultView:
    """Return the task, version and accuracies that a job has produced so far, for its page."""
    task = _find_learned_task_of_job(db, actor, job)
    data = {**_NO_FINDINGS, **({} if task is None else task["report"].get("data", {}))}
    pictures = bool(data["suspects"]) and _has_training_images(db, actor, job)
    if job["version"] is None:
        return JobResultView(task=task, data=data, pictures=pictures)
    version = versions.get_version(db, actor, job["model"], str(job["version"]))
    return JobResultView(
        _read_task_accuracies(db, actor, job["model"], version["number"], version["tasks"]),
        describe_gate_comparison_with_production(version["gate"]),
        task,
        data,
        pictures,
    )


def _find_learned_task_of_job(db: Database, actor: Actor, job: JobOut) -> TaskOut | None:
    if job["task"] is None or job["kind"] != "learn":
        return None
    try:
        return tasks.read_task(db, actor, job["model"], job["task"])
    except PerennialError:  # a person has deleted it
        return None


def _has_training_images(db: Database, actor: Actor, job: JobOut) -> bool:
    try:
        task_images.find_task_split_dataset(db, actor, job["model"], job["task"] or 0, "train")
    except PerennialError:
        return False
    return True


def _read_task_accuracies(
    db: Database, actor: Actor, model: str, version: int, taught: list[int]
) -> list[TaskAccuracy]:
    row = metrics.read_model_accuracy_metrics(
        db, actor, model, version=str(version), window=MatrixWindow((version, version))
    )
    cells = row["accuracy_matrix"][0] if row["accuracy_matrix"] else []
    measured = [
        TaskAccuracy(column["task"], accuracy, column["n"])
        for column, accuracy in zip(row["columns"], cells, strict=False)
        if accuracy is not None and column["task"] in taught
    ]
    return measured[-TASKS:]
