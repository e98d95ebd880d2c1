"""Routes for a model's stored training images: their amount, and their deletion."""

from fastapi import Response

from api.answers import json_answer
from api.dependencies import BlobStore, Db, ObjectStore, Read, Write
from api.described import make_router
from api.schemas.common import ModelPath
from core.protocol.answers.memory import MemoryOut
from core.requests import memory

router = make_router("models")


@router.get("/v1/models/{model}/memory", response_model=MemoryOut)
def read(model: ModelPath, actor: Read, db: Db, blobs: BlobStore) -> Response:
    """Return bytes and counts of the production version's replay buffer and exemplars, never
    images.
    """
    return json_answer(memory.read(db, blobs, actor, model))


@router.delete("/v1/models/{model}/memory", status_code=204)
def delete(
    model: ModelPath, actor: Write, db: Db, store: ObjectStore, blobs: BlobStore
) -> Response:
    """Delete the stored images of all versions now.

    Versions stay: they can be downloaded and used for predictions as before. A running job restarts
    without these images, and the next version starts with an empty replay buffer.
    """
    memory.delete(db, store, blobs, actor, model)
    return Response(status_code=204)
