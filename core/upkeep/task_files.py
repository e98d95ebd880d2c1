"""Deletion of a task's archive and images when their retention time is over."""

from sqlalchemy import Select, and_, exists, or_, select, union

from core.database import jobs as job_rows
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import TERMINAL, JobState
from core.database.tables import Job, Model, Task, Version
from core.execution.validate import delete_task_archive
from core.retention import retained_predictions, retention
from core.settings import Settings
from core.storage import Blobs, ObjectStorage


def delete_expired_task_files(
    db: Database, store: ObjectStorage, blobs: Blobs, settings: Settings
) -> None:
    """Delete archives, training images and held-out images of tasks whose retention time is over."""
    for task_id in select_tasks_with_expirable_files(db):
        _delete_expired_files_of_task(db, store, blobs, settings, task_id)


def select_tasks_with_expirable_files(db: Database) -> list[str]:
    """Return ids of tasks with files that may no longer have to be retained, and that no open job
    needs.

    Each select uses an index of such files, or the models that do not retain them. It does not walk
    through all tasks, nor through those whose training images have an end date in the future.
    """
    unfinished = exists().where(
        Job.task_id == Task.id, job_rows.build_unfinished_job_condition(Job.state)
    )
    deleted = Model.deleted_at.is_not(None)
    no_train = select(Model.id).where(Model.keep_training_data.is_(False) | deleted)
    no_held_out = select(Model.id).where((Model.held_out == retention.COUNTS) | deleted)
    archives = Task.archive_key.is_not(None) & (Task.train_sha256.is_not(None) | ~unfinished)
    train = Task.train_sha256.is_not(None) & Task.train_deleted_at.is_(None)
    held_out = Task.held_out_sha256.is_not(None) & Task.held_out_deleted_at.is_(None)
    with db.read() as session:
        over = Task.train_until <= db.now(session)
        query = union(
            select(Task.id).where(archives),
            select(Task.id).where(
                Task.model_id.in_(no_train), train, over, ~Task.stops, ~unfinished
            ),
            select(Task.id).where(
                Task.model_id.in_(no_train),
                train,
                Task.train_until.is_(None),
                ~Task.stops,
                ~unfinished,
            ),
            select(Task.id).where(
                Task.model_id.in_(select(Model.id).where(deleted)), train, ~unfinished
            ),
            select(Task.id).where(Task.model_id.in_(no_held_out), held_out, ~unfinished),
        )
        return list(session.execute(query).scalars())


def _delete_expired_files_of_task(
    db: Database, store: ObjectStorage, blobs: Blobs, settings: Settings, task_id: str
) -> None:
    """Delete the files of one task whose retention time is over."""
    with db.write() as session:
        query = select(Job).where(Job.task_id == task_id).with_for_update(key_share=True)
        jobs = list(session.execute(query).scalars())
        task = session.get_one(Task, task_id, with_for_update=True)
        open_one = select(Job.id).where(
            Job.task_id == task_id, job_rows.build_unfinished_job_condition(Job.state)
        )
        if session.scalar(open_one.limit(1)) is not None and all(
            JobState(j.state) in TERMINAL for j in jobs
        ):
            return  # it is being learned again since: a retry takes the lock on the task's row
        if (
            task.belongs_to_adopted_classifier
            and session.scalar(_build_unfinished_measure_job_query(task)) is not None
        ):
            return  # its images are held out to measure the classifier, whatever stays afterwards
        model = session.get_one(Model, task.model_id)
        # A version that came with its model has no job.
        came = and_(
            *(Version.model_id == task.model_id, Version.task_number == task.number),
            Version.job_id.is_(None),
        )
        status = select(Version.status).where(
            or_(Version.job_id.in_([job.id for job in jobs]), came)
        )
        published = "published" in session.execute(status).scalars().all()
        now = db.now(session)
        due = retention.find_deletable_task_files(
            model, task, jobs, published, now, settings.failed_days
        )
        marked, forgotten = False, list[str]()
        if due.train and task.train_sha256 is not None and task.train_deleted_at is None:
            task.train_deleted_at, marked = now, True
        if due.held_out and task.held_out_sha256 is not None and task.held_out_deleted_at is None:
            task.held_out_deleted_at, marked = now, True
            forgotten = retained_predictions.clear_prediction_digests_and_keys(
                session, model.id, task.number
            )
        archive_key = task.archive_key if due.archive else None
    delete_task_archive(db, store, task_id, archive_key)
    if marked:
        # After the commit: from then on no row refers to the files, and a crash leaves blobs for
        # the sweep.
        retention.delete_blobs_of_deleted_task_files(db, blobs, task_id)
        retention.delete_unused_blobs(db, blobs, forgotten)


def _build_unfinished_measure_job_query(task: Task) -> Select[str]:
    """Return the query for an unfinished job that measures an adopted classifier on the task's
    images.
    """
    return select(Job.id).where(
        Job.model_id == task.model_id,
        Job.kind == str(JobKind.MEASURE),
        job_rows.build_unfinished_job_condition(Job.state),
    )
