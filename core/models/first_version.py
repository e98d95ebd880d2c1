"""Version 0 of a new model: random weights, an uploaded base, or another model's backbone.

Random weights are a pure function of architecture, image and seed and need no bytes. An uploaded
base or the backbone of another version is referenced by its blobs.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.bases import packaged
from core.bases.base_advice import (
    describe_architecture_and_image_in_words,
    explain_architecture_mismatch_of_base,
    format_model_creation_request,
    get_base_architecture,
    have_same_image_size_and_channels,
)
from core.contract.architecture import Normalisation
from core.contract.base import BaseVersion
from core.contract.manifest import BaseOrigin, RandomWeightsOrigin, StoredVersionPart
from core.contract.responses.architecture import ImageOut, NormalisationOut
from core.database.tables import Model, UploadedBase, Version, VersionPart
from core.errors import Invalid
from core.lineage import version_zero
from core.lineage.lineage import AliasMoveOrigin
from core.lineage.version_zero import Origin, VersionZeroPartsAndOrigin
from core.packaged import packaged_base
from core.recipe.images import ImageFormatAndNormalisation
from core.requests.actor import Actor, UseCaseTransaction, find_model
from core.retention import references
from core.storage import Blobs

_BACKBONE = ("backbone", "base")
"""Part types that another model can start from.

Heads, prompts, buffers and other parts are not taken over.
"""


def add_version_zero_of_new_model(
    transaction: UseCaseTransaction,
    blobs: Blobs,
    model: Model,
    seed: int,
    images: ImageFormatAndNormalisation,
) -> None:
    """Add version 0 of a new model, with its parts and aliases.

    A base that the request named by its model's name is stored by id.

    Args:
        images: images of the architecture; a base replaces their cropping, resizing and
            normalisation by its own.

    Raises:
        Invalid: the base does not exist, does not fit the model, or its bytes are gone.
        NotFound: the caller sees no model of the base's name.
    """
    session, actor, now = transaction.session, transaction.actor, transaction.now
    parts, origin, normalise = _find_version_zero_parts_and_origin(
        session, blobs, actor, model, seed, images.normalise
    )
    move_origin = AliasMoveOrigin("create", actor.key_id)
    start = VersionZeroPartsAndOrigin(parts, origin, normalise)
    version_zero.add_version_zero(session, model, start, move_origin, seed=seed, now=now)


def _find_version_zero_parts_and_origin(
    session: Session,
    blobs: Blobs,
    actor: Actor,
    model: Model,
    seed: int,
    usual: NormalisationOut | None,
) -> tuple[list[StoredVersionPart], Origin, Normalisation | None]:
    """Return the parts of a new model's version 0, their origin for the manifest, and pixel
    statistics.

    Args:
        usual: statistics to use where the base has none.
    """
    if model.base == "random":
        return (
            [],
            {"init": RandomWeightsOrigin(kind="random", seed=seed)},
            _parse_normalisation(usual),
        )
    # First, so that no blob of the base is deleted between the checks below and the commit.
    references.lock_blob_references_against_deletion(session)
    if not isinstance(model.base, str):
        parts, origin, normalise = _read_backbone_of_base_version(session, actor, model, model.base)
    elif model.base.startswith(packaged_base.PREFIX):
        part, origin, normalise = packaged.build_version_zero_of_packaged_base(
            model.base, model.architecture, model.image
        )
        parts = [part]
    else:
        parts, origin, normalise = _build_uploaded_base_part(
            session, actor, model, model.base, usual
        )
    for part in parts:
        if not blobs.has(part.sha256):
            raise _build_invalid_base_error(
                "The base's bytes are gone from the store; upload it again."
            )
    return parts, origin, normalise


def _build_uploaded_base_part(
    session: Session, actor: Actor, model: Model, base: str, usual: NormalisationOut | None
) -> tuple[list[StoredVersionPart], Origin, Normalisation | None]:
    """Return the part that version 0 gets from an uploaded base of that id."""
    row = session.scalar(
        select(UploadedBase).where(
            UploadedBase.id == base, actor.build_visible_condition(UploadedBase.owner_id)
        )
    )
    if row is None:
        raise _build_invalid_base_error(f"There is no base {base!r}.")
    if "classifier" in row.architecture:
        raise _build_invalid_base_error(
            f"The base {base!r} is a whole classifier, which only a new model adopts. For anything "
            "else, upload the file without classes."
        )
    base_architecture = get_base_architecture(row.architecture)
    if base_architecture != model.architecture or not have_same_image_size_and_channels(
        row.architecture["image"], model.image
    ):
        raise _build_invalid_base_error(
            explain_architecture_mismatch_of_base(row.architecture, model.architecture, model.image)
        )
    model.image = keep_image_decoding_of_model(row.architecture["image"], model.image)
    normalise = _parse_normalisation(row.architecture.get("normalise") or usual)
    part = StoredVersionPart(name="base", type="base", sha256=row.sha256, bytes=row.bytes)
    return [part], {"base": BaseOrigin(id=row.id, sha256=row.sha256)}, normalise


def _read_backbone_of_base_version(
    session: Session, actor: Actor, model: Model, base: BaseVersion
) -> tuple[list[StoredVersionPart], Origin, Normalisation | None]:
    """Return the backbone parts of another model's version, for a new model."""
    source = find_model(session, actor, base["model"])
    number = base["version"]
    source_version = session.scalar(
        select(Version).where(Version.model_id == source.id, Version.number == number)
    )
    if source_version is None:
        raise _build_invalid_base_error(f"The model {base['model']!r} has no version {number}.")
    if source.architecture != model.architecture or not have_same_image_size_and_channels(
        source.image, model.image
    ):
        raise _build_invalid_base_error(
            f"Version {number} of {source.name} has "
            f"{describe_architecture_and_image_in_words(source.architecture, source.image)}; the model has "
            f"{describe_architecture_and_image_in_words(model.architecture, model.image)}. Create the model with "
            f"{format_model_creation_request(source.architecture, source.image, base)}."
        )
    if (
        source_version.manifest.network is not None
        and source_version.manifest.network.family == "linearised"
    ):
        raise _build_invalid_base_error(
            f"Version {number} of {base['model']!r} is linearised: its backbone is edited and does "
            "not fit the model's architecture. Name a version of a plain network, or upload the "
            "base."
        )
    rows = session.scalars(
        select(VersionPart)
        .where(VersionPart.version_id == source_version.id)
        .order_by(VersionPart.position)
    )
    parts = [
        StoredVersionPart(name=p.name, type=p.type, sha256=p.sha256, bytes=p.bytes)
        for p in rows
        if p.type in _BACKBONE
    ]
    origin: Origin = {"base": BaseOrigin(model=source.id, version=number)}
    if not parts:  # version 0 of a model with random weights: the same function makes them again
        origin["init"] = source_version.manifest.init
    model.image = keep_image_decoding_of_model(source.image, model.image)
    # By id, since a rebase may give the name to another model.
    model.base = {"model": source.id, "version": number}
    return parts, origin, source_version.manifest.normalise


def keep_image_decoding_of_model(image: ImageOut, model_image: ImageOut) -> ImageOut:
    """Return a base's image settings with the model's own way of decoding files; a base knows only
    pixels.
    """
    image_settings: ImageOut = {**image}
    image_settings.pop("decoding", None)
    if "decoding" in model_image:
        image_settings["decoding"] = model_image["decoding"]
    return image_settings


def _parse_normalisation(statistics: NormalisationOut | None) -> Normalisation | None:
    return None if statistics is None else Normalisation.from_json(statistics)


def _build_invalid_base_error(message: str) -> Invalid:
    return Invalid(message, fields=[{"field": "base", "message": message}])
