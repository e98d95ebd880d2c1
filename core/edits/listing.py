"""Edits of a model as responses, and the class names that they replaced."""

from collections.abc import Iterable
from typing import cast

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core.contract.edit import ClassAliasOut, EditedFiles, EditOut, EditPage, EditUndoRecord, Way
from core.contract.responses.audit import AuditData
from core.database.session import Database
from core.database.tables import ClassAlias, Edit, Job, Model
from core.edits.affected_parts import find_older_version_parts_of_edited_tasks
from core.errors import NotFound
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page
from core.requests.timestamps import format_rfc3339


def list_edits(db: Database, actor: Actor, model: str, limit: int, cursor: str | None) -> EditPage:
    """Return a page of a model's edits, newest first.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        query = select(Edit).where(Edit.model_id == row.id)
        page: ListPage[Edit] = read_query_page(
            session, query, Edit.number, limit, cursor, descending=True
        )
        return {
            "items": [build_edit_response(session, edit) for edit in page.rows],
            "next_cursor": page.next_cursor,
        }


def read_edit(db: Database, actor: Actor, model: str, number: int) -> EditOut:
    """Return one edit of a model by its number, as a response.

    Raises:
        NotFound: the caller sees no such model or edit.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        return build_edit_response(session, find_edit_or_raise(session, row, number))


def find_edit_or_raise(session: Session, model: Model, number: int) -> Edit:
    """Find the database row of a model's edit by its number.

    Raises:
        NotFound: there is none.
    """
    edit = session.scalar(select(Edit).where(Edit.model_id == model.id, Edit.number == number))
    if edit is None:
        raise NotFound(f"The model has no edit {number}.")
    return edit


def build_edit_response(session: Session, edit: Edit) -> EditOut:
    """Build the response for an edit, with the state of its job."""
    journal = edit.journal
    way: Way = cast(Way, edit.way)
    holding = _list_versions_with_removed_images(session, edit)
    purge = f"/v1/models/{_get_name_of_edited_model(session, edit)}/edits/{edit.number}/purge"
    return {
        "number": edit.number,
        "job": edit.job_id,
        "state": session.scalar(select(Job.state).where(Job.id == edit.job_id)) or "queued",
        "operations": len(edit.operations),
        "way": way,
        "tasks": edit.tasks,
        "images": {
            "relabelled": None if journal is None else journal.relabelled,
            "removed": None if journal is None else journal.removed,
        },
        "parent": edit.parent,
        "version": edit.version,
        "reason": edit.reason,
        "created_at": format_rfc3339(edit.created_at),
        "undo_until": None if edit.undo_until is None else format_rfc3339(edit.undo_until),
        "undone_at": None if edit.undone_at is None else format_rfc3339(edit.undone_at),
        "files": [] if journal is None else _list_file_digests_before_and_after_edit(journal),
        "still_in_versions": holding,
        "purge_request": {"method": "POST", "path": purge} if holding else None,
    }


def _get_name_of_edited_model(session: Session, edit: Edit) -> str:
    return session.get_one(Model, edit.model_id).name


def _list_file_digests_before_and_after_edit(journal: EditUndoRecord) -> list[EditedFiles]:
    return [
        {
            "task": before.number,
            "before": {"train": before.train, "held_out": before.held_out},
            "after": {"train": after.train, "held_out": after.held_out},
        }
        for before, after in zip(journal.before, journal.after, strict=True)
    ]


def _list_versions_with_removed_images(session: Session, edit: Edit) -> list[int]:
    if edit.journal is None or not edit.journal.removed:
        return []
    return sorted({number for _, number in find_older_version_parts_of_edited_tasks(session, edit)})


def list_class_aliases(db: Database, actor: Actor, model: str) -> list[ClassAliasOut]:
    """Return the former class names of a model, by name.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        query = select(ClassAlias).where(ClassAlias.model_id == row.id).order_by(ClassAlias.name)
        return [
            {
                "name": alias.name,
                "to": alias.to,
                "edit": alias.edit,
                "created_at": format_rfc3339(alias.created_at),
            }
            for alias in session.scalars(query)
        ]


def remove_class_alias(db: Database, actor: Actor, model: str, name: str) -> None:
    """Remove a former class name; a batch that uses it then brings a new class.

    Raises:
        NotFound: the caller sees no such model or name.
    """
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        alias = session.get(ClassAlias, (row.id, name))
        if alias is None:
            raise NotFound(f"The model has no former class name {name!r}.")
        session.delete(alias)
        data: AuditData = {"model": row.id, "name": name}
        entry = AuditedChange("class-alias.delete", row.id, data, model=row.id)
        record_audit_entry(session, actor, entry, db.now(session))


def read_former_class_names(db: Database, actor: Actor, model: str) -> dict[str, str | None]:
    """Read a model's mapping from former class names to present ones; None for a dropped class.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        return read_class_aliases(session, find_model(session, actor, model).id)


def read_class_aliases(session: Session, model_id: str) -> dict[str, str | None]:
    """Read the mapping from a model's former class names to present ones; None for a dropped
    class.
    """
    query = select(ClassAlias.name, ClassAlias.to).where(ClassAlias.model_id == model_id)
    return {name: to for name, to in session.execute(query)}


def delete_reused_class_aliases(session: Session, model_id: str, names: Iterable[str]) -> None:
    """Delete stored former class names that are again names of present classes."""
    former = ClassAlias.model_id == model_id, ClassAlias.name.in_(list(names))
    session.execute(delete(ClassAlias).where(*former))
