"""An upload that arrived in pieces, joined into one spool file like an upload in one body."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import CapacityLimiter, to_thread

from api.uploads.body import ReceivedUpload, open_temporary_spool_file
from api.uploads.request_checks import RESERVED_DISK_BYTES, Look
from api.uploads.spool_file import SpoolFile
from core.database.session import Database
from core.errors import DigestMismatch, ServiceDiskFull
from core.failpoints import hit_failpoint
from core.requests.actor import Actor
from core.settings import Settings
from core.storage import ObjectStorage
from core.uploads.complete_uploads import CompleteUpload, read_upload_bytes

_assemblies = CapacityLimiter(2)
"""Limits uploads being joined at once in one process: each keeps a core and a disk busy."""


@asynccontextmanager
async def join_upload_pieces_in_spool(
    db: Database,
    store: ObjectStorage,
    actor: Actor,
    whole: CompleteUpload,
    look: Look,
    settings: Settings,
) -> AsyncIterator[ReceivedUpload]:
    """Join the pieces of an upload into one spool file, which is removed at the end of the block.

    Raises:
        NotFound: it was submitted or removed meanwhile.
        ServiceDiskFull: the disk of the spool has no room for it.
        StoredObjectDamaged: a piece is missing or damaged.
        DigestMismatch: its SHA-256 is not the announced one.
    """
    # A full disk would fail other requests, too: refuse before a byte is copied.
    free = shutil.disk_usage(settings.make_folder("spool")).free
    if whole.length + RESERVED_DISK_BYTES > free:
        raise ServiceDiskFull("There is no room on the service's disk to put this upload together.")
    with open_temporary_spool_file(settings, whole.length, None, look) as file:
        await to_thread.run_sync(
            _copy_upload_pieces, db, store, actor, whole, file, limiter=_assemblies
        )
        hit_failpoint("upload-assembled")
        if whole.sha256 not in (None, file.sha256):
            raise DigestMismatch(
                f"{whole.id} was announced with the sha256 {whole.sha256}, and its bytes have "
                f"{file.sha256}: DELETE /v1/uploads/{whole.id}, and upload the file again."
            )
        yield ReceivedUpload(file.path, file.size, file.sha256, file.sha256, file.kind, {})


def _copy_upload_pieces(
    db: Database, store: ObjectStorage, actor: Actor, upload: CompleteUpload, file: SpoolFile
) -> None:
    for data in read_upload_bytes(db, store, actor, upload):
        file.append_piece(memoryview(data))
    file.finish()
