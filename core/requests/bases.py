"""Uploaded bases: weights that models may start from.

The file is checked by its header alone, before anything else reads it: size, names, shapes and dtypes must
be those of the architecture (`core.expected_base`).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from sqlalchemy import ColumnElement, Text, select, true
from sqlalchemy import cast as sql_cast
from sqlalchemy.orm import Session

from core.db import references, stored_bytes
from core.db.session import Database
from core.db.tables import Base, Model
from core.errors import BaseInvalid, Invalid, NotFound, Unavailable, WrongState
from core.expected_base import to_compare
from core.ids import new_id
from core.line import words
from core.protocol.answers.architecture import ArchitectureChoice, ImageOut
from core.protocol.answers.audit import AuditData
from core.protocol.answers.base import BaseOut, BasePage, ListedBase, ModelRef
from core.protocol.answers.model_change import AskedImage
from core.protocol.base import ExpectedBase, UploadedFor
from core.protocol.catalogue import Catalogue
from core.recipe.architecture import architecture as complete
from core.recipe.base_images import BaseConfig, images_of_base
from core.recipe.images import Images, images_of
from core.requests import idempotency, quota
from core.requests.actor import Actor
from core.requests.audit import record
from core.requests.base_advice import advice, architecture_of, refuse_pickle
from core.requests.pages import Page, page
from core.requests.times import rfc3339
from core.requests.unused import delete_unused
from core.safetensors_header import Tensor, check_expected, check_finite, read_header
from core.settings import Settings
from core.store.blobs import Blobs

UNSAID = BaseConfig()
_NAMED, _MOST = 5, 20
"""Models that a refusal names in its sentence, and lists."""


def parse_architecture(
    catalogue: Catalogue, text: str, size: int | None, channels: int | None, config: BaseConfig = UNSAID
) -> tuple[ArchitectureChoice, Images]:
    """The complete architecture that `?architecture=` means, a name or a JSON object, and the images of the base.

    Raises:
        Invalid: not JSON, an unknown name, or bad hyper-parameters.
    """
    asked: Any = text
    if text.lstrip().startswith("{"):
        try:
            asked = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                "architecture is neither a name nor a JSON object.",
                fields=[{"field": "architecture", "message": "not JSON"}],
            ) from error
    if size is not None and config.size not in (None, size):
        raise Invalid(
            f"image_size is {size} and config.size {config.size}; say one of them.",
            fields=[{"field": "config.size", "message": "not that of image_size"}],
        )
    asked_image: AskedImage = {"size": size or config.size or 0, "channels": channels or 0}
    images = images_of_base(images_of(catalogue, asked, asked_image), config)
    return complete(catalogue, "class", asked, images.image), images


def create(
    db: Database,
    blobs: Blobs,
    settings: Settings,
    actor: Actor,
    *,
    architecture: ArchitectureChoice,
    images: Images,
    family: str,
    expected: ExpectedBase,
    path: Path,
    repeat: idempotency.Request | None = None,
) -> BaseOut:
    """Check an uploaded file and keep it; `path` is moved into the store.

    Args:
        images: that it was learned on.
        family: of the architecture, as the catalogue has it.
        expected: what a base of this architecture must hold, see `core.expected_base`.

    Raises:
        BaseInvalid: not a safetensors file, not one of this architecture, or with NaN or infinity in it.
        StorageFull: the owner has no room for it.
    """
    tensors = _tensors(path, architecture, family)
    _check_fit(tensors, expected, architecture, images.image, family)
    limit = settings.max_owner_bytes
    quota.require_room(db, actor.owner_id, limit, path.stat().st_size)
    check_finite(path, tensors)
    sha256, size = blobs.put_file(path, move=True)
    with db.write() as session:
        references.share(session)
        if not blobs.has(sha256):
            raise Unavailable("The upload was removed before it was registered; send it again.")
        now = db.now(session)
        row = Base(
            id=new_id("bas"),
            owner_id=actor.owner_id,
            architecture=_uploaded_for(architecture, images),
            sha256=sha256,
            bytes=size,
            created_at=now,
        )
        session.add(row)
        record(session, actor, "base.create", row.id, {"sha256": sha256, "bytes": size}, now=now)
        answer = _to_json(row)
        location = {"Location": f"/v1/bases/{row.id}"}
        idempotency.remember(session, actor, repeat, 201, location, answer, now)
        session.flush()
        quota.take(session, actor.owner_id, limit, size)
    return answer


def _tensors(path: Path, architecture: ArchitectureChoice, family: str) -> list[Tensor]:
    try:
        tensors = read_header(path)
    except BaseInvalid:
        refuse_pickle(path, architecture, family)
        raise
    if not tensors:
        raise BaseInvalid("The file holds no tensors.")
    return tensors


def get(db: Database, actor: Actor, base_id: str) -> BaseOut:
    """One base.

    Raises:
        NotFound: no such base, or another owner's.
    """
    with db.read() as session:
        row = session.get(Base, base_id)
        if row is None or not actor.sees(row.owner_id):
            raise NotFound(f"There is no base {base_id!r}.")
        return _to_json(row)


def list_bases(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> BasePage:
    """A page of the bases that the caller sees, newest first, with the models that begin with each."""
    with db.read() as session:
        query = select(Base).where(actor.filter(Base.owner_id))
        found: Page[Base] = page(session, query, Base.id, limit, cursor, descending=True)
        users = _users(session, found.rows, actor.filter(Model.owner_id))
        items: list[ListedBase] = [{**_to_json(row), "models": users[row.id]} for row in found.rows]
        return {"items": items, "next_cursor": found.next_cursor}


def delete(db: Database, blobs: Blobs, actor: Actor, base_id: str) -> None:
    """Forget a base; its bytes go, unless something else names the same.

    Raises:
        NotFound: no such base, or another owner's.
        WrongState: models begin with it; `extra["models"]` names them.
    """
    with db.write() as session:
        references.own(session)  # whoever names it for a new model does so before, or finds it gone
        row = session.get(Base, base_id)
        if row is None or not actor.sees(row.owner_id):
            raise NotFound(f"There is no base {base_id!r}.")
        if _users(session, [row], true())[row.id]:
            raise _needed(_users(session, [row], actor.filter(Model.owner_id))[row.id])
        session.delete(row)
        data: AuditData = {"sha256": row.sha256, "bytes": row.bytes}
        record(session, actor, "base.delete", row.id, data, now=db.now(session))
        stored_bytes.outdate(session, row.owner_id)
    delete_unused(db, blobs, [row.sha256])


def _needed(models: list[ModelRef]) -> WrongState:
    """The refusal to delete a base; `models`: those of its users that the caller sees."""
    named = (
        words.listed([model["name"] for model in models], _NAMED) if models else "a model of another owner"
    )
    advice = (
        "Delete these models first, or keep the base." if models else "It stays as long as that model does."
    )
    return WrongState(
        f"The base cannot be deleted: {named} began with it. {advice}",
        extra={"state": "in-use", "models": models[:_MOST]},
    )


def _users(session: Session, rows: Sequence[Base], seen: ColumnElement[bool]) -> dict[str, list[ModelRef]]:
    """Base id → the models among those seen that begin with it, oldest first; one statement for all."""
    found: dict[str, list[ModelRef]] = {row.id: [] for row in rows}
    stored = {json.dumps(row.id): row.id for row in rows}
    named = sql_cast(Model.base, Text)
    query = select(named, Model.id, Model.name).where(seen, Model.deleted_at.is_(None), named.in_(stored))
    for base, model_id, name in session.execute(query.order_by(Model.id)):
        found[stored[base]].append({"id": model_id, "name": name})
    return found


def _check_fit(
    tensors: Sequence[Tensor],
    expected: ExpectedBase,
    architecture: ArchitectureChoice,
    image: ImageOut,
    family: str,
) -> None:
    """Raises BaseInvalid for a file that is not one of this architecture, with what it would fit."""
    own, wanted = to_compare(tensors, expected)
    try:
        check_expected(own, wanted)
    except BaseInvalid as error:
        shapes = {t.name: t.shape for t in own}
        found = advice(architecture, image, family, shapes, {n: want["shape"] for n, want in wanted.items()})
        if found is None:
            raise
        raise found.error(error.fields) from None


def _uploaded_for(architecture: ArchitectureChoice, images: Images) -> UploadedFor:
    stored = {**architecture, "image": images.image}
    return cast(
        UploadedFor, stored if images.normalise is None else {**stored, "normalise": images.normalise}
    )


def _to_json(row: Base) -> BaseOut:
    return {
        "id": row.id,
        "sha256": row.sha256,
        "bytes": row.bytes,
        "architecture": architecture_of(row.architecture),
        "image": row.architecture.get("image"),
        "normalise": row.architecture.get("normalise"),
        "created_at": rfc3339(row.created_at),
    }
