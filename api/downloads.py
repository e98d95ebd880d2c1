"""Downloads of stored blobs: digests, conditional requests and one byte range (RFC 9110).

A request for several ranges, or in another unit, receives the whole file. Files are streamed and
not held in memory. A damaged file is a typed error, or is cut off before its last bytes: no client
receives all of it.
"""

import base64
import re
from collections.abc import Iterator
from typing import Protocol

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from api import problems
from core.storage import Blobs, ObjectStorage

# A presigned URL works without a key, so it expires soon.
PRESIGNED_S = 900
_RANGE = re.compile(
    r"\s*bytes\s*=\s*(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))\s*", re.IGNORECASE
)
_TAG = re.compile(r'(?:W/)?"[^"]*"')

DOWNLOAD_HEADERS: list[dict[str, JsonValue]] = [
    {"in": "header", "name": name, "required": False, "schema": {"type": "string"}}
    for name in ("Range", "If-Range", "If-None-Match")
]


class StoredFileReader(Protocol):
    """Protocol of a source from which a download's bytes can be read in chunks."""

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield chunks of the file with this digest, or of a range of it.

        The file is verified before the first or before the last chunk.
        """
        ...


def build_openapi_download_responses(
    *media_types: str, redirect: bool = False
) -> dict[int | str, dict[str, JsonValue]]:
    """Return the success responses of a download, for a route's `responses=`."""
    file: JsonValue = {"schema": {"type": "string", "format": "binary"}}
    content: JsonValue = {media_type: file for media_type in media_types}
    responses: dict[int | str, dict[str, JsonValue]] = {
        200: {"description": "The file", "content": content},
        206: {"description": "The asked range of the file", "content": content},
        304: {"description": "The client has this file"},
        **problems.build_openapi_problem_responses(416),
    }
    if redirect:
        responses[307] = {"description": "At a presigned URL of the object store"}
    return responses


def build_file_response(
    request: Request,
    source: StoredFileReader,
    sha256: str,
    size: int,
    media_type: str,
    filename: str,
) -> Response:
    """Return the response to GET or HEAD for a stored file, usually a blob.

    Args:
        size: size of the file in bytes.
        filename: name under which a browser saves it; plain ASCII.
    """
    headers = {
        **_build_digest_headers(sha256),
        "Accept-Ranges": "bytes",
        "Content-Disposition": f'attachment; filename="{filename}"',
        "Content-Type": media_type,
    }
    # If-None-Match is evaluated before Range (RFC 9110 §13.2.2).
    if _is_digest_in_if_none_match(request.headers.get("if-none-match"), sha256):
        return Response(status_code=304, headers={k: headers[k] for k in ("ETag", "Repr-Digest")})
    # A server ignores Range with any method but GET (RFC 9110 §14.2).
    range_header = request.headers.get("range") if request.method == "GET" else None
    # A client that has part of another file gets the whole one instead.
    if range_header is not None and _does_if_range_allow_range(
        request.headers.get("if-range"), sha256
    ):
        byte_range = _parse_byte_range(range_header, size)
        if byte_range == "unsatisfiable":
            status, problem_headers, body = problems.convert_http_status_to_problem(
                416, f"The file has {size} bytes."
            )
            return Response(body, status, {**problem_headers, "Content-Range": f"bytes */{size}"})
        if isinstance(byte_range, tuple):
            first, last = byte_range
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            headers["Content-Length"] = str(last - first + 1)
            return StreamingResponse(source.read(sha256, first, last - first + 1), 206, headers)
    headers["Content-Length"] = str(size)
    if request.method == "HEAD":
        return Response(headers=headers)
    return StreamingResponse(source.read(sha256), headers=headers)


def build_presigned_redirect_if_possible(
    request: Request,
    store: ObjectStorage,
    blobs: Blobs,
    sha256: str,
    media_type: str,
    filename: str,
) -> Response | None:
    """Return 307 to a presigned URL with the digest in headers, or None if `build_file_response`
    should
    answer.

    `build_file_response` answers for a store without URLs, for HEAD (the signature covers GET
    only), and for a client that already has the file. The blob is verified first, because the
    service does not see bytes that the store sends.

    Raises:
        StoredObjectDamaged: the blob is damaged.
    """
    if request.method != "GET" or _is_digest_in_if_none_match(
        request.headers.get("if-none-match"), sha256
    ):
        return None
    url = store.make_download_url(
        Blobs.make_blob_key(sha256),
        PRESIGNED_S,
        {
            "content-disposition": f'attachment; filename="{filename}"',
            "content-type": media_type,
        },
    )
    if url is None:
        return None
    blobs.require_blob_digest(sha256)
    # The URL grants access for its lifetime: no cache may keep it.
    return RedirectResponse(
        url, 307, {**_build_digest_headers(sha256), "Cache-Control": "no-store"}
    )


def _build_digest_headers(sha256: str) -> dict[str, str]:
    digest = base64.b64encode(bytes.fromhex(sha256)).decode()
    return {"ETag": f'"{sha256}"', "Repr-Digest": f"sha-256=:{digest}:"}


def _is_digest_in_if_none_match(if_none_match: str | None, sha256: str) -> bool:
    """Return True if `If-None-Match` names the digest (weak comparison)."""
    if if_none_match is None:
        return False
    tags = [tag.removeprefix("W/") for tag in _TAG.findall(if_none_match)]
    return if_none_match.strip() == "*" or f'"{sha256}"' in tags


def _does_if_range_allow_range(header: str | None, sha256: str) -> bool:
    """Return True if `If-Range` allows a range: strong comparison.

    A date never matches, since there is no Last-Modified.
    """
    return header is None or header.strip() == f'"{sha256}"'


def _parse_byte_range(header: str, size: int) -> tuple[int, int] | str | None:
    """Return (first, last) byte, "unsatisfiable", or None for a header to ignore."""
    match = _RANGE.fullmatch(header)
    if match is None:
        return None
    start, end, suffix = match.groups()
    if suffix is not None:
        count = min(int(suffix), size)
        # Without a byte to send, Content-Range could name neither a first nor a last one.
        return (size - count, size - 1) if count else "unsatisfiable"
    first = int(start)
    # Such a range is invalid, and an invalid Range is ignored (RFC 9110 §14.1.1).
    if end and int(end) < first:
        return None
    if first >= size:
        return "unsatisfiable"
    return first, min(int(end), size - 1) if end else size - 1
