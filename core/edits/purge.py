"""Deletion of everything that older versions still hold of images that an edit removed.

An edit makes a version without the images, and older versions stay as they are: they may have
features of the images, or the images themselves in a replay buffer. Neither is needed to predict.
Sums over many images stay, since no image can be restored from them.
"""

from core.contract.edit import EditOut
from core.contract.responses.audit import AuditData
from core.database.session import Database
from core.edits import listing
from core.edits.affected_parts import find_older_version_parts_of_edited_tasks
from core.errors import WrongState
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.retention.feature_totals import clear_feature_totals_in_model_row
from core.retention.unreferenced_blobs import delete_unreferenced_blobs
from core.storage import Blobs
from core.usage import stored_bytes


def purge_data_removed_by_edit(
    db: Database, blobs: Blobs, actor: Actor, model: str, number: int
) -> EditOut:
    """Delete the features and images that an edit removed from older versions too.

    These versions go on predicting. A model that goes back to one of them starts with an empty
    replay buffer, or without the features of these tasks. Repeating the call changes nothing.

    Raises:
        NotFound: the caller sees no such model or edit.
        WrongState: the edit made no version, or the lineage does not continue from it.
    """
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        edit = listing.find_edit_or_raise(session, row, number)
        if edit.version is None or edit.undone_at is not None or row.head < edit.version:
            raise WrongState(
                f"Version {row.head}, from which the lineage continues, is not one of edit {number} or "
                f"after it: images that it removed are still in use."
            )
        parts = find_older_version_parts_of_edited_tasks(session, edit)
        now = db.now(session)
        for part, _ in parts:
            part.deleted_at = now
        # The blobs are deleted again by a repeated call, in case a crash came between.
        digests = {part.sha256 for part, _ in parts} | clear_feature_totals_in_model_row(row)
        if parts:
            versions = sorted({version for _, version in parts})
            data: AuditData = {"model": row.id, "edit": number, "versions": versions}
            record_audit_entry(
                session, actor, AuditedChange("edit.purge", edit.id, data, model=row.id), now
            )
            stored_bytes.mark_owner_bytes_outdated(session, row.owner_id)
        # The response is built by queries, and sessions do not flush before a query.
        session.flush()
        response = listing.build_edit_response(session, edit)
    # After the commit, since rows refer to these blobs until then.
    delete_unreferenced_blobs(db, blobs, sorted(digests))
    return response
