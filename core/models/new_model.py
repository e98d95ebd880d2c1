"""The rows of a new model: the model itself, and its version 0 or the job that fetches it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.admission.admission import ANY, AdmissionLimits
from core.bases import packaged, pretrained
from core.contract.base import PRETRAINED, ModelBase
from core.contract.gate import GateLimits, GateOut
from core.contract.pretrained import PretrainedWeights
from core.contract.responses.audit import AuditData
from core.contract.responses.model_change import ModelChange, RequestedImageSettings
from core.contract.responses.versions.sure import AnswersSetting
from core.database.tables import Model
from core.errors import Invalid, NameTaken
from core.ids import new_id
from core.lineage.checks import ALL_OFF, NEW_GATE
from core.models import adoption, first_version
from core.models.requested_model import CheckedModelRequest
from core.packaged import imagenet_base, packaged_base
from core.recipe.images import ImageFormatAndNormalisation
from core.requests.actor import Actor, UseCaseTransaction
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.resources import UseCaseResources
from core.storage import Blobs


class LineageSettings(TypedDict):
    """A model's settings for its lineage: reactions to failed, rejected and held tasks, and the
    time for repairs.
    """

    on_held: str
    on_rejected: str
    on_failed: str
    training_data_days: float
    allow_lost_classes: bool


LINE: LineageSettings = {
    "on_held": "stop",
    "on_rejected": "continue",
    "on_failed": "continue",
    "training_data_days": 7.0,
    "allow_lost_classes": False,
}
"""Default settings of the lineage."""
_MIN_SIZE, _MAX_SIZE = 8, 1024
_FOR_PHOTOS = (
    f'take the base that was learned on photos of 224 × 224: "base": "{imagenet_base.NAME}"'
)


@dataclass(frozen=True)
class InitialWeightsAndDownloadLimits:
    """Initial weights of a new model, with the limits on downloading them.

    `weights` is None if no job has to fetch them.
    """

    weights: PretrainedWeights | None
    terms: pretrained.PretrainedWeightsPolicy


@dataclass(frozen=True)
class NewModelAdmissionLimits:
    """Limits that a new model must meet: size of its network, jobs and pretrained weights.

    Attributes:
        admission: limits on its network and on its jobs.
        terms: terms of pretrained weights, which a job fetches if they are not stored yet.
    """

    admission: AdmissionLimits = ANY
    terms: pretrained.PretrainedWeightsPolicy = pretrained.ANY


NO_LIMITS = NewModelAdmissionLimits()


def find_initial_weights_and_store_base(
    resources: UseCaseResources,
    actor: Actor,
    checked_request: CheckedModelRequest,
    terms: pretrained.PretrainedWeightsPolicy,
) -> InitialWeightsAndDownloadLimits:
    """Find the initial weights of a new model before its transaction begins.

    A packaged base is stored here.

    Raises:
        Invalid: there are no such weights.
        StorageQuotaReached: the owner has no room for them.
    """
    weights = None
    if checked_request.base in (PRETRAINED, imagenet_base.NAME):
        weights = pretrained.require_pretrained_weights_entry(
            resources.catalogue, checked_request.architecture, checked_request.base
        )
        pretrained.require_storage_room_for_weights(resources.db, actor, weights, terms)
    packaged.store_base_blob_if_packaged(
        resources.blobs, checked_request.base, checked_request.images.image
    )
    return InitialWeightsAndDownloadLimits(weights, terms)


def add_model(
    transaction: UseCaseTransaction,
    blobs: Blobs,
    checked_request: CheckedModelRequest,
    begins: InitialWeightsAndDownloadLimits,
    audit: tuple[str, AuditData],
    *,
    owner_id: str | None = None,
) -> Model:
    """Add a model with its version 0, or with the job that downloads its weights; its name must be
    free.

    Args:
        audit: action and data of the row of the audit trail.
        owner_id: owner of the model; None for the caller's owner.

    Raises:
        Invalid, NotFound: the base does not exist, or does not fit.
        StorageQuotaReached, TooManyRequests: the owner has no room for the weights, or for their job.
    """
    session, actor, now = transaction.session, transaction.actor, transaction.now
    model = _build_model_row(checked_request, owner_id or actor.owner_id, now)
    # Flushed now, because the rows below have foreign keys to it.
    session.add(model)
    session.flush()
    action, data = audit
    record_audit_entry(session, actor, AuditedChange(action, model.id, data, model=model.id), now)
    recipe = checked_request.resolved_recipe.recipe
    seed = int(recipe.get("seed", 0))
    if checked_request.adopted is not None:
        adoption.create_adopted_lineage_and_delete_base(
            transaction, blobs, model, checked_request.adopted, seed
        )
    elif begins.weights is None:
        first_version.add_version_zero_of_new_model(
            transaction, blobs, model, seed, checked_request.images
        )
    else:
        pretrained.add_version_zero_or_fetch_job(
            transaction, blobs, model, begins.weights, recipe, begins.terms
        )
    return model


def _build_model_row(checked_request: CheckedModelRequest, owner_id: str, now: float) -> Model:
    request = checked_request.request
    if request.get("selection") and request.get("held_out") == "counts":
        message = (
            'keeps images of each batch, and "held_out": "counts" keeps none: send one of both'
        )
        raise Invalid(f"selection {message}.", fields=[{"field": "selection", "message": message}])
    odd_size = _list_image_size_notices(
        request.get("image") or {}, checked_request.images, checked_request.base
    )
    return Model(
        id=new_id("mdl"),
        owner_id=owner_id,
        name=checked_request.name,
        scenario=checked_request.scenario,
        problem=checked_request.problem,
        architecture=checked_request.architecture,
        image=checked_request.images.image,
        base=checked_request.base,
        classes=checked_request.classes,
        recipe=checked_request.recipe,
        gate=apply_patch_to_gate_limits(
            NEW_GATE, request.get("gate") or {}, request.get("answers")
        ),
        answers=request.get("answers"),
        keep_training_data=bool(request.get("keep_training_data", False)),
        held_out=request.get("held_out") or "keep",
        selection=bool(request.get("selection", False)),
        **extract_lineage_settings_of_request(request),
        warnings=[
            *checked_request.notes,
            *odd_size,
            *build_default_image_retention_notice(request),
            *checked_request.resolved_recipe.warnings,
        ],
        description=request.get("description") or None,
        tags=request.get("tags") or None,
        fence=0,
        next_task=1,
        next_place=1,
        next_version=1,
        created_at=now,
        deleted_at=None,
    )


def _list_image_size_notices(
    requested_image: RequestedImageSettings, images: ImageFormatAndNormalisation, base: ModelBase
) -> list[str]:
    """Return notices about a new model's image size, which cannot be changed later.

    At creation nothing is learned yet that another size would discard.
    """
    size = images.image["size"]
    if base == packaged_base.PACKAGED and size != (
        base_size := packaged_base.load_packaged_base_description().size
    ):
        return [
            f"{base} was learned on images of {base_size} × {base_size} pixels; of {size} × {size} "
            f"its features tell "
            f'classes apart less well. Send "image": {{"size": {base_size}}}, or {_FOR_PHOTOS}.'
        ]
    # Named weights bring the size that they were trained on, which needs no notice.
    if requested_image.get("size") is not None or images.normalise is not None:
        return []
    more = (
        _FOR_PHOTOS
        if base == packaged_base.PACKAGED
        else f'create the model with "image": {{"size": 64}}, or another size from {_MIN_SIZE} to '
        f"{_MAX_SIZE}"
    )
    return [
        f"Images are resized to {size} × {size} pixels where nothing else is said, and this cannot "
        f"be changed later. Where more pixels matter, {more}."
    ]


def build_default_image_retention_notice(model_request: Mapping[str, object]) -> list[str]:
    """Return the notice about how long training images are kept, if the request for a model left
    that open.

    Images of people must not be retained by accident, so the default is stated at creation.
    """
    if model_request.get("training_data_days") is not None or model_request.get(
        "keep_training_data"
    ):
        return []
    return [
        f"The training images of a batch are kept for {LINE['training_data_days']:g} days after "
        "its version is published, so that it can be learned again after a rollback; "
        "training_data_days says how long (0: not at all)."
    ]


def extract_lineage_settings_of_request(model_change: ModelChange) -> dict[str, object]:
    """Return the settings of a model's lineage that a request sets."""
    settings: Mapping[str, object] = model_change
    return {name: settings[name] for name in LINE if settings.get(name) is not None}


def apply_patch_to_gate_limits(
    before: GateLimits | GateOut, patch: GateLimits, answers_setting: AnswersSetting | None
) -> GateOut:
    """Return all limits of a model's gate, with those of a request's patch applied.

    A limit that is not set is None. Limits that are newer than the model are not set.

    Raises:
        Invalid: `min_coverage` is set, but the model promises no precision.
    """
    switched: GateLimits = {}
    if patch.get("checks") is not None:
        switched = NEW_GATE if patch.get("checks") == "on" else ALL_OFF
    # The patch is last, so that a single limit sent beside `checks` overrides it.
    limits: GateLimits = {**before, **switched, **patch}
    if limits.get("min_coverage") is not None and answers_setting is None:
        raise Invalid(
            "min_coverage limits how many answers are sure, and this model does not say when one "
            "is. Send "
            '"answers": {"precision": 0.98} as well, or set min_coverage to null.',
            fields=[{"field": "gate.min_coverage", "message": "only with answers.precision"}],
        )
    return {
        "max_forgetting": limits.get("max_forgetting"),
        "min_new_task": limits.get("min_new_task"),
        "min_acc": limits.get("min_acc"),
        "max_predicted_loss_rise": limits.get("max_predicted_loss_rise"),
        "max_negative_flips": limits.get("max_negative_flips"),
        "min_coverage": limits.get("min_coverage"),
        "forgotten": limits.get("forgotten"),
        "confused": limits.get("confused"),
        "class_lost": limits.get("class_lost"),
        "drifted": limits.get("drifted"),
        "learned_nothing": limits.get("learned_nothing"),
        "features_collapsed": limits.get("features_collapsed"),
    }


def is_model_name_free(session: Session, owner_id: str, name: str) -> bool:
    """Return True if the owner has no model of this name."""
    query = select(Model.id).where(
        Model.owner_id == owner_id, Model.name == name, Model.deleted_at.is_(None)
    )
    return session.scalar(query) is None


def require_free_model_name(session: Session, owner_id: str, name: str) -> None:
    """Check that the owner has no other model of this name.

    Raises:
        NameTaken: there is one.
    """
    if not is_model_name_free(session, owner_id, name):
        raise make_model_name_taken_error(name)


def make_model_name_taken_error(name: str) -> NameTaken:
    """Return the error for a name that another model of the owner already has."""
    return NameTaken(
        f"You have a model named {name!r} already.", fields=[{"field": "name", "message": "taken"}]
    )
