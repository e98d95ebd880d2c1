"""A model as a new batch finds it, and the plan of the batch in it."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlalchemy import inspect as sql_inspect
from sqlalchemy.orm import Session

from core.admission.applicability import HeadVersionAndLastOpenJob, build_last_open_job_query
from core.contract.reports.report import Repeats
from core.database.tables import Job, Model, Task, Version
from core.lineage.batch_outlook import build_passed_over_or_blocking_task_condition
from core.recipe.resolve import ResolvedRecipe
from core.requests.actor import Actor, read_query_row_for_model
from core.tasks import repeated_batches
from core.tasks.class_names import ComparedClassNames
from core.trials.plan import PlannedTrial


@dataclass(frozen=True)
class BatchRecipePlan:
    """The recipe with which a batch would be learned in its model, with warnings.

    `missing` has a sentence for each task that its version lacks. `trials` has the candidates for
    the recipe, of which `resolved_recipe` is the first.
    """

    resolved_recipe: ResolvedRecipe
    missing: list[str]
    trials: list[PlannedTrial] = field(default_factory=list)


@dataclass(frozen=True)
class BatchPlanForModel:
    """Plan for a batch in its model as that is now: recipe, class names and equal tasks.

    Attributes:
        row: columns of the model from which the plan was made.
        plan: recipe and warnings.
        names: class names compared with the known ones.
        expected_s: expected seconds of the job; None if unknown.
        same: tasks with the same content.
        repeats: task that would be the response; None if the batch would be learned.
    """

    row: dict[str, Any]
    plan: BatchRecipePlan
    names: ComparedClassNames
    expected_s: float | None
    same: list[repeated_batches.TaskWithEqualContent]
    repeats: Repeats | None

    @property
    def resolved_recipe(self) -> ResolvedRecipe:
        """The complete recipe for the batch, with its warnings."""
        return self.plan.resolved_recipe

    @property
    def owner_id(self) -> str:
        """Id of the owner of the batch's model."""
        return str(self.row["owner_id"])

    @property
    def model_id(self) -> str:
        """Id of the batch's model; its name may belong to another model by now."""
        return str(self.row["id"])


@dataclass(frozen=True)
class ModelHistoryForBatch:
    """A model with its latest version, last open job and earlier tasks, as planning a batch needs
    them.

    Attributes:
        before: rows that decide what the batch's task starts from.
        learned: number of training images in earlier batches.
        held_out: number of held-out images in earlier batches.
        same: tasks with the same content as the batch.
        tasks: tasks that the outlook is built from, and those with the same content.
    """

    model: Model
    before: HeadVersionAndLastOpenJob
    learned: int
    held_out: int
    same: list[repeated_batches.TaskWithEqualContent]
    tasks: list[Task]


def read_model_history_for_batch(
    session: Session, actor: Actor, model: str, batch_identity: repeated_batches.BatchIdentity
) -> ModelHistoryForBatch:
    """Read a model with its latest version, last open job, and the tasks that matter for a new
    batch.

    Every submission calls this, so it sends only two statements.

    Args:
        model: id or name.

    Raises:
        NotFound, NameAmbiguous: see `core.requests.actor.find_model`.
    """
    head = and_(Version.model_id == Model.id, Version.number == Model.head)
    last_job = Job.id == build_last_open_job_query(Model.id).scalar_subquery()
    query = select(Model, Version, Job).outerjoin(Version, head).outerjoin(Job, last_job)
    row, version, job = read_query_row_for_model(session, actor, model, query)
    # As `core.lineage.lineage.find_version_next_task_starts_from`: without its base, a model has no version yet.
    before = HeadVersionAndLastOpenJob(None if row.base_job is not None else version, job)
    mine = Task.model_id == row.id
    sums = select(func.sum(Task.n_train), func.sum(Task.n_held_out)).where(mine).subquery()
    is_same = repeated_batches.build_same_content_task_condition(row, batch_identity)
    # An outer join, since the sums are needed even if no task matters.
    matters = and_(mine, or_(is_same, build_passed_over_or_blocking_task_condition()))
    rows = session.execute(
        select(*sums.c, Task, is_same).select_from(sums.outerjoin(Task, matters))
    ).all()
    tasks = [task for *_, task, _ in rows if task is not None]
    candidates = [task for *_, task, matches in rows if task is not None and matches]
    same = repeated_batches.filter_and_rank_equal_tasks(session, row, batch_identity, candidates)
    # PostgreSQL returns a sum as a Decimal.
    return ModelHistoryForBatch(
        row, before, int(rows[0][0] or 0), int(rows[0][1] or 0), same, tasks
    )


def get_model_column_values(model: Model) -> dict[str, Any]:
    """Return the columns of a model's row, to see later if the row has changed."""
    return {column.key: getattr(model, column.key) for column in sql_inspect(Model).column_attrs}
