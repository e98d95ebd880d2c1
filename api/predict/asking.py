"""The whole way of a predict request, for the API's route and for the page: from its place in line to its answer."""

from dataclasses import dataclass

from anyio import to_thread
from fastapi import Request

from api.predict.images import Images, declared_kind, read_images
from api.predict.line import Place, PredictLine
from api.predict.predictor import Predictor, Question
from api.predict_limits import PredictLimits
from core.db.session import Database
from core.errors import Invalid, StoreCorrupt
from core.requests.actor import Actor
from core.requests.predictions import AskedVersions, explained, predictable
from core.settings import Settings
from core.store import Blobs


@dataclass(frozen=True)
class Asked:
    """Whom a request asks: a version, in the task scenario the head of a task; `top_k`: labels for each image."""

    actor: Actor
    model: str
    version: str
    task: int | None
    top_k: int


async def ask(
    request: Request, asked: Asked, db: Database, blobs: Blobs, settings: Settings
) -> tuple[bytes, Images, Place]:
    """The answer as JSON, the images that were sent, and the place, which whoever calls this leaves.

    Raises: as `AskedVersions.find`, `declared_kind`, `PredictLine.place`, `read_images`, `PredictLimits.take`,
    `Question.to` and `Predictor.predict`; and Invalid for more labels than an image may have.
    """
    actor, model, version, task = asked.actor, asked.model, asked.version, asked.task
    key = None if actor.bound is None else actor.key_id
    if actor.bound is not None:  # the guard has let through its own model alone, by id or name
        model = actor.bound.model_id
    # First, since nobody is to learn from another answer that a version is there.
    versions: AskedVersions = request.app.state.asked_versions
    found = await to_thread.run_sync(versions.find, actor, model, version, task)
    _check(asked.top_k, settings.predict_max_top_k)
    kind = declared_kind(request)
    line: PredictLine = request.app.state.predict_line
    helper: Predictor = request.app.state.predictor
    place = line.place(actor.owner_id, key)
    try:
        images = await read_images(request, place, kind, settings)
        if key is not None:
            limits: PredictLimits = request.app.state.predict_limits
            await limits.take_images(key, len(images.body) - 1)  # one of them was taken with the request
        try:
            # Not in the helper's turn: a store that is out would hold up versions whose parts are here.
            question = await to_thread.run_sync(Question.to, found, blobs, task, asked.top_k)
            return await helper.predict(actor.owner_id, question, images), images, place
        except StoreCorrupt as error:  # perhaps deleted since its row was read: then it is not found by now
            await to_thread.run_sync(predictable, db, actor, model, version, task)
            raise await to_thread.run_sync(explained, db, found, error) from error
    except BaseException:
        place.leave()
        raise


def _check(top_k: int, most: int) -> None:
    """Raises Invalid for more labels than an image may have."""
    if top_k > most:
        raise Invalid(
            f"top_k is {top_k}, and an image may have {most} labels: send ?top_k={most} or less.",
            fields=[{"field": "top_k", "message": f"at most {most}"}],
        )
