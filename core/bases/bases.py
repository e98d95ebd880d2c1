"""Uploaded bases: weights that models may start from.

A file is checked by its header before anything else reads it. Sizes, names, shapes and dtypes of
its tensors must be those of the architecture (`core.bases.expected_base`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sqlalchemy import ColumnElement, Text, select, true
from sqlalchemy import cast as sql_cast
from sqlalchemy.orm import Session

from core.bases.base_advice import (
    advise_on_wrong_stem_or_patch_size,
    get_base_architecture,
    refuse_pytorch_or_archive_file,
)
from core.bases.classifier import (
    drop_head_tensors_of_classifier,
    validate_and_describe_base_classifier,
)
from core.bases.expected_base import select_tensors_to_compare_with_expected
from core.contract.base import (
    ExpectedBaseTensors,
    UploadedBaseDescription,
    UploadedClassifierDescription,
)
from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.architecture import ArchitectureChoice
from core.contract.responses.audit import AuditData
from core.contract.responses.base import BaseOut, BasePage, ListedBase, ModelRef
from core.contract.responses.model_change import RequestedImageSettings
from core.database.session import Database
from core.database.tables import Model, UploadedBase
from core.errors import BaseInvalid, Invalid, NotFound, Unavailable, WrongState
from core.files.safetensors_header import (
    TensorHeader,
    check_expected_tensors,
    check_finite_tensors,
    read_safetensors_header,
)
from core.ids import new_id
from core.lineage import wording
from core.recipe.architecture import complete_architecture as complete
from core.recipe.base_images import BaseImageSettings, override_image_settings_by_base
from core.recipe.images import ImageFormatAndNormalisation, resolve_image_settings
from core.requests import idempotency
from core.requests.actor import Actor
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page
from core.requests.resources import UseCaseResources
from core.requests.timestamps import format_rfc3339
from core.retention import references
from core.retention.unreferenced_blobs import delete_unreferenced_blobs
from core.settings import Settings
from core.storage.blobs import Blobs
from core.usage import quota, stored_bytes

UNSAID = BaseImageSettings()
_NAMED, _MOST = 5, 20
"""Maximum number of models that a refusal names in its sentence, and lists."""


@dataclass(frozen=True)
class ExpectedBaseNetwork:
    """The network that an uploaded base is checked against: its architecture and images.

    Attributes:
        architecture: complete architecture.
        images: images that the base was trained on.
        family: family of the architecture in the catalogue.
        expected: tensors that a base of this architecture must hold, see `core.bases.expected_base`.
        classes: names of the rows of its classifier; None for a base without one.
    """

    architecture: ArchitectureChoice
    images: ImageFormatAndNormalisation
    family: str
    expected: ExpectedBaseTensors
    classes: Sequence[str] | None = None


def parse_base_upload_architecture(
    catalogue: RecipeCatalogue,
    text: str,
    size: int | None,
    channels: int | None,
    config: BaseImageSettings = UNSAID,
) -> tuple[ArchitectureChoice, ImageFormatAndNormalisation]:
    """Parse the query `?architecture=` of an upload; return the complete architecture and the
    images of the base.

    Args:
        text: name of an architecture, or a JSON object.
        size: side of the images in pixels; None if the request does not say.
        channels: channels of the images; None if the request does not say.
        config: pixel statistics, size and cropping that the request states for the base.

    Raises:
        Invalid: the text is not JSON, the name is unknown, hyper-parameters are invalid, or two
            image sizes differ.
    """
    requested: Any = text
    if text.lstrip().startswith("{"):
        try:
            requested = json.loads(text)
        # Deeply nested JSON exceeds Python's recursion limit, which is the client's error.
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
    asked_image: RequestedImageSettings = {
        "size": size or config.size or 0,
        "channels": channels or 0,
    }
    images = override_image_settings_by_base(
        resolve_image_settings(catalogue, requested, asked_image), config
    )
    # A base belongs to no scenario, and the check needs one.
    return complete(catalogue, "class", requested, images.image), images


def create_base_from_upload(
    resources: UseCaseResources,
    settings: Settings,
    actor: Actor,
    network: ExpectedBaseNetwork,
    path: Path,
    repeat: idempotency.IdempotentRequestIdentity | None = None,
) -> BaseOut:
    """Check an uploaded file of weights and register it as a base; `path` is moved into the store.

    Raises:
        BaseInvalid: the file is not safetensors, does not fit this architecture, or has NaN or
            infinity in it.
        StorageQuotaReached: the owner has no room for it.
        Unavailable: the sweep removed the file before it was registered.
    """
    db, blobs = resources.db, resources.blobs
    tensors = _read_uploaded_tensor_headers(path, network)
    classifier = None
    backbone: Sequence[TensorHeader] = tensors
    if network.classes is not None:
        backbone = drop_head_tensors_of_classifier(tensors, network.expected)
    _check_tensors_fit_architecture(backbone, network)
    if network.classes is not None:
        classifier = validate_and_describe_base_classifier(
            tensors, network.expected, network.classes
        )
    limit = settings.max_owner_bytes
    quota.require_storage_room(db, actor.owner_id, limit, path.stat().st_size)
    # Last, because it reads the whole file; the checks above read only its header.
    check_finite_tensors(path, tensors)
    sha256, size = blobs.put_file(path, move=True)
    with db.write() as session:
        # The lock keeps the sweep from deleting the blob between this check and the commit.
        references.lock_blob_references_against_deletion(session)
        if not blobs.has(sha256):
            raise Unavailable("The upload was removed before it was registered; send it again.")
        now = db.now(session)
        row = UploadedBase(
            id=new_id("bas"),
            owner_id=actor.owner_id,
            architecture=_build_uploaded_base_description(
                network.architecture, network.images, classifier
            ),
            sha256=sha256,
            bytes=size,
            created_at=now,
        )
        session.add(row)
        record_audit_entry(
            session,
            actor,
            AuditedChange("base.create", row.id, {"sha256": sha256, "bytes": size}),
            now,
        )
        response = _uploaded_base_to_json(row)
        location = {"Location": f"/v1/bases/{row.id}"}
        stored_response = idempotency.IdempotentResponse(201, location, response)
        idempotency.store_idempotent_response(session, actor, repeat, stored_response, now)
        # Before the quota's change, which locks the owner's row and therefore comes last.
        session.flush()
        quota.add_upload_bytes_or_raise_if_full(session, actor.owner_id, limit, size)
    return response


def _read_uploaded_tensor_headers(path: Path, network: ExpectedBaseNetwork) -> list[TensorHeader]:
    """Read the names and shapes of the tensors in an uploaded safetensors file.

    Raises:
        BaseInvalid: the file is not safetensors or holds no tensors; a pickle gets advice on how to
            convert it.
    """
    try:
        tensors = read_safetensors_header(path)
    # A pickled model is the most frequent mistake, and gets advice of its own.
    except BaseInvalid:
        is_classifier = network.classes is not None
        refuse_pytorch_or_archive_file(
            path, network.architecture, "" if is_classifier else network.family
        )
        raise
    if not tensors:
        raise BaseInvalid("The file holds no tensors.")
    return tensors


def get_uploaded_base(db: Database, actor: Actor, base_id: str) -> BaseOut:
    """Return one uploaded base of weights, as responses show it.

    Raises:
        NotFound: there is no such base, or it belongs to another owner.
    """
    with db.read() as session:
        row = session.get(UploadedBase, base_id)
        if row is None or not actor.can_see(row.owner_id):
            raise NotFound(f"There is no base {base_id!r}.")
        return _uploaded_base_to_json(row)


def list_bases(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> BasePage:
    """Return a page of the caller's bases, newest first, with the models that start from each."""
    with db.read() as session:
        query = select(UploadedBase).where(actor.build_visible_condition(UploadedBase.owner_id))
        bases: ListPage[UploadedBase] = read_query_page(
            session, query, UploadedBase.id, limit, cursor, descending=True
        )
        users = _find_models_starting_from_bases(
            session, bases.rows, actor.build_visible_condition(Model.owner_id)
        )
        items: list[ListedBase] = [
            {**_uploaded_base_to_json(row), "models": users[row.id]} for row in bases.rows
        ]
        return {"items": items, "next_cursor": bases.next_cursor}


def delete_base(db: Database, blobs: Blobs, actor: Actor, base_id: str) -> None:
    """Delete a base of uploaded weights, and its bytes unless something else refers to them.

    Raises:
        NotFound: there is no such base, or it belongs to another owner.
        WrongState: models start from it; `extra["models"]` names them.
    """
    with db.write() as session:
        # a new model that names this base either commits first or finds the base gone
        references.lock_blob_references_exclusively(session)
        row = session.get(UploadedBase, base_id)
        if row is None or not actor.can_see(row.owner_id):
            raise NotFound(f"There is no base {base_id!r}.")
        # Anybody's model keeps the base, but the refusal names only those that the caller sees.
        if _find_models_starting_from_bases(session, [row], true())[row.id]:
            raise _make_base_in_use_error(
                _find_models_starting_from_bases(
                    session, [row], actor.build_visible_condition(Model.owner_id)
                )[row.id]
            )
        session.delete(row)
        data: AuditData = {"sha256": row.sha256, "bytes": row.bytes}
        record_audit_entry(
            session, actor, AuditedChange("base.delete", row.id, data), db.now(session)
        )
        stored_bytes.mark_owner_bytes_outdated(session, row.owner_id)
    # After the commit, since the row still counts as a use of the blob until then.
    delete_unreferenced_blobs(db, blobs, [row.sha256])


def _make_base_in_use_error(models: list[ModelRef]) -> WrongState:
    """Return the error that refuses to delete a base from which models start.

    Args:
        models: models that start from the base and that the caller sees.
    """
    named = (
        wording.join_words_with_conjunction([model["name"] for model in models], _NAMED)
        if models
        else "a model of another owner"
    )
    advice = (
        "Delete these models first, or keep the base."
        if models
        else "It stays as long as that model does."
    )
    return WrongState(
        f"The base cannot be deleted: {named} began with it. {advice}",
        extra={"state": "in-use", "models": models[:_MOST]},
    )


def _find_models_starting_from_bases(
    session: Session, rows: Sequence[UploadedBase], is_visible: ColumnElement[bool]
) -> dict[str, list[ModelRef]]:
    """Return the visible models that start from each base, by base id, oldest first."""
    models_by_base: dict[str, list[ModelRef]] = {row.id: [] for row in rows}
    # The column holds JSON, whose text has an id in quotes.
    stored = {json.dumps(row.id): row.id for row in rows}
    named = sql_cast(Model.base, Text)
    query = select(named, Model.id, Model.name).where(
        is_visible, Model.deleted_at.is_(None), named.in_(stored)
    )
    for base, model_id, name in session.execute(query.order_by(Model.id)):
        models_by_base[stored[base]].append({"id": model_id, "name": name})
    return models_by_base


def _check_tensors_fit_architecture(
    tensors: Sequence[TensorHeader], network: ExpectedBaseNetwork
) -> None:
    """Check that an uploaded base's tensors fit the stated architecture.

    Raises:
        BaseInvalid: they do not; where possible, the message names an architecture that would fit.
    """
    compared, needed = select_tensors_to_compare_with_expected(tensors, network.expected)
    try:
        check_expected_tensors(compared, needed)
    except BaseInvalid as error:
        shapes = {t.name: t.shape for t in compared}
        fitting = advise_on_wrong_stem_or_patch_size(
            network.architecture,
            network.images.image,
            network.family,
            shapes,
            {n: tensor["shape"] for n, tensor in needed.items()},
        )
        if fitting is None:
            raise
        raise fitting.make_error(error.fields) from None


def _build_uploaded_base_description(
    architecture: ArchitectureChoice,
    images: ImageFormatAndNormalisation,
    classifier: UploadedClassifierDescription | None,
) -> UploadedBaseDescription:
    stored: dict[str, object] = {**architecture, "image": images.image}
    if images.normalise is not None:
        stored["normalise"] = images.normalise
    if classifier is not None:
        stored["classifier"] = classifier
    return cast(UploadedBaseDescription, stored)


def _uploaded_base_to_json(row: UploadedBase) -> BaseOut:
    classifier = row.architecture.get("classifier")
    return {
        "id": row.id,
        "sha256": row.sha256,
        "bytes": row.bytes,
        "architecture": get_base_architecture(row.architecture),
        "image": row.architecture.get("image"),
        "normalise": row.architecture.get("normalise"),
        "classes": None if classifier is None else classifier["classes"],
        "created_at": format_rfc3339(row.created_at),
    }
