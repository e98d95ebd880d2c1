"""Station 2 of predict: the images of a body, files in a form or nested arrays as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass

from anyio import to_thread
from starlette.requests import Request

from api.fair_share import pause
from api.guard import declared_length
from api.predict.body import read_body
from api.predict.form import boundary_of, images_of
from api.predict.line import Place
from core.errors import UnsupportedType
from core.ingest.limits import PREDICT_IMAGES
from core.settings import Settings

INLINE_BYTES = 256 << 10
"""A form that is no longer is read in about the time that it takes to hand it to a thread."""


@dataclass(frozen=True)
class Images:
    """Images as they were sent. kind: `files`, one each with its name, or `arrays`, one JSON text."""

    kind: str
    body: Sequence[bytes | bytearray | memoryview]
    names: Sequence[str | None] = ()


def form_boundary(request: Request) -> bytes | None:
    """The boundary of a form; None for nested arrays.

    Raises:
        UnsupportedType: the body is declared to be neither.
        Invalid: a form without a boundary.
    """
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in ("multipart/form-data", "application/json"):
        raise UnsupportedType("Send images as multipart/form-data, or nested arrays as application/json.")
    return boundary_of(content_type) if media_type == "multipart/form-data" else None


async def read_images(request: Request, place: Place, boundary: bytes | None, settings: Settings) -> Images:
    """The images of a request, read and counted at its place. Raises as `read_body` and `images_of`."""
    most = min(settings.predict_body_bytes, settings.predict_owner_bytes)
    if boundary is None:
        most = min(most, settings.predict_array_bytes)
    declared = declared_length(request.headers.get("content-length"))
    pause()  # for the rest of it, too: `place` limits how many an owner has under way
    body = await read_body(request.receive, place, most, declared, settings)
    if boundary is None:
        return Images("arrays", [body])
    if len(body) <= INLINE_BYTES:
        sent = images_of(body, boundary, PREDICT_IMAGES)
    else:
        sent = await to_thread.run_sync(images_of, body, boundary, PREDICT_IMAGES)
    return Images("files", [image.data for image in sent], [image.name for image in sent])
