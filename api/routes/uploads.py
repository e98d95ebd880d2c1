"""Routes for resumable uploads: tus 1.0.0, and the media type of the IETF draft.

POST /v1/uploads, PATCH … until complete, then POST /v1/models/{model}/tasks {"upload": "upl_…"}
"""

from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Header, Path, Request, Response
from pydantic import JsonValue

from api.dependencies import Config, Db, IdempotencyKey, ObjectStore, Page, Read, Write
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.uploads import tus
from api.uploads.piece import (
    hold_upload_lease,
    receive_whole_or_cut_piece_into_spool,
    refuse_piece_by_declared_length,
)
from api.uploads.request_checks import UploadRouteRules, parse_sha256_digest_header
from api.uploads.upload import UploadReception, make_upload_reception_dependency
from core.contract.responses.upload import UploadOut, UploadPage
from core.errors import BodyTooLarge, UnsupportedContentType
from core.requests import idempotency
from core.uploads import uploads


async def _refuse_unsupported_tus_headers(
    request: Request,
    tus_resumable: Annotated[
        str | None, Header(alias="Tus-Resumable", description="The version of tus, 1.0.0")
    ] = None,
) -> None:
    del tus_resumable  # declared for the documentation
    if request.method != "OPTIONS":  # A client that asks for the versions need not know one.
        tus.refuse_unsupported_tus_version(request.headers)
        tus.refuse_unsupported_tus_extensions(request.headers)


router = make_tagged_api_router("uploads", dependencies=[Depends(_refuse_unsupported_tus_headers)])

UploadPath = Annotated[str, Path(description="Id of the upload", max_length=40)]
PIECE = UploadRouteRules(
    "PATCH /v1/uploads/{upload}",
    media_types=frozenset({tus.PIECE, tus.PARTIAL}),
    not_taken=f"Send a piece as {tus.PIECE}.",
)
_binary: JsonValue = {"schema": {"type": "string", "format": "binary"}}
_piece: dict[str, JsonValue] = {
    "requestBody": {
        "required": True,
        "description": f"The bytes from Upload-Offset on: {uploads.LEAST_BYTES} or more, or the "
        f"last ones.",
        "content": {tus.PIECE: _binary, tus.PARTIAL: _binary},
    }
}


# Declared for the documentation: handlers read these headers by `tus`, which refuses repeated ones.
async def _declare_upload_headers(
    upload_length: Annotated[
        str | None, Header(alias="Upload-Length", description="Bytes of the whole file; required")
    ] = None,
    upload_metadata: Annotated[
        str | None,
        Header(
            alias="Upload-Metadata", description="Names with values in base64; given back by HEAD"
        ),
    ] = None,
    repr_digest: Annotated[
        str | None,
        Header(
            alias="Repr-Digest",
            description="sha-256=:BASE64: of the whole file; verified when it is submitted",
        ),
    ] = None,
) -> None:
    pass


async def _declare_upload_piece_headers(
    upload_offset: Annotated[
        str | None, Header(alias="Upload-Offset", description="Where this piece goes on; required")
    ] = None,
    upload_checksum: Annotated[
        str | None,
        Header(alias="Upload-Checksum", description="sha256 BASE64 of this piece; verified"),
    ] = None,
    upload_complete: Annotated[
        str | None,
        Header(alias="Upload-Complete", description="?1: this piece is the last (IETF's draft)"),
    ] = None,
) -> None:
    pass


@router.options("/v1/uploads", summary="Discover", status_code=204)
def describe_upload_protocol(actor: Read, settings: Config) -> Response:
    """Return the supported versions, extensions and limits of uploads."""
    return Response(
        status_code=204,
        headers=tus.build_upload_limit_headers(settings.max_body_bytes, settings.upload_hours),
    )


@router.post(
    "/v1/uploads",
    summary="Create",
    status_code=201,
    response_model=UploadOut,
    responses=build_openapi_problem_responses(409, 412, 413, 415),
    dependencies=[Depends(_declare_upload_headers)],
)
def create_upload(
    request: Request,
    actor: Write,
    db: Db,
    settings: Config,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Begin a resumable upload; its bytes are sent by PATCH to the `Location`."""
    headers = request.headers
    # Bytes in the first request are an extension of tus that is not supported.
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise UnsupportedContentType(
            "An upload begins without a body: send its bytes by PATCH to the Location of the "
            "answer."
        )
    length = tus.parse_byte_count_header(headers, "Upload-Length")
    if length > settings.max_body_bytes:
        raise BodyTooLarge(
            f"An upload may have {settings.max_body_bytes} bytes; this one has {length}."
        )
    details, sha256 = (
        tus.get_valid_upload_metadata_header(headers),
        parse_sha256_digest_header(
            tus.get_unrepeated_header(headers, "Repr-Digest"), "Repr-Digest"
        ),
    )
    repeat = None
    if (key := idempotency.check_idempotency_key_form(idempotency_key)) is not None:
        mark = idempotency.digest_request_for_idempotency(str(length), details, sha256)
        repeat = idempotency.IdempotentRequestIdentity("POST /v1/uploads", key, mark)
    upload_response, replay = uploads.create_upload(
        db,
        actor,
        uploads.AnnouncedUpload(length, details, sha256),
        uploads.UploadLimits.from_settings(settings),
        repeat,
    )
    location = {"Location": f"/v1/uploads/{upload_response['id']}", "Upload-Offset": "0"}
    return build_json_response(upload_response, 201, location, replay=replay)


@router.get(
    "/v1/uploads", response_model=UploadPage, responses=build_openapi_problem_responses(412)
)
def list_uploads(actor: Read, db: Db, page: Page) -> Response:
    """List your uploads that are neither submitted nor removed, newest first.

    Their received bytes count towards your storage.
    """
    return build_json_response(
        uploads.list_uploads(db, actor, limit=page.limit, cursor=page.cursor)
    )


@router.head(
    "/v1/uploads/{upload}",
    summary="Read",
    response_class=Response,
    responses=build_openapi_problem_responses(412),
)
def read_upload_offset(upload: UploadPath, actor: Read, db: Db) -> Response:
    """Return the number of received bytes in `Upload-Offset`."""
    state = uploads.read_upload_progress(db, actor, upload)
    metadata = {} if state.details is None else {"Upload-Metadata": state.details}
    return Response(
        headers={
            **tus.build_upload_state_headers(state),
            "Upload-Length": str(state.length),
            **metadata,
        }
    )


@router.patch(
    "/v1/uploads/{upload}",
    summary="Append",
    status_code=204,
    responses=build_openapi_problem_responses(409, 412, 423, 429, 460),
    openapi_extra=_piece,
    dependencies=[Depends(_declare_upload_piece_headers)],
)
async def append_to_upload(
    upload: UploadPath,
    actor: Write,
    sent: Annotated[UploadReception, Depends(make_upload_reception_dependency(PIECE))],
    store: ObjectStore,
) -> Response:
    """Send the next piece. The received part of an interrupted piece is kept: HEAD says where to
    resume.
    """
    db, settings, request = sent.db, sent.settings, sent.request
    # First of all, so that no other error reveals that an upload exists.
    await to_thread.run_sync(uploads.read_upload_progress, db, actor, upload)
    head = sent.check_request_head(settings.max_body_bytes)
    offset, checksum = (
        tus.parse_byte_count_header(request.headers, "Upload-Offset"),
        tus.parse_upload_checksum_header(request.headers),
    )
    # For its check alone: an invalid value is refused before a byte is read.
    tus.parse_upload_complete_header(request.headers)
    terms = uploads.UploadLimits.from_settings(settings)
    with sent.hold_upload_slot():
        async with hold_upload_lease(db, actor, upload, offset) as writing:
            refuse_piece_by_declared_length(request, head, writing)
            await to_thread.run_sync(
                uploads.require_storage_room_for_piece, db, writing, head.length, terms
            )
            async with receive_whole_or_cut_piece_into_spool(
                request, head, writing, checksum, settings
            ) as (
                piece,
                cut,
            ):
                if piece.bytes:
                    state = await to_thread.run_sync(
                        uploads.append_upload_piece, db, store, actor, writing, piece, terms
                    )
                else:
                    await to_thread.run_sync(uploads.release_upload_lease, db, writing)
                    state = await to_thread.run_sync(
                        uploads.read_upload_progress, db, actor, upload
                    )
                # A piece that was cut off is stored first, and then reported.
                if cut is not None:
                    raise cut
    return Response(status_code=204, headers=tus.build_upload_state_headers(state))


@router.delete(
    "/v1/uploads/{upload}",
    summary="Delete",
    status_code=204,
    responses=build_openapi_problem_responses(412),
)
def delete_upload(upload: UploadPath, actor: Write, db: Db, store: ObjectStore) -> Response:
    """Remove an upload and its received bytes."""
    uploads.delete_upload(db, store, actor, upload)
    return Response(status_code=204)
