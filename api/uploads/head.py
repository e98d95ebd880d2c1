"""Station 1 of an upload: what the head of its request shows, before a byte of the body is read."""

import base64
import binascii
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from api.guard import declared_length
from core.errors import BodyTooLarge, Invalid, NoSpace, UnsupportedType
from core.settings import Settings

MULTIPART_OVERHEAD = 1 << 20
"""Bytes that parts' headers and fields may add to a multipart body."""
RESERVED_DISK_BYTES = 64 << 20
_DIGEST = re.compile(r"(?:^|,)\s*sha-256\s*=\s*([^,]*)")

Look = Callable[[bytes, str | None], str]
"""Says what a file is by its first bytes and its declared media type, or raises."""


@dataclass(frozen=True)
class Terms:
    """What a route takes.

    Attributes:
        route: method and path template, under which idempotency keys are kept.
        headers: names of headers that must be equal in a repeated request.
        fields: that a form may have beside its one `file`; None: no form is taken.
        media_types: of the body, None for one that is not declared; empty: `look` decides.
        not_taken: what a body of another type is told.
        look: called with a file's first bytes (`SNIFF_BYTES`, or all); what it raises ends the upload at once.
    """

    route: str
    headers: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = None
    media_types: frozenset[str | None] = frozenset()
    not_taken: str = ""
    look: Look | None = None


@dataclass(frozen=True)
class Head:
    """What a request says about its body.

    Attributes:
        limit, body_limit: bytes that the file may have, and the body around it.
        length: Content-Length, None for a chunked body.
        digest: sha256 in hex from Content-Digest.
        media_type: lower case, without parameters; None when the client did not say.
        boundary: of a multipart body.
    """

    limit: int
    body_limit: int
    length: int | None
    digest: str | None
    media_type: str | None
    boundary: bytes | None


def checked(request: Request, terms: Terms, limit: int, settings: Settings) -> Head:
    """What the request's head says.

    Args:
        limit: bytes that the file may have.

    Raises:
        BodyTooLarge, UnsupportedType, Invalid: the head says so.
        NoSpace: the disk has none.
    """
    headers = request.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedType("Send the body without Content-Encoding.")
    length = declared_length(headers.get("content-length"))
    kind, options = parse_options_header(headers.get("content-type"))
    media_type = kind.decode("latin-1").lower() or None
    boundary, most = None, limit
    if media_type == "multipart/form-data":
        if terms.fields is None:
            raise UnsupportedType("Send the file itself as the body.")
        boundary = options.get(b"boundary")
        if not boundary or len(boundary) > 70:
            raise Invalid("The multipart body needs a boundary of at most 70 characters.")
        most += MULTIPART_OVERHEAD
    if length is not None:
        if length > most:
            raise BodyTooLarge(f"The body may have {most} bytes; this one has {length}.")
        free = shutil.disk_usage(settings.folder("spool")).free
        if length + RESERVED_DISK_BYTES > free:
            raise NoSpace("There is no room on the service's disk for this upload.")
    digest = sha256_in(headers.get("content-digest"), "Content-Digest")
    if terms.media_types and media_type not in terms.media_types:
        raise UnsupportedType(terms.not_taken)
    return Head(limit, most, length, digest, media_type, boundary)


def sha256_in(header: str | None, name: str) -> str | None:
    """The sha256 in hex of a digest field `sha-256=:…:` (RFC 9530), called `name`; other algorithms are left alone.

    Raises:
        Invalid: it is no digest.
    """
    found = _DIGEST.search(header) if header else None
    if found is None:
        return None
    value = found.group(1).strip()
    try:
        raw = base64.b64decode(value[1:-1].encode("ascii"), validate=True)
    except (binascii.Error, UnicodeError):
        raw = b""
    if not (value.startswith(":") and value.endswith(":") and len(raw) == 32):
        of = "body" if name == "Content-Digest" else "whole file"
        raise Invalid(f"{name} must be sha-256=:BASE64: of the {of}.")
    return raw.hex()
