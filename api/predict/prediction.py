"""A predict request from its place to its response, for the API's route and for the page."""

from dataclasses import dataclass

from anyio import to_thread
from fastapi import Request

from api.limits.predict_limits import PredictKeyLimiter
from api.predict.concurrency import PredictConcurrencyLimiter, PredictConcurrencySlot
from api.predict.images import (
    PredictRequestImages,
    read_predict_body_kind,
    read_predict_request_images,
)
from api.predict.predictor import PredictionHelperClient, VersionPredictionSpec
from core.database.session import Database
from core.errors import Invalid, StoredObjectDamaged
from core.predictions.predictions import (
    VersionCache,
    find_version_to_predict,
    reword_damaged_object_error_of_version,
)
from core.requests.actor import Actor
from core.settings import Settings
from core.storage import Blobs


@dataclass(frozen=True)
class PredictRequestTarget:
    """Model, version and task that a predict request addresses, and the number of labels per image."""

    actor: Actor
    model: str
    version: str
    task: int | None
    top_k: int


async def predict_images_and_keep_slot(
    request: Request,
    target: PredictRequestTarget,
    db: Database,
    blobs: Blobs,
    settings: Settings,
) -> tuple[bytes, PredictRequestImages, PredictConcurrencySlot]:
    """Answer a predict request: return its JSON, its images, and its place in the queue, still
    held.

    Raises:
        Invalid: more labels per image are requested than allowed.
        PerennialError: see `VersionCache.look_up_and_cache_version`, `read_predict_body_kind`,
            `PredictConcurrencyLimiter.acquire_predict_slot`, `read_predict_request_images`,
            `charge_further_predict_images`, `PredictableVersion.fetch_part_paths` and
            `PredictionHelperClient.predict_and_encode_response`.
    """
    actor, model, version, task = target.actor, target.model, target.version, target.task
    key = None if actor.bound is None else actor.key_id
    # The guard has accepted only the key's own model, by id or name.
    if actor.bound is not None:
        model = actor.bound.model_id
    # First of all, so that no other error reveals that a version exists.
    versions: VersionCache = request.app.state.version_cache
    found = await versions.find_cached_version(actor, model, version, task)
    if found is None:
        found = await to_thread.run_sync(
            versions.look_up_and_cache_version, actor, model, version, task
        )
    _require_top_k_within(target.top_k, settings.predict_max_top_k)
    kind = read_predict_body_kind(request)
    predict_limiter: PredictConcurrencyLimiter = request.app.state.predict_limiter
    helper: PredictionHelperClient = request.app.state.predictor
    slot = predict_limiter.acquire_predict_slot(actor.owner_id, key)
    try:
        images = await read_predict_request_images(request, slot, kind, settings)
        if key is not None:
            limits: PredictKeyLimiter = request.app.state.predict_limits
            await limits.charge_further_predict_images(
                key, len(images.body) - 1
            )  # The first image was counted with the request.
        try:
            parts = found.find_recently_verified_part_paths(blobs)
            # Outside the helper's turn: a store in an outage would delay versions whose parts are
            # here.
            if parts is None:
                parts = await to_thread.run_sync(found.fetch_part_paths, blobs)
            question = VersionPredictionSpec.build(found, parts, task, target.top_k)
            return (
                await helper.predict_and_encode_response(actor.owner_id, question, images),
                images,
                slot,
            )
        # Perhaps the version was deleted after its row was read: then it is not found now.
        except StoredObjectDamaged as error:
            await to_thread.run_sync(find_version_to_predict, db, actor, model, version, task)
            raise await to_thread.run_sync(
                reword_damaged_object_error_of_version, db, found, error
            ) from error
    # A cancelled request must return its place, too, or its owner would lack it for good.
    except BaseException:
        slot.release_predict_slot()
        raise


def _require_top_k_within(top_k: int, limit: int) -> None:
    """Raise Invalid if a predict request asks for more labels per image than allowed."""
    if top_k > limit:
        raise Invalid(
            f"top_k is {top_k}, and an image may have {limit} labels: send ?top_k={limit} or less.",
            fields=[{"field": "top_k", "message": f"at most {limit}"}],
        )
