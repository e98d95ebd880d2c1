"""Downloads of a version: one zip of weights, configuration and model card.

The file is a pure function of the manifest (stored entries, fixed order, fixed times), so it is built once,
on first request, kept as a blob and swept after some days: built again it has the same digest. Parts are
merged by arithmetic on their headers, in constant memory and without torch, and hashed while they are merged: nothing is
made of damaged ones.
"""

import json
import secrets
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError

from core import damage
from core.db import references
from core.db.session import Database
from core.db.tables import Export, Part
from core.errors import BaseInvalid, ExportUnavailable, StoreCorrupt, Unavailable
from core.requests import model_card
from core.requests.actor import Actor, find_model
from core.requests.loading_code import classifier_prefixes
from core.requests.tensors import DamagedPart, Merged
from core.requests.versions import answering_types, find_version
from core.store.blobs import Blobs

FORMATS = ("safetensors",)
BASE_PART = "base"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_ZIP64_BYTES = 1 << 31


@dataclass(frozen=True)
class ExportFile:
    """A finished download: its digest, size in bytes and a name to save it under."""

    sha256: str
    bytes: int
    filename: str


@dataclass(frozen=True)
class _Source:
    version_id: str
    filename: str
    manifest: dict[str, Any]
    parts: list[tuple[str, str]]  # name, sha256


def export(
    db: Database, blobs: Blobs, actor: Actor, model: str, version: str, *, format: str, spool: Path
) -> ExportFile:
    """The download of a version, built when it is not stored: call it where few builds run at once.

    Args:
        spool: folder for the unfinished file.

    Raises:
        ExportUnavailable: an unknown format, or a version without stored weights.
        StoreCorrupt: a part is damaged or missing.
    """
    source = _source(db, actor, model, version, format)
    return _stored(db, blobs, source, format) or _build(db, blobs, source, format, spool)


def stored(
    db: Database, blobs: Blobs, actor: Actor, model: str, version: str, *, format: str
) -> ExportFile | None:
    """The download of a version if it is stored.

    Raises:
        ExportUnavailable: as `export`.
    """
    return _stored(db, blobs, _source(db, actor, model, version, format), format)


def write_zip(target: Path, manifest: dict[str, Any], parts: list[tuple[str, Path, str]]) -> None:
    """Write the download of a manifest whose exported parts lie at these paths.

    Args:
        parts: name, path and sha256 of each.

    Raises:
        StoreCorrupt: a part is no sound safetensors file, or two hold the same tensor.
        DamagedPart: a part has another digest; the file is to be thrown away.
    """
    try:
        merged = Merged([(path, sha256, _renamer(name, manifest)) for name, path, sha256 in parts])
    except (BaseInvalid, ValueError) as error:
        raise StoreCorrupt(f"The version's parts do not fit together: {error}") from error
    config = json.dumps(
        model_card.config(manifest, [name for name, _, _ in parts]),
        ensure_ascii=False,
        indent=2,
        sort_keys=True,
    )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "model.safetensors", merged.size, merged.chunks())
        for name, text in (("config.json", config + "\n"), ("README.md", model_card.card(manifest))):
            data = text.encode()
            _add(archive, name, len(data), [data])


def _source(db: Database, actor: Actor, model: str, version: str, format: str) -> _Source:
    if format not in FORMATS:
        raise ExportUnavailable(f"There is no export format {format!r}; use {' or '.join(FORMATS)}.")
    with db.read() as session:
        owner = find_model(session, actor, model)
        row = find_version(session, owner, version)
        query = select(Part).where(Part.version_id == row.id).order_by(Part.position, Part.name)
        types = answering_types(row.manifest)
        parts = [(p.name, p.sha256) for p in session.scalars(query) if p.type in types]
        if not parts:
            raise ExportUnavailable(
                f"Version {row.number} has no stored weights: it is the random start that its manifest "
                "describes. Download a later version."
            )
        damage.refuse(session, row, {Blobs.key(sha256): name for name, sha256 in parts})
        return _Source(row.id, f"{owner.name}-v{row.number}.zip", row.manifest, parts)


def _stored(db: Database, blobs: Blobs, source: _Source, format: str) -> ExportFile | None:
    with db.read() as session:
        row = session.get(Export, (source.version_id, format))
    if row is None or blobs.size(row.sha256) != row.bytes or not blobs.seems_sound(row.sha256):
        return None
    return ExportFile(row.sha256, row.bytes, source.filename)


def _build(db: Database, blobs: Blobs, source: _Source, format: str, spool: Path) -> ExportFile:
    target = spool / f"export-{secrets.token_hex(8)}.zip"
    try:
        _merge(blobs, source, target)
        sha256, size = blobs.put_file(target, move=True)
    finally:
        target.unlink(missing_ok=True)
    try:
        with db.write() as session:
            references.share(session)
            if not blobs.has(sha256):  # swept between upload and now: it was stored, unnamed, for a day
                raise Unavailable("The download was removed while it was made; ask again.")
            session.execute(
                delete(Export).where(Export.version_id == source.version_id, Export.format == format)
            )
            session.add(
                Export(
                    version_id=source.version_id,
                    format=format,
                    sha256=sha256,
                    bytes=size,
                    created_at=db.now(session),
                )
            )
    except IntegrityError:
        pass  # another process has written the same row
    return ExportFile(sha256, size, source.filename)


def _merge(blobs: Blobs, source: _Source, target: Path) -> None:
    parts = [(name, blobs.fetch(sha256), sha256) for name, sha256 in source.parts]
    try:
        write_zip(target, source.manifest, parts)
    except DamagedPart as error:
        damaged = next(sha256 for _, path, sha256 in parts if path == error.path)
        raise blobs.damaged_file(damaged) from error


def _renamer(part: str, manifest: dict[str, Any]) -> "_Rename":
    return _Rename(classifier_prefixes(manifest)) if part == BASE_PART else _Rename(None)


class _Rename:
    """The name a tensor has in the download, or None for one that is left out."""

    def __init__(self, classifier: tuple[str, ...] | None) -> None:
        self._classifier = classifier

    def __call__(self, name: str) -> str | None:
        if self._classifier is None:
            return name
        if self._classifier and name.startswith(self._classifier):
            return None
        return f"backbone.{name}"  # an uploaded base holds the backbone's own names


def _add(archive: zipfile.ZipFile, name: str, size: int, chunks: Iterable[bytes] | Iterator[bytes]) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3  # Unix, wherever this runs
    info.external_attr = 0o644 << 16
    info.file_size = size
    with archive.open(info, "w", force_zip64=size >= _ZIP64_BYTES) as entry:
        for chunk in chunks:
            entry.write(chunk)
