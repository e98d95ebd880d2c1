"""Stage 1 of an upload: checks of the request's head, before a byte of its body is read."""

import base64
import binascii
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from api.authentication.guard import read_declared_length
from core.errors import BodyTooLarge, Invalid, ServiceDiskFull, UnsupportedContentType
from core.settings import Settings

MULTIPART_OVERHEAD = 1 << 20
"""Bytes that parts' headers and fields may add to a multipart body."""
# A disk filled by one upload would fail every other request that writes.
RESERVED_DISK_BYTES = 64 << 20
_DIGEST = re.compile(r"(?:^|,)\s*sha-256\s*=\s*([^,]*)")

Look = Callable[[bytes, str | None], str]
"""Returns a file's type, given its first bytes and its declared media type, or raises."""


@dataclass(frozen=True)
class UploadRouteRules:
    """Form fields, media types and size limits that an upload route accepts.

    Attributes:
        route: method and path template, under which idempotency keys are stored.
        headers: names of headers that must be equal in a repeated request.
        fields: fields that a form may have beside its one `file`; None: no form is accepted.
        media_types: of the body, None for an undeclared one; empty: `look` decides.
        not_taken: error message for a body of another type.
        look: called with a file's first bytes (`SNIFF_BYTES`, or all); its errors end the upload.
    """

    route: str
    headers: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = None
    media_types: frozenset[str | None] = frozenset()
    not_taken: str = ""
    look: Look | None = None


@dataclass(frozen=True)
class UploadRequestHead:
    """Lengths, digest and media type of an upload, as declared by the headers of its request.

    Attributes:
        limit, body_limit: maximum bytes of the file, and of the body that contains it.
        length: Content-Length, None for a chunked body.
        digest: SHA-256 in hex from Content-Digest.
        media_type: lower case, without parameters; None if not declared.
        boundary: boundary of a multipart body.
    """

    limit: int
    body_limit: int
    length: int | None
    digest: str | None
    media_type: str | None
    boundary: bytes | None


def check_upload_head(
    request: Request, terms: UploadRouteRules, limit: int, settings: Settings
) -> UploadRequestHead:
    """Check the headers of an upload request and return what they declare.

    Args:
        limit: maximum size of the file in bytes.

    Raises:
        BodyTooLarge, UnsupportedContentType, Invalid: the head declares an unacceptable body.
        ServiceDiskFull: the disk has no room for it.
    """
    headers = request.headers
    # Limits and digests apply to the bytes as sent: nothing is decompressed here.
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedContentType("Send the body without Content-Encoding.")
    length = read_declared_length(headers.get("content-length"))
    kind, options = parse_options_header(headers.get("content-type"))
    media_type = kind.decode("latin-1").lower() or None
    boundary, body_limit = None, limit
    if media_type == "multipart/form-data":
        if terms.fields is None:
            raise UnsupportedContentType("Send the file itself as the body.")
        boundary = options.get(b"boundary")
        # The limit of RFC 2046 §5.1.1.
        if not boundary or len(boundary) > 70:
            raise Invalid("The multipart body needs a boundary of at most 70 characters.")
        # Parts of a form also have headers and boundaries.
        body_limit += MULTIPART_OVERHEAD
    if length is not None:
        if length > body_limit:
            raise BodyTooLarge(f"The body may have {body_limit} bytes; this one has {length}.")
        free = shutil.disk_usage(settings.make_folder("spool")).free
        if length + RESERVED_DISK_BYTES > free:
            raise ServiceDiskFull("There is no room on the service's disk for this upload.")
    digest = parse_sha256_digest_header(headers.get("content-digest"), "Content-Digest")
    if terms.media_types and media_type not in terms.media_types:
        raise UnsupportedContentType(terms.not_taken)
    return UploadRequestHead(limit, body_limit, length, digest, media_type, boundary)


def parse_sha256_digest_header(header: str | None, name: str) -> str | None:
    """Return the SHA-256 in hex from a digest field `sha-256=:…:` (RFC 9530); None without one.

    Args:
        name: name of the field, for the error message.

    Raises:
        Invalid: it is not a digest.
    """
    match = _DIGEST.search(header) if header else None
    if match is None:
        return None
    value = match.group(1).strip()
    try:
        raw = base64.b64decode(value[1:-1].encode("ascii"), validate=True)
    except (binascii.Error, UnicodeError):
        # Reported below, together with digests of a wrong length.
        raw = b""
    if not (value.startswith(":") and value.endswith(":") and len(raw) == 32):
        subject = "body" if name == "Content-Digest" else "whole file"
        raise Invalid(f"{name} must be sha-256=:BASE64: of the {subject}.")
    return raw.hex()
