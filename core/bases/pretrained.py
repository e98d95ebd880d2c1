"""Models that begin with pretrained weights, which a job fetches if they are not stored.

Only names of the catalogue lead to the Hub, never an address that a client sends.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.base import PRETRAINED, ModelBase
from core.contract.catalogue import RecipeCatalogue
from core.contract.pretrained import PretrainedWeights, build_pretrained_weights_from_row
from core.contract.responses.architecture import ArchitectureChoice
from core.contract.responses.recipe import RecipeOut
from core.database import job_log
from core.database.jobs import record_job_creation
from core.database.kinds import JobKind
from core.database.session import Database
from core.database.states import JobState
from core.database.tables import FetchedPretrainedWeights, Job, Model
from core.errors import Invalid, WrongState
from core.jobs.job_retry import requeue_ended_job
from core.jobs.jobs import build_queued_taskless_job
from core.lineage import version_zero
from core.lineage.lineage import AliasMoveOrigin
from core.packaged import imagenet_base
from core.requests.actor import Actor, UseCaseTransaction
from core.retention import references
from core.settings import Settings
from core.storage import Blobs
from core.text.nearest import format_field_path_suggestion
from core.usage import quota

FLOAT_BYTES = 4


@dataclass(frozen=True)
class PretrainedWeightsPolicy:
    """Limits on the pretrained weights that this service downloads and stores.

    Attributes:
        hub: True if the service may fetch from the Hub.
        max_owner_bytes: maximum stored bytes of an owner; 0 for no limit.
        max_open_jobs: maximum unfinished jobs of an owner; 0 for no limit.
        photos: True if a model that names no base starts from the base for photos.
    """

    hub: bool = True
    max_owner_bytes: int = 0
    max_open_jobs: int = 0
    photos: bool = False

    @staticmethod
    def from_settings(settings: Settings) -> "PretrainedWeightsPolicy":
        """Return the limits on downloads of pretrained weights that the settings define."""
        photos = settings.default_base == imagenet_base.NAME
        return PretrainedWeightsPolicy(
            settings.hub == "on", settings.max_owner_bytes, settings.max_open_jobs, photos
        )


ANY = PretrainedWeightsPolicy()


def require_pretrained_weights_entry(
    catalogue: RecipeCatalogue, architecture: ArchitectureChoice, base: ModelBase
) -> PretrainedWeights:
    """Return the catalogue entry of weights that an architecture names, or of the ImageNet base.

    Raises:
        Invalid: the architecture is not one of timm, or there are no weights of its name; or the
            ImageNet base has another architecture or is not installed.
    """
    if base == imagenet_base.NAME:
        return _get_imagenet_base_catalogue_entry(catalogue, architecture)
    name = architecture.get("model")
    if architecture["name"] != "timm" or not isinstance(name, str):
        raise _make_pretrained_base_impossible_error(
            f"There are no pretrained weights of {architecture['name']} by name. Send "
            '"architecture": {"name": "timm", "model": "…"} with a name of GET /v1/architectures, '
            "or upload "
            "weights as a "
            "base: POST /v1/bases."
        )
    pretrained_rows = catalogue["pretrained"]
    if name not in pretrained_rows:
        near = format_field_path_suggestion(name, pretrained_rows)
        raise _make_pretrained_base_impossible_error(
            f"There are no pretrained weights {name!r}; {near}GET /v1/architectures has the names."
        )
    weights = build_pretrained_weights_from_row(name, pretrained_rows[name])
    if not weights.repository:
        raise _make_pretrained_base_impossible_error(
            f"The weights of timm/{name} are not on the Hub: upload them as a base, POST /v1/bases."
        )
    return weights


def _get_imagenet_base_catalogue_entry(
    catalogue: RecipeCatalogue, architecture: ArchitectureChoice
) -> PretrainedWeights:
    """Return the catalogue entry of the ImageNet base's weights."""
    if architecture != imagenet_base.ARCHITECTURE:
        message = (
            f'{imagenet_base.NAME} fits "architecture": {json.dumps(imagenet_base.ARCHITECTURE)}; '
            f"the model has "
            f"{json.dumps(architecture)}."
        )
        raise Invalid(message, fields=[{"field": "base", "message": message}])
    problem = imagenet_base.explain_missing_imagenet_base()
    if problem:
        raise _make_pretrained_base_impossible_error(
            f"{imagenet_base.NAME} cannot be had here: {problem}."
        )
    return imagenet_base.build_imagenet_weights_catalogue_entry(
        catalogue["pretrained"][imagenet_base.MODEL]
    )


def require_storage_room_for_weights(
    db: Database, actor: Actor, weights: PretrainedWeights, terms: PretrainedWeightsPolicy
) -> None:
    """Check that the owner has enough storage left for the weights, by their approximate size.

    Raises:
        StorageQuotaReached, BodyTooLarge: the owner has no room.
    """
    quota.require_storage_room(
        db, actor.owner_id, terms.max_owner_bytes, FLOAT_BYTES * weights.parameters
    )


def add_version_zero_or_fetch_job(
    transaction: UseCaseTransaction,
    blobs: Blobs,
    model: Model,
    weights: PretrainedWeights,
    recipe: RecipeOut,
    terms: PretrainedWeightsPolicy,
) -> None:
    """Add version 0 of a new model, or a job that downloads its weights and then makes version 0.

    Call this last in the transaction.

    Args:
        recipe: resolved recipe of the model.

    Raises:
        Invalid: the weights are not stored, and the service does not use the Hub.
        StorageQuotaReached, TooManyRequests: the owner has no room for the weights, or for their job.
    """
    session, now = transaction.session, transaction.now
    # First, so that a stored blob is not deleted between the look-up and the commit.
    references.lock_blob_references_against_deletion(session)
    stored = session.get(FetchedPretrainedWeights, weights.repository)
    if stored is not None and stored.sha256 is not None and blobs.has(stored.sha256):
        part, origin = version_zero.build_pretrained_weights_part_and_origin(weights, stored)
        start = version_zero.VersionZeroPartsAndOrigin(
            [part], origin, version_zero.find_pixel_statistics_of_weights(weights, model)
        )
        move_origin = AliasMoveOrigin("create", transaction.actor.key_id)
        seed = int(recipe.get("seed", 0))
        version_zero.add_version_zero(session, model, start, move_origin, seed=seed, now=now)
        quota.add_upload_bytes_or_raise_if_full(
            session, model.owner_id, terms.max_owner_bytes, part.bytes
        )
        return
    # The ImageNet base comes from an installed package, so it needs no Hub.
    if not terms.hub and weights.repository != imagenet_base.NAME:
        raise _make_pretrained_base_impossible_error(_explain_manual_weights_upload(model, weights))
    job = build_queued_taskless_job(model, JobKind.FETCH, {}, recipe, now)
    session.add(job)
    model.base_job = job.id
    session.flush()
    text = (
        f"Accepted: the weights {weights.name} of {weights.repository} are fetched, for version 0."
    )
    job_log.add_job_log_line(session, job.id, ("info", text), now)
    record_job_creation(session, job, now)
    session.flush()
    # After the flush, since it counts the owner's jobs in the database.
    quota.require_added_job_within_limit(session, model.owner_id, terms.max_open_jobs)


def retry_weights_download_job(
    session: Session, actor: Actor, model: Model, job: Job, max_open_jobs: int, now: float
) -> bool:
    """Queue a failed or cancelled download of weights again; return False if it is queued already.

    Returns:
        True if there is new work to do.

    Raises:
        WrongState: the weights are there, or the job is paused.
        TooManyRequests: the owner has no room for another open job.
    """
    if model.base_job is None:
        raise WrongState(
            f"Model {model.name} has its weights already.", extra={"state": str(job.state)}
        )
    return requeue_ended_job(session, actor, model, job, max_open_jobs, now)


def find_failed_weights_download_jobs(session: Session, models: Sequence[Model]) -> dict[str, Job]:
    """Return, by model id, the jobs that failed to download the weights of the model's base."""
    jobs = {model.base_job: model.id for model in models if model.base_job is not None}
    if not jobs:
        return {}
    ended = (str(JobState.FAILED), str(JobState.CANCELLED))
    query = select(Job).where(Job.id.in_(sorted(jobs)), Job.state.in_(ended))
    return {jobs[job.id]: job for job in session.scalars(query)}


def _explain_manual_weights_upload(model: Model, weights: PretrainedWeights) -> str:
    """Return instructions for uploading pretrained weights by hand."""
    query = urlencode(
        {
            "architecture": json.dumps(model.architecture),
            "image_size": model.image["size"],
            "channels": model.image["channels"],
        }
    )
    return (
        f"The weights {weights.name} are not stored here, and this service fetches none "
        f"(PERENNIAL_HUB=off). Upload model.safetensors of the repository {weights.repository}: "
        f"POST /v1/bases?{query}. "
        "Then create the model with the id of that base in place of “pretrained”."
    )


def _make_pretrained_base_impossible_error(message: str) -> Invalid:
    return Invalid(
        message, fields=[{"field": "base", "message": f"{PRETRAINED!r} is not possible here"}]
    )
