"""Undo of an edit: the lineage goes back to the version before, and the labels are restored."""

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from core.contract.edit import EditOut, TaskStateBeforeOrAfterEdit
from core.contract.responses.audit import AuditData
from core.database.jobs import build_unfinished_job_condition
from core.database.session import Database
from core.database.tables import ClassAlias, Edit, Job, Model, Task, TaskFileBeforeEdit, Version
from core.edits import listing, record
from core.errors import ObjectGone, WrongState
from core.lineage import lineage
from core.lineage.lineage import AliasMoveOrigin
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.timestamps import format_rfc3339


def undo_edit(
    db: Database, actor: Actor, model: str, number: int, reason: str | None
) -> tuple[EditOut, str | None]:
    """Undo a finished edit of a model; a repeated call changes nothing.

    Returns:
        The edit, and the id of a job of the model that may run next.

    Raises:
        NotFound: the caller sees no such model or edit.
        Gone: its time is over, or it removed images.
        WrongState: it is not made yet, a later edit stands, or a later task was learned on it.
    """
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        edit = listing.find_edit_or_raise(session, row, number)
        if edit.undone_at is not None:
            return listing.build_edit_response(session, edit), None
        now = db.now(session)
        _require_edit_undoable(session, row, edit, now)
        version = lineage.find_version_by_number(session, row, edit.version or 0)
        assert version is not None and edit.journal is not None, "the edit was made"
        # The head is elsewhere if the version was held, or if somebody rolled it back before.
        if row.head == version.number:
            target = lineage.find_version_by_number(session, row, edit.parent)
            assert target is not None, "versions stay"
            move_origin = AliasMoveOrigin("rollback", actor.key_id, reason)
            lineage.move_lineage_head_back(session, row, target, move_origin, now)
        for before in edit.journal.before:
            _restore_task_before_edit(session, row, edit, before)
        record.restore_matrix_cells_before_edit(session, row, edit.journal.cells)
        record.restore_data_reports_before_edit(session, row, edit.journal.reports)
        session.execute(
            delete(ClassAlias).where(ClassAlias.model_id == row.id, ClassAlias.edit == edit.number)
        )
        session.execute(delete(TaskFileBeforeEdit).where(TaskFileBeforeEdit.edit_id == edit.id))
        edit.undone_at = now
        data: AuditData = {"model": row.id, "edit": number, "reason": reason}
        record_audit_entry(
            session, actor, AuditedChange("edit.undo", edit.id, data, model=row.id), now
        )
        # The response is built by queries, and sessions do not flush before a query.
        session.flush()
        return (
            listing.build_edit_response(session, edit),
            lineage.find_runnable_queued_job(session, row),
        )


def _require_edit_undoable(session: Session, model: Model, edit: Edit, now: float) -> None:
    if edit.version is None:
        state = session.scalar(select(Job.state).where(Job.id == edit.job_id))
        raise WrongState(
            f"Edit {edit.number} made no version: its job is {state}.", extra={"state": str(state)}
        )
    if edit.undo_until is None:
        raise ObjectGone(f"Edit {edit.number} removed images, and nothing is kept to restore them.")
    if edit.undo_until < now:
        raise ObjectGone(
            f"Edit {edit.number} could be undone until {format_rfc3339(edit.undo_until)}."
        )
    # Each edit recorded what it replaced, so edits can only be undone from the newest back.
    later = session.scalar(
        select(func.min(Edit.number))
        .join(Job, Job.id == Edit.job_id)
        .where(
            Edit.model_id == model.id,
            Edit.number > edit.number,
            Edit.undone_at.is_(None),
            Edit.version.is_not(None) | build_unfinished_job_condition(Job.state),
        )
    )
    if later is not None:
        raise WrongState(f"Edit {later} was made after it: undo that one first.")
    version = select(Version.status).where(
        Version.model_id == model.id, Version.number == edit.version
    )
    if session.scalar(version) == "published" and model.head not in (edit.version, edit.parent):
        raise WrongState(
            f"Version {model.head} continues from version {edit.version} of the edit: roll back to "
            f"that one first, or send the opposite edit."
        )


def _restore_task_before_edit(
    session: Session, model: Model, edit: Edit, before: TaskStateBeforeOrAfterEdit
) -> None:
    query = select(Task).where(Task.model_id == model.id, Task.number == before.number)
    task = session.scalars(query.with_for_update()).one()
    if task.data_deleted_at is not None:
        # Its images are gone for good; the version before knows its classes by their former names.
        task.classes, task.n_train = before.classes, before.n_train
        task.n_held_out = before.n_held_out
        return
    stored_digests = set(
        session.scalars(
            select(TaskFileBeforeEdit.sha256).where(
                TaskFileBeforeEdit.edit_id == edit.id, TaskFileBeforeEdit.task_id == task.id
            )
        )
    )
    now = record.build_task_state_for_edit_journal(task)
    # A file that was deleted since is not brought back.
    files = {
        kind: former
        for kind, former, present in (
            ("train", before.train, now.train),
            ("held_out", before.held_out, now.held_out),
            ("traces", before.traces, now.traces),
        )
        if former in stored_digests or former == present
    }
    record.write_journal_state_to_task_row(
        task,
        before.model_copy(
            update={name: files.get(name) for name in ("train", "held_out", "traces")}
        ),
    )
