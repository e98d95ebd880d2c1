"""Versions of a model as clients see them: list, details, and the parts they are made of.

A version is addressed by number or alias. Versions share parts by content; `shared_with` names the
lowest earlier version that holds the same bytes. Replay buffers hold training images and cannot be
downloaded.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Float, func, select
from sqlalchemy import cast as cast_to
from sqlalchemy.orm import Session, load_only

from core.contract.part_types import IMAGE_TYPES, PRIVATE_TYPES
from core.contract.responses.audit import AuditData
from core.contract.responses.versions.manifest import ManifestOut
from core.contract.responses.versions.version import (
    CommonVersionFields,
    FileList,
    FileOut,
    ResultPage,
    TaskResult,
    VersionItem,
    VersionOut,
    VersionPage,
)
from core.database import measurements
from core.database.session import Database
from core.database.tables import Alias, Model, Version, VersionPart, VersionTaskResult
from core.errors import Invalid, NotFound, WrongState
from core.lineage.coverage import list_taught_tasks
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, cut_list_page_from_mapping, read_query_page
from core.requests.timestamps import format_rfc3339
from core.retention import damage
from core.retention.references import build_digest_expression_without_index
from core.storage.blobs import Blobs

# 18 digits always fit into the 64 bits of the column.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
# Without manifests, which grow with the model: a page would load up to 200 of them.
_LISTED = load_only(
    Version.number,
    Version.parent,
    Version.task_number,
    Version.job_id,
    Version.status,
    Version.gate,
    Version.bytes,
    Version.bytes_new,
    Version.note,
    Version.created_at,
)
LATEST = "latest"
"""Alias of the newest published version; no row stores it, and it cannot be moved."""


@dataclass(frozen=True)
class DownloadablePart:
    """A part of a version as a downloadable file: digest, size in bytes, and the name to save it
    under.
    """

    sha256: str
    bytes: int
    filename: str


def find_version(session: Session, model: Model, version: str) -> Version:
    """Return the model's version of a number, alias or `latest`.

    Raises:
        NotFound: there is no such number or alias.
        WrongState: the model has no version yet, since the weights of its base are not there.
    """
    if model.base_job is not None:
        raise WrongState(
            f"Model {model.name!r} has no version yet: job {model.base_job} brings the weights of "
            f"its base.",
            extra={"state": "fetching"},
        )
    number: int | None
    if _NUMBER.fullmatch(version):
        number = int(version)
    elif version == LATEST:
        # No row stores `latest`, so publishing a version does not have to move it.
        number = find_newest_published_version_number(session, model.id)
    else:
        named = select(Alias.version).where(Alias.model_id == model.id, Alias.name == version)
        number = session.execute(named).scalar_one_or_none()
    row = None
    if number is not None:
        row = session.scalars(
            select(Version).where(Version.model_id == model.id, Version.number == number)
        ).one_or_none()
    if row is None:
        raise NotFound(f"Model {model.name!r} has no version or alias {version!r}.")
    return row


def find_newest_published_version_number(session: Session, model_id: str) -> int | None:
    """Return the number of the newest published version, which `latest` stands for."""
    query = select(Version.number).where(
        Version.model_id == model_id, Version.status == "published"
    )
    return session.scalar(query.order_by(Version.number.desc()).limit(1))


def list_versions(
    db: Database, actor: Actor, model: str, *, limit: int, cursor: str | None
) -> VersionPage:
    """Return a page of a model's versions by ascending number, without fields that grow with the
    model.

    `get_version` returns all fields of one version.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        query = select(Version).where(Version.model_id == row.id).options(_LISTED)
        rows: ListPage[Version] = read_query_page(session, query, Version.number, limit, cursor)
        measured = _read_mean_accuracies(session, row, [version.number for version in rows.rows])
        items = [
            _build_version_list_item(version, *measured.get(version.number, (None, None)))
            for version in rows.rows
        ]
        return {"items": items, "next_cursor": rows.next_cursor}


def _build_common_version_fields(version: Version) -> CommonVersionFields:
    return {
        "id": version.id,
        "number": version.number,
        "parent": version.parent,
        "task": version.task_number,
        "job": version.job_id,
        "status": version.status,
        "bytes": version.bytes,
        "bytes_new": version.bytes_new,
        "note": version.note,
        "created_at": format_rfc3339(version.created_at),
    }


def _build_version_list_item(
    version: Version, accuracy: float | None, images: int | None
) -> VersionItem:
    return {
        **_build_common_version_fields(version),
        "passed": version.gate["passed"],
        "mean_accuracy": accuracy,
        "images": images,
    }


def _read_mean_accuracies(
    session: Session, model: Model, numbers: Sequence[int]
) -> dict[int, tuple[float, int]]:
    """Return the mean accuracy of versions over learned tasks that were measured, and the number of
    held-out images that it rests on.
    """
    learned = select(Version.task_number).where(Version.model_id == model.id)
    query = (
        select(
            VersionTaskResult.version,
            func.avg(cast_to(VersionTaskResult.correct, Float) / VersionTaskResult.total),
            func.sum(VersionTaskResult.total),
        )
        .where(
            VersionTaskResult.model_id == model.id,
            VersionTaskResult.version.in_(numbers),
            VersionTaskResult.total > 0,
            VersionTaskResult.task.in_(learned),
        )
        .group_by(VersionTaskResult.version)
    )
    # PostgreSQL adds up integers of 64 bits as a decimal number.
    return {version: (mean, int(images)) for version, mean, images in session.execute(query)}


def get_version(db: Database, actor: Actor, model: str, version: str) -> VersionOut:
    """Return one version with all fields: manifest, parts with sizes, gate verdict, and accuracies."""
    with db.read() as session:
        row = find_model(session, actor, model)
        return versions_to_json(session, row, [find_version(session, row, version)])[0]


def list_version_task_results(
    db: Database, actor: Actor, model: str, version: str, *, limit: int, cursor: str | None
) -> ResultPage:
    """Return a page of a version's results by ascending task, also on tasks that it has not
    learned.
    """
    with db.read() as session:
        row = find_version(session, find_model(session, actor, model), version)
        query = select(VersionTaskResult).where(
            VersionTaskResult.model_id == row.model_id, VersionTaskResult.version == row.number
        )
        results: ListPage[VersionTaskResult] = read_query_page(
            session, query, VersionTaskResult.task, limit, cursor
        )
        items: list[TaskResult] = [
            {
                "task": one.task,
                "correct": one.correct,
                "total": one.total,
                "per_class": one.per_class,
            }
            for one in results.rows
        ]
        return {"items": items, "next_cursor": results.next_cursor}


def set_version_note(
    db: Database, actor: Actor, model: str, version: str, note: str | None
) -> VersionOut:
    """Set a person's note on a version of a model.

    None or "" removes it, and setting the same note changes nothing.

    Raises:
        NotFound: the caller sees no such model or version.
    """
    with db.write() as session:
        owner = find_model(session, actor, model)
        row = find_version(session, owner, version)
        if (note or None) != row.note:
            row.note = note or None
            data: AuditData = {"model": owner.id, "version": row.number, "note": row.note}
            record_audit_entry(
                session,
                actor,
                AuditedChange("version.change", row.id, data, model=owner.id),
                db.now(session),
            )
            session.flush()
        return versions_to_json(session, owner, [row])[0]


def list_version_files(
    db: Database, actor: Actor, model: str, version: str, *, limit: int, cursor: str | None
) -> FileList:
    """Return a page of a version's files that can be downloaded, in the manifest's order."""
    with db.read() as session:
        row = find_version(session, find_model(session, actor, model), version)
        items: dict[str, FileOut] = {
            p.name: {"name": p.name, "type": p.type, "sha256": p.sha256, "bytes": p.bytes}
            for p in _find_version_parts(session, [row.id])[row.id]
            if p.type not in PRIVATE_TYPES
        }
    files = cut_list_page_from_mapping(items, limit, cursor)
    return {"items": list(files.rows), "next_cursor": files.next_cursor}


def get_version_file(
    db: Database, actor: Actor, model: str, version: str, part: str
) -> DownloadablePart:
    """Return the downloadable file of one part of a version.

    Raises:
        NotFound: there is no such version or part.
        Invalid: the part holds training images or their features, and cannot be downloaded.
        StoredObjectDamaged: it is known to be damaged.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        row = find_version(session, owner, version)
        stored = session.get(VersionPart, (row.id, part))
        if stored is None:
            names = ", ".join(
                p.name
                for p in _find_version_parts(session, [row.id])[row.id]
                if p.type not in PRIVATE_TYPES
            )
            raise NotFound(f"Version {row.number} has no part {part!r}; it has {names or 'none'}.")
        if stored.type in PRIVATE_TYPES:
            content = "images" if stored.type in IMAGE_TYPES else "features"
            raise Invalid(
                f"The part {part!r} holds {content} of the training data and cannot be downloaded."
            )
        damage.require_undamaged_version_parts(
            session, row, {Blobs.make_blob_key(stored.sha256): stored.name}
        )
        return DownloadablePart(
            stored.sha256,
            stored.bytes,
            f"{owner.name}-v{row.number}-{stored.name}.safetensors",
        )


def versions_to_json(
    session: Session, model: Model, versions: Sequence[Version]
) -> list[VersionOut]:
    """Convert versions of one model to the JSON form of the API, in the given order."""
    if not versions:
        return []
    parts = _find_version_parts(session, [v.id for v in versions])
    first = _find_first_versions_with_blobs(
        session, model, {p.sha256 for of_one in parts.values() for p in of_one}
    )
    rows = _read_accuracy_rows(session, model, [v.number for v in versions])
    measured = measurements.read_version_measurements(
        session, model.id, [v.number for v in versions]
    )
    return [
        _build_version_response(v, parts[v.id], first, rows[v.number], measured[v.number])
        for v in versions
    ]


def _build_version_response(
    version: Version,
    parts: Sequence[VersionPart],
    first: Mapping[str, int],
    accuracy: list[float | None],
    measured: Mapping[str, Any],
) -> VersionOut:
    return {
        **_build_common_version_fields(version),
        "tasks": list_taught_tasks(version.manifest),
        "gate": version.gate,
        "warnings": list(version.warnings),
        "parts": [
            {
                "name": p.name,
                "type": p.type,
                "sha256": p.sha256,
                "bytes": p.bytes,
                "shared_with": first[p.sha256] if first[p.sha256] < version.number else None,
                "deleted_at": format_rfc3339(p.deleted_at),
            }
            for p in parts
        ],
        "accuracy": accuracy,
        "manifest": cast(ManifestOut, {**version.manifest.to_json(), **measured}),
    }


def _find_version_parts(session: Session, ids: Sequence[str]) -> dict[str, list[VersionPart]]:
    """Return the stored parts of each version by version id, in the manifest's order."""
    parts_by_version: dict[str, list[VersionPart]] = {i: [] for i in ids}
    query = (
        select(VersionPart)
        .where(VersionPart.version_id.in_(ids))
        .order_by(VersionPart.version_id, VersionPart.position, VersionPart.name)
    )
    for part in session.scalars(query):
        parts_by_version[part.version_id].append(part)
    return parts_by_version


def _find_first_versions_with_blobs(
    session: Session, model: Model, digests: set[str]
) -> dict[str, int]:
    """Return, for each blob by digest, the lowest version number of the model that has it."""
    sorted_digests = sorted(digests)
    first_holders: dict[str, int] = {}
    for start in range(0, len(sorted_digests), 500):  # SQLite limits the number of bound values
        query = (
            select(VersionPart.sha256, func.min(Version.number))
            .join(Version, Version.id == VersionPart.version_id)
            .where(
                Version.model_id == model.id,
                build_digest_expression_without_index(VersionPart.sha256).in_(
                    sorted_digests[start : start + 500]
                ),
            )
            .group_by(VersionPart.sha256)
        )
        first_holders.update((sha256, number) for sha256, number in session.execute(query))
    return first_holders


def _read_accuracy_rows(
    session: Session, model: Model, numbers: Sequence[int]
) -> dict[int, list[float | None]]:
    """Read rows of the accuracy matrix: a cell in [0, 1] per learned task; None: not measured."""
    learned = select(Version.task_number).where(
        Version.model_id == model.id, Version.task_number.is_not(None)
    )
    columns = sorted(set(session.scalars(learned)) - {None}, key=lambda n: n or 0)
    query = select(
        VersionTaskResult.version,
        VersionTaskResult.task,
        VersionTaskResult.correct,
        VersionTaskResult.total,
    )
    results = session.execute(
        query.where(VersionTaskResult.model_id == model.id, VersionTaskResult.version.in_(numbers))
    )
    cells = {(version, task): correct / total for version, task, correct, total in results if total}
    return {number: [cells.get((number, task or 0)) for task in columns] for number in numbers}
