"""`/ui/models/{model}/submit/look`: checks of a batch's first files before it is uploaded.

The page's script reads the first bytes of some files from the archive (`api/static/first_look.js`).
The checks are those of `core.ingest.first_look`.
"""

import base64
import binascii
import re

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse, Response

from api.authentication import session
from api.authentication.guard import read_declared_length, read_small_body
from api.dependencies import Config, Db, Write
from api.pages.submit import PATH
from api.schemas.common import ModelPath
from core.errors import ArchiveInvalid, Invalid
from core.ingest.first_look import ImageFirstBytes, check_first_bytes_of_images
from core.ingest.limits import ArchiveLimits
from core.requests.actor import require_visible_model
from perennial.reading_rules.names import is_clearly_no_image, is_junk_path

router = APIRouter(include_in_schema=False)

MAX_BYTES = 512 << 10
FILES = 64
HEAD_BYTES = 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class BatchFileHead(BaseModel):
    """Name, size and first bytes of one file of a batch, sent by the page before the upload.

    Attributes:
        name: path within the archive.
        size: size in bytes.
        head: first bytes, in base64.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=2000)
    size: int = Field(ge=0)
    head: str = Field(max_length=4 * HEAD_BYTES)


class BatchFileHeads(BaseModel):
    """First bytes of some files of a batch, sent by the page before the upload.

    Attributes:
        files: number of files in the batch; 0 if unknown.
        heads: the files examined.
    """

    model_config = ConfigDict(extra="forbid")

    files: int = Field(ge=0)
    heads: list[BatchFileHead] = Field(max_length=FILES)


@router.post(f"{PATH}/look")
async def handle_first_images_check_request(
    request: Request, model: ModelPath, actor: Write, db: Db, settings: Config
) -> Response:
    """Check the first images of a batch before its upload; return {"refused", "warning"} as JSON."""
    # The script sends JSON, so `read_values_of_own_page_form`, which checks the origin of forms, is not used.
    session.require_own_request_origin(request.scope)
    body = await read_small_body(
        request.receive, MAX_BYTES, read_declared_length(request.headers.get("content-length"))
    )
    await to_thread.run_sync(require_visible_model, db, actor, model)
    try:
        sent_heads = BatchFileHeads.model_validate_json(body)
        images = [
            # Without `validate`, characters that are not base64 would be skipped silently.
            (one.name, one.size, base64.b64decode(one.head, validate=True))
            for one in sent_heads.heads
        ]
    except (ValidationError, binascii.Error):
        raise Invalid("This is no list of files as the page sends it.") from None
    verdict = await to_thread.run_sync(
        _describe_first_image_problems,
        images,
        sent_heads.files,
        ArchiveLimits.from_settings(settings),
    )
    return JSONResponse(verdict)


def _describe_first_image_problems(
    images: list[tuple[str, int, bytes]], files: int, limits: ArchiveLimits
) -> dict[str, str]:
    """Check that the first bytes of images can be read; return a refusal and a warning, or empty
    texts.
    """
    image_heads: list[ImageFirstBytes] = [
        # Names appear in the sentences of the result.
        ImageFirstBytes(_CONTROL.sub(" ", name), data, is_whole=len(data) == size)
        for name, size, data in images
        if not (is_junk_path(name) or is_clearly_no_image(name))
    ]
    # The page may not know the number of files.
    impression = check_first_bytes_of_images(max(files, len(image_heads)), image_heads, limits)
    try:
        impression.require_enough_readable_images()
    except ArchiveInvalid as error:
        return {"refused": error.detail, "warning": ""}
    return {"refused": "", "warning": " ".join(impression.build_left_out_warnings())}
