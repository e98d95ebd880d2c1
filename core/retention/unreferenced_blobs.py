"""Immediate deletion of blobs that have just lost their last reference.

The sweep finds any that are missed.
"""

from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from core.database.session import Database
from core.retention import references
from core.storage import Blobs, ObjectStorage

_BATCH = 200


def delete_unreferenced_blobs(db: Database, blobs: Blobs, digests: Sequence[str]) -> None:
    """Delete the blobs in a list of `digests` that no row refers to any more.

    The lock keeps others from referring to a blob between the check and the deletion.
    """
    # In portions, since each holds the lock that stops everybody who writes a reference.
    for start in range(0, len(digests), _BATCH):
        batch = list(digests[start : start + _BATCH])
        with db.write() as session:
            references.lock_blob_references_exclusively(session)
            used_digests = references.find_digests_still_in_use(session, batch)
            for digest in batch:
                if digest not in used_digests:
                    blobs.delete(digest)


def delete_unreferenced_cached_blobs(db: Database, blobs: Blobs) -> None:
    """Delete this machine's cached copies of blobs that no row refers to; each machine deletes its
    own.
    """
    copies = blobs.list_cached_digests()
    for start in range(0, len(copies), _BATCH):
        batch = copies[start : start + _BATCH]
        with db.read() as session:
            used_digests = references.find_digests_still_in_use(session, batch)
        for digest in set(batch) - used_digests:
            blobs.remove_cached_file(digest)


def release_rows_and_delete_files(
    db: Database,
    store: ObjectStorage,
    blobs: Blobs,
    release: Callable[[Session], tuple[list[str], list[str]] | None],
) -> None:
    """Run a transaction that releases stored files, then delete those files.

    Args:
        release: returns the store keys and digests that rows no longer refer to. None: rows have
            changed meanwhile, and it is called again in a new transaction.
    """
    released = None
    while released is None:
        with db.write() as session:
            released = release(session)
    # Files go after the commit: if it failed, rows would refer to deleted ones.
    keys, digests = released
    for key in keys:
        store.delete(key)
    delete_unreferenced_blobs(db, blobs, digests)
