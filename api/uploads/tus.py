"""What tus 1.0.0 says in headers (https://tus.io/protocols/resumable-upload), and the IETF's draft beside it.

A method that hides in a header (X-HTTP-Method-Override) is not looked for: this service and a proxy before it would
understand the request in two ways.
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

from core.errors import Invalid, ProtocolVersion
from core.requests.uploads import LEAST_BYTES, State

PATH = "/v1/uploads"
VERSION = "1.0.0"
EXTENSIONS = "creation,expiration,termination,checksum"
ALGORITHMS = {"sha256": 32, "sha1": 20}
"""Checksums, with their bytes. sha1 is the one that every server of tus must know."""
PIECE, PARTIAL = "application/offset+octet-stream", "application/partial-upload"
"""Media types of a piece: that of tus, and that of the IETF's draft."""
MAX_DETAILS = 4096
"""Characters of Upload-Metadata."""
MAX_PAIRS = 20
_UNSPOKEN = {
    "Upload-Concat": "Begin one upload of the whole file, and send its bytes in order by PATCH.",
    "Upload-Defer-Length": "Say the bytes of the whole file in Upload-Length.",
}
"""Headers of extensions that are not spoken, and what to send in their place."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_PAIR = re.compile(r"([\x21-\x2b\x2d-\x7e]{1,100})(?: ([A-Za-z0-9+/]*={0,2}))?")


class Tus:
    """Pure ASGI middleware: every answer of these paths names the version, refusals too."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PATH):
            await self.app(scope, receive, send)
            return

        async def named_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = ((b"tus-resumable", VERSION.encode()), (b"tus-version", VERSION.encode()))
                message = {**message, "headers": [*message.get("headers", ()), *said]}
            await send(message)

        await self.app(scope, receive, named_send)


@dataclass(frozen=True)
class Checksum:
    """What the bytes of a piece must have: the algorithm, and the digest in hex."""

    algorithm: str
    hex: str

    def fits(self, path: Path) -> bool:
        """Whether a file has it."""
        with path.open("rb") as file:
            return hashlib.file_digest(file, self.algorithm).hexdigest() == self.hex


def require_version(headers: Headers) -> None:
    """Raises ProtocolVersion where a request names another version of tus; the draft's name none."""
    asked = one(headers, "tus-resumable")
    if asked not in (None, VERSION):
        raise ProtocolVersion(f"Tus-Resumable is {asked[:40]!r}; {VERSION} is spoken here.")


def require_spoken(headers: Headers) -> None:
    """Raises Invalid where a request asks for an extension of tus that is not spoken here."""
    for name, instead in _UNSPOKEN.items():
        if name in headers:
            raise Invalid(
                f"{name} is not supported: the extensions here are {EXTENSIONS} (Tus-Extension). {instead}",
                fields=[{"field": name, "message": "is not supported"}],
            )


def one(headers: Headers, name: str) -> str | None:
    """The value of a header, None without it. Raises Invalid where it comes twice."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise Invalid(
            f"The header {name} is given {len(found)} times.",
            fields=[{"field": name, "message": "given twice"}],
        )
    return found[0] if found else None


def number(headers: Headers, name: str) -> int:
    """The bytes that a header counts. Raises Invalid where it is missing, or no number from 0 to 10^18 - 1."""
    value = one(headers, name)
    if value is None or not _NUMBER.fullmatch(value):
        found = "is missing" if value is None else f"is {value[:40]!r}"
        raise Invalid(
            f"{name} {found}: send a number of bytes, such as {name}: 1048576.",
            fields=[{"field": name, "message": "must be a number of bytes"}],
        )
    return int(value)


def details(headers: Headers) -> str | None:
    """Upload-Metadata as it was sent: `name base64, …`. Raises Invalid where it is not that, or too much."""
    value = one(headers, "Upload-Metadata")
    if not value:
        return None
    if len(value) > MAX_DETAILS:
        raise _unfit_details(f"has {len(value)} characters; {MAX_DETAILS} are allowed")
    pairs = value.split(",")
    if len(pairs) > MAX_PAIRS:
        raise _unfit_details(f"has {len(pairs)} pairs; {MAX_PAIRS} are allowed")
    seen: set[str] = set()
    for pair in pairs:
        found = _PAIR.fullmatch(pair.strip(" "))
        if found is None or not _is_base64(found[2] or ""):
            raise _unfit_details(f"holds {pair.strip()[:40]!r}, which is no name with a value in base64")
        if found[1] in seen:
            raise _unfit_details(f"names {found[1][:40]!r} twice")
        seen.add(found[1])
    return value


def checksum(headers: Headers) -> Checksum | None:
    """What Upload-Checksum announces. Raises Invalid for another algorithm, or no digest of this one."""
    value = one(headers, "Upload-Checksum")
    if value is None:
        return None
    algorithm, _, text = value.partition(" ")
    size = ALGORITHMS.get(algorithm)
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeError):
        raw = b""
    if size is None or len(raw) != size:
        raise Invalid(
            f"Upload-Checksum is {value[:40]!r}: send the algorithm ({' or '.join(ALGORITHMS)}), a space, and the "
            "digest of this piece in base64.",
            fields=[{"field": "Upload-Checksum", "message": "no such algorithm, or no digest of it"}],
        )
    return Checksum(algorithm, raw.hex())


def completes(headers: Headers) -> bool | None:
    """What Upload-Complete (of the draft) says: whether this piece is the last; None: nothing. Raises Invalid."""
    value = one(headers, "Upload-Complete")
    if value not in (None, "?0", "?1"):
        raise Invalid(
            f"Upload-Complete is {value[:40]!r}: send ?1 with the last piece, else ?0.",
            fields=[{"field": "Upload-Complete", "message": "must be ?0 or ?1"}],
        )
    return None if value is None else value == "?1"


def said(state: State) -> dict[str, str]:
    """Where an upload is and how long it stays, as headers; both protocols'."""
    return {
        "Upload-Offset": str(state.offset),
        "Upload-Complete": "?1" if state.offset == state.length else "?0",
        "Upload-Expires": formatdate(state.expires_at, usegmt=True),
    }


def limits(max_bytes: int, hours: float) -> dict[str, str]:
    """What uploads may be, as headers; both protocols'."""
    return {
        "Tus-Extension": EXTENSIONS,
        "Tus-Max-Size": str(max_bytes),
        "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
        "Upload-Limit": f"max-size={max_bytes}, min-append-size={LEAST_BYTES}, max-age={round(hours * 3600)}",
    }


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _unfit_details(what: str) -> Invalid:
    return Invalid(f"Upload-Metadata {what}.", fields=[{"field": "Upload-Metadata", "message": what}])
