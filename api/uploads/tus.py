"""Headers of tus 1.0.0 (https://tus.io/protocols/resumable-upload) and of the corresponding IETF
draft.

X-HTTP-Method-Override is not supported: this service and a proxy in front of it could interpret the
request differently.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import Invalid, UnsupportedTusVersion
from core.uploads.uploads import LEAST_BYTES, UploadProgress

PATH = "/v1/uploads"
VERSION = "1.0.0"
EXTENSIONS = "creation,expiration,termination,checksum"
ALGORITHMS = {"sha256": 32, "sha1": 20}
"""Checksum algorithms and their size in bytes. tus requires every server to support sha1."""
PIECE, PARTIAL = "application/offset+octet-stream", "application/partial-upload"
"""Media types of a piece: tus's, and the IETF draft's."""
MAX_DETAILS = 4096
"""Maximum number of characters of Upload-Metadata."""
MAX_PAIRS = 20
_UNSPOKEN = {
    "Upload-Concat": "Begin one upload of the whole file, and send its bytes in order by PATCH.",
    "Upload-Defer-Length": "Say the bytes of the whole file in Upload-Length.",
}
"""Headers of unsupported extensions, and what to send instead."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_PAIR = re.compile(r"([\x21-\x2b\x2d-\x7e]{1,100})(?: ([A-Za-z0-9+/]*={0,2}))?")


class TusVersionMiddleware:
    """Pure ASGI middleware that adds the tus protocol version to responses of upload paths."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PATH):
            await self.app(scope, receive, send)
            return

        async def send_with_tus_headers(message: Message) -> None:
            # The version belongs on errors, too, so it is added outside the handlers.
            if message["type"] == "http.response.start":
                version_headers = (
                    (b"tus-resumable", VERSION.encode()),
                    (b"tus-version", VERSION.encode()),
                )
                message = {**message, "headers": [*message.get("headers", ()), *version_headers]}
            await send(message)

        await self.app(scope, receive, send_with_tus_headers)


@dataclass(frozen=True)
class PieceChecksum:
    """Checksum that a client announced for a piece of an upload: algorithm, and digest in hex."""

    algorithm: str
    hex: str

    def matches_file(self, path: Path) -> bool:
        """Return True if a file has the announced checksum."""
        with path.open("rb") as file:
            return hashlib.file_digest(file, self.algorithm).hexdigest() == self.hex


def refuse_unsupported_tus_version(headers: Headers) -> None:
    """Raise UnsupportedTusVersion if a request names another version of tus; the draft's requests name
    none.
    """
    version = get_unrepeated_header(headers, "tus-resumable")
    if version not in (None, VERSION):
        raise UnsupportedTusVersion(f"Tus-Resumable is {version[:40]!r}; {VERSION} is spoken here.")


def refuse_unsupported_tus_extensions(headers: Headers) -> None:
    """Raise Invalid if a request uses an unsupported tus extension."""
    for name, instead in _UNSPOKEN.items():
        if name in headers:
            raise Invalid(
                f"{name} is not supported: the extensions here are {EXTENSIONS} (Tus-Extension). "
                f"{instead}",
                fields=[{"field": name, "message": "is not supported"}],
            )


def get_unrepeated_header(headers: Headers, name: str) -> str | None:
    """Return the value of a header, or None without it. Raises Invalid if it is repeated."""
    values = headers.getlist(name)
    # Of two values, a proxy could act on one and this service on the other.
    if len(values) > 1:
        raise Invalid(
            f"The header {name} is given {len(values)} times.",
            fields=[{"field": name, "message": "given twice"}],
        )
    return values[0] if values else None


def parse_byte_count_header(headers: Headers, name: str) -> int:
    """Parse a header that contains a number of bytes.

    Raises:
        Invalid: it is missing, or not a number from 0 to 10^18 − 1.
    """
    value = get_unrepeated_header(headers, name)
    if value is None or not _NUMBER.fullmatch(value):
        problem = "is missing" if value is None else f"is {value[:40]!r}"
        raise Invalid(
            f"{name} {problem}: send a number of bytes, such as {name}: 1048576.",
            fields=[{"field": name, "message": "must be a number of bytes"}],
        )
    return int(value)


def get_valid_upload_metadata_header(headers: Headers) -> str | None:
    """Return Upload-Metadata as it was sent: `name base64, …`. Raises Invalid if malformed or too
    long.
    """
    value = get_unrepeated_header(headers, "Upload-Metadata")
    if not value:
        return None
    if len(value) > MAX_DETAILS:
        raise _build_metadata_error(f"has {len(value)} characters; {MAX_DETAILS} are allowed")
    pairs = value.split(",")
    if len(pairs) > MAX_PAIRS:
        raise _build_metadata_error(f"has {len(pairs)} pairs; {MAX_PAIRS} are allowed")
    names: set[str] = set()
    for pair in pairs:
        match = _PAIR.fullmatch(pair.strip(" "))
        if match is None or not _is_base64(match[2] or ""):
            raise _build_metadata_error(
                f"holds {pair.strip()[:40]!r}, which is no name with a value in base64"
            )
        if match[1] in names:
            raise _build_metadata_error(f"names {match[1][:40]!r} twice")
        names.add(match[1])
    return value


def parse_upload_checksum_header(headers: Headers) -> PieceChecksum | None:
    """Return the checksum in Upload-Checksum, or None. Raises Invalid if it cannot be used."""
    value = get_unrepeated_header(headers, "Upload-Checksum")
    if value is None:
        return None
    algorithm, _, text = value.partition(" ")
    size = ALGORITHMS.get(algorithm)
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeError):
        # Reported below, together with digests of a wrong length.
        raw = b""
    if size is None or len(raw) != size:
        raise Invalid(
            f"Upload-Checksum is {value[:40]!r}: send the algorithm ({' or '.join(ALGORITHMS)}), a "
            "space, and the digest of this piece in base64.",
            fields=[
                {"field": "Upload-Checksum", "message": "no such algorithm, or no digest of it"}
            ],
        )
    return PieceChecksum(algorithm, raw.hex())


def parse_upload_complete_header(headers: Headers) -> bool | None:
    """Return True if the draft's Upload-Complete marks the last piece; None without it. Raises
    Invalid.
    """
    value = get_unrepeated_header(headers, "Upload-Complete")
    if value not in (None, "?0", "?1"):
        raise Invalid(
            f"Upload-Complete is {value[:40]!r}: send ?1 with the last piece, else ?0.",
            fields=[{"field": "Upload-Complete", "message": "must be ?0 or ?1"}],
        )
    return None if value is None else value == "?1"


def build_upload_state_headers(state: UploadProgress) -> dict[str, str]:
    """Return an upload's offset and expiry as headers of both resumable-upload protocols."""
    return {
        "Upload-Offset": str(state.offset),
        "Upload-Complete": "?1" if state.offset == state.length else "?0",
        # tus requires the date format of HTTP.
        "Upload-Expires": formatdate(state.expires_at, usegmt=True),
    }


def build_upload_limit_headers(max_bytes: int, hours: float) -> dict[str, str]:
    """Return the size limits of uploads as headers of both resumable-upload protocols."""
    return {
        "Tus-Extension": EXTENSIONS,
        "Tus-Max-Size": str(max_bytes),
        "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
        "Upload-Limit": f"max-size={max_bytes}, min-append-size={LEAST_BYTES}, "
        f"max-age={round(hours * 3600)}",
    }


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _build_metadata_error(problem: str) -> Invalid:
    return Invalid(
        f"Upload-Metadata {problem}.", fields=[{"field": "Upload-Metadata", "message": problem}]
    )
