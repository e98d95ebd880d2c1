"""Stage 2 of predict: the images of a body: one file, files in a form or in base64, or JSON
arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anyio import to_thread
from starlette.requests import Request

from api.authentication.guard import read_declared_length
from api.limits.fair_share import release_request_slot_before_wait
from api.predict import form, instances
from api.predict.body import read_predict_body_within_limits
from api.predict.concurrency import PredictConcurrencySlot, compute_held_bytes_limit
from core.errors import Invalid, UnsupportedContentType
from core.ingest.limits import PREDICT_IMAGES
from core.settings import Settings

INLINE_BYTES = 256 << 10
"""Size up to which reading a form takes about as long as handing it to a thread."""
FORM, JSON = "multipart/form-data", "application/json"
FILES = tuple(
    f"image/{kind}"
    for kind in ("jpeg", "png", "webp", "heic", "heif", "avif", "gif", "bmp", "tiff")
)
"""Media types of a body that is one image file. The format itself is detected from its bytes."""
_COMMON = {"image/jpg": "image/jpeg", "image/x-ms-bmp": "image/bmp"}
"""Other media types that programs send."""


@dataclass(frozen=True)
class PredictRequestImages:
    """Images of a predict request: files with names, or one JSON text of nested arrays."""

    kind: str
    body: Sequence[bytes | bytearray | memoryview]
    names: Sequence[str | None] = ()


@dataclass(frozen=True)
class PredictBodyTypeAndBoundary:
    """The kind of body of a predict request: a file, a multipart form or JSON."""

    kind: Literal["file", "form", "json"]
    boundary: bytes = b""


def read_predict_body_kind(request: Request) -> PredictBodyTypeAndBoundary:
    """Determine the kind of a predict request's body from its Content-Type.

    Raises:
        UnsupportedContentType: the media type is not supported.
        Invalid: a form without a boundary.
    """
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == FORM:
        return PredictBodyTypeAndBoundary("form", form.parse_form_boundary(content_type))
    if media_type == JSON:
        return PredictBodyTypeAndBoundary("json")
    if _COMMON.get(media_type, media_type) in FILES:
        return PredictBodyTypeAndBoundary("file")
    quoted_type = repr(media_type[:60]) if media_type else "missing"
    raise UnsupportedContentType(
        f"Content-Type is {quoted_type}. Send one image file as its body, with {', '.join(FILES[:-1])} or "
        f"{FILES[-1]}; several as {FORM}; or {instances.FORM} or nested arrays as {JSON}."
    )


async def read_predict_request_images(
    request: Request,
    slot: PredictConcurrencySlot,
    kind: PredictBodyTypeAndBoundary,
    settings: Settings,
) -> PredictRequestImages:
    """Read the images in the body of a predict request, counting their bytes.

    Raises:
        Invalid: a key of scope predict sends nested arrays.
        PerennialError: see `read_predict_body_within_limits`, `form.parse_form_files` and
            `instances.decode_base64_instances_in_place`.
    """
    max_bytes = min(settings.predict_body_bytes, compute_held_bytes_limit(settings, slot.key))
    has_instances = False

    def detect_instances_and_get_limit(head: bytes) -> int:
        nonlocal has_instances
        has_instances = instances.is_base64_instances_body(head)
        if has_instances:
            return max_bytes
        # Arrays take far more work than their size suggests, and web pages have image files.
        if slot.key is not None:
            raise Invalid(
                f"A key of scope predict sends image files, as {instances.FORM}, not nested arrays."
            )
        return settings.predict_array_bytes

    declared = read_declared_length(request.headers.get("content-length"))
    # For the rest of the request, too: `place` limits how many an owner has in progress.
    release_request_slot_before_wait()
    is_json = kind.kind == "json"
    body = await read_predict_body_within_limits(
        request.receive,
        slot,
        max_bytes,
        declared,
        settings,
        detect_instances_and_get_limit if is_json else None,
    )
    if kind.kind == "file":
        return PredictRequestImages("files", [body], [None])
    if is_json and not has_instances:
        return PredictRequestImages("arrays", [body])
    if len(body) <= INLINE_BYTES:
        return _parse_body_images(body, kind)
    return await to_thread.run_sync(_parse_body_images, body, kind)


def _parse_body_images(body: bytearray, kind: PredictBodyTypeAndBoundary) -> PredictRequestImages:
    if kind.kind == "json":
        files = instances.decode_base64_instances_in_place(body, PREDICT_IMAGES)
        return PredictRequestImages("files", files, [None] * len(files))
    form_files = form.parse_form_files(body, kind.boundary, PREDICT_IMAGES)
    return PredictRequestImages(
        "files", [image.data for image in form_files], [image.name for image in form_files]
    )
