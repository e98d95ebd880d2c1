"""Downloads of a version: the file's name, a look-up in the store, and the build.

The file is a pure function of the version and of the promise about confident predictions of its
model. It is therefore built on the first request, stored as a blob, and removed by the sweep after
some days; a rebuilt file has the same digest. Formats define the content (`core.export`). Slow
formats are built by jobs (`core.versions.export_jobs`).
"""

import secrets
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError

from core.contract.catalogue import RecipeCatalogue
from core.contract.manifest import Manifest
from core.contract.part_types import list_inference_part_types
from core.contract.responses.versions.sure import SureOut
from core.database.session import Database
from core.database.tables import ExportedDownload, VersionPart
from core.errors import ExportUnavailable, Unavailable
from core.export.format import DownloadFormat, VersionPartFileToExport, VersionToExport
from core.export.registry import FORMATS
from core.files.merging import DamagedPartFileError
from core.lineage.confident_predictions import choose_threshold_for_promised_precision
from core.requests.actor import Actor, find_model
from core.requests.classification_only import require_classification_model
from core.requests.resources import UseCaseResources
from core.retention import damage, references
from core.storage.blobs import Blobs
from core.versions.versions import find_version


@dataclass(frozen=True)
class FinishedExportDownload:
    """A finished export: SHA-256 digest, size in bytes, name to save it under, and media type."""

    sha256: str
    bytes: int
    filename: str
    media_type: str


@dataclass(frozen=True)
class RequestedExport:
    """The export that a caller asks for: model, version and format.

    Attributes:
        model: id or name of the model.
        version: number or alias of the version.
        format: one of `core.export.registry.FORMATS`.
    """

    model: str
    version: str
    format: str


@dataclass(frozen=True)
class _ExportSource:
    format: DownloadFormat
    version_id: str
    filename: str
    manifest: Manifest
    parts: list[tuple[str, str]]  # name, sha256
    sure: SureOut | None


def get_or_build_export(
    resources: UseCaseResources, actor: Actor, download: RequestedExport, spool: Path
) -> FinishedExportDownload:
    """Return the export of a version in a format, and build it if it is not stored.

    Call it where few builds run at once.

    Args:
        spool: folder for the unfinished file.

    Raises:
        ExportUnavailable: the format is unknown or not possible for this version, or the version
            has no stored weights.
        StoredObjectDamaged: a part is damaged or missing.
    """
    source = _find_export_source(resources.db, actor, download)
    return _find_stored_export_file(
        resources.db, resources.blobs, source
    ) or _build_and_store_export(resources, source, spool)


def find_stored_export(
    db: Database, blobs: Blobs, actor: Actor, download: RequestedExport
) -> FinishedExportDownload | None:
    """Return the export of a version if it is stored, else None.

    Raises:
        ExportUnavailable: see `get_or_build_export`.
    """
    return _find_stored_export_file(db, blobs, _find_export_source(db, actor, download))


def _find_export_source(db: Database, actor: Actor, download: RequestedExport) -> _ExportSource:
    """Read what an export is built from: the version's manifest and parts."""
    form = FORMATS.get(download.format)
    if form is None:
        raise ExportUnavailable(
            f"There is no export format {download.format!r}; use {' or '.join(FORMATS)}."
        )
    with db.read() as session:
        owner = find_model(session, actor, download.model)
        require_classification_model(owner, "Downloads with a model card")
        row = find_version(session, owner, download.version)
        query = (
            select(VersionPart)
            .where(VersionPart.version_id == row.id)
            .order_by(VersionPart.position, VersionPart.name)
        )
        # Other parts, such as replay buffers, hold training images and must not be downloaded.
        types = list_inference_part_types(row.manifest)
        parts = [(p.name, p.sha256) for p in session.scalars(query) if p.type in types]
        if not parts:
            raise ExportUnavailable(
                f"Version {row.number} has no stored weights: it is the random start that its "
                "manifest describes. Download a later version."
            )
        damage.require_undamaged_version_parts(
            session, row, {Blobs.make_blob_key(sha256): name for name, sha256 in parts}
        )
        refusal = form.explain_unavailability(row.manifest)
        if refusal is not None:
            raise ExportUnavailable(refusal)
        sure = choose_threshold_for_promised_precision(session, owner, row.number)
        return _ExportSource(
            form, row.id, f"{owner.name}-v{row.number}.{form.suffix}", row.manifest, parts, sure
        )


def _find_stored_export_file(
    db: Database, blobs: Blobs, source: _ExportSource
) -> FinishedExportDownload | None:
    """Return the stored file of an export, or None if it is missing or damaged."""
    with db.read() as session:
        row = session.get(ExportedDownload, (source.version_id, source.format.name))
    # A damaged download is no error, since it can be built again from the version.
    if (
        row is None
        or blobs.size(row.sha256) != row.bytes
        or not blobs.is_remote_or_undamaged(row.sha256)
    ):
        return None
    return FinishedExportDownload(row.sha256, row.bytes, source.filename, source.format.media_type)


def _build_and_store_export(
    resources: UseCaseResources, source: _ExportSource, spool: Path
) -> FinishedExportDownload:
    """Build an export, store it as a blob and register it."""
    db, blobs = resources.db, resources.blobs
    target, format = (
        spool / f"export-{secrets.token_hex(8)}.{source.format.suffix}",
        source.format.name,
    )
    try:
        # Outside of any transaction, since a build takes long.
        _write_export_file(blobs, resources.catalogue, source, target)
        sha256, size = blobs.put_file(target, move=True)
    finally:
        target.unlink(missing_ok=True)
    try:
        with db.write() as session:
            # Held until the commit, so that the sweep cannot remove the blob after the check.
            references.lock_blob_references_against_deletion(session)
            # an unregistered file stays for a day: the sweep removed it between upload and now
            if not blobs.has(sha256):
                raise Unavailable("The download was removed while it was made; ask again.")
            session.execute(
                delete(ExportedDownload).where(
                    ExportedDownload.version_id == source.version_id,
                    ExportedDownload.format == format,
                )
            )
            session.add(
                ExportedDownload(
                    version_id=source.version_id,
                    format=format,
                    sha256=sha256,
                    bytes=size,
                    created_at=db.now(session),
                )
            )
    except IntegrityError:
        pass  # another process has written the same row
    return FinishedExportDownload(sha256, size, source.filename, source.format.media_type)


def _write_export_file(
    blobs: Blobs, catalogue: RecipeCatalogue, source: _ExportSource, target: Path
) -> None:
    """Write an export to the local file `target`.

    Raises:
        StoredObjectDamaged: a part is damaged.
    """
    parts = [
        VersionPartFileToExport(name, blobs.fetch_verified_file(sha256), sha256)
        for name, sha256 in source.parts
    ]
    try:
        source.format.write_download(
            target, VersionToExport(source.manifest, parts, catalogue, sure=source.sure)
        )
    except DamagedPartFileError as error:
        damaged = next(part.sha256 for part in parts if part.path == error.path)
        raise blobs.drop_cached_copy_or_mark_damaged(damaged) from error
