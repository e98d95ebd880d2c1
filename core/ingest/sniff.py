"""What kind of container a body is, from its first bytes, and whether the declared type agrees."""

import struct

from core.errors import ArchiveInvalid, UnsupportedType
from core.ingest.names import show
from core.ingest.tar_stream import is_tar_header

SNIFF_BYTES = 1024
"""Enough first bytes to tell every kind apart."""

_DECLARED = {
    "application/zip": "zip",
    "application/x-zip-compressed": "zip",
    "application/x-tar": "tar",
    "application/gzip": "gzip",
    "application/x-gzip": "gzip",
    "application/x-npz": "npz",
}
_ACCEPTED = "application/zip, application/x-tar, application/gzip, application/x-npz"


def sniff(first_bytes: bytes, declared: str | None) -> str:
    """Return `zip`, `tar`, `gzip` or `npz`.

    `first_bytes`: the first SNIFF_BYTES of the body (fewer when it is shorter); `declared`: its media
    type, None or application/octet-stream when the sender did not say. Raises ArchiveInvalid for an
    empty body, UnsupportedType when the type is unknown or contradicts the bytes.
    """
    media = (declared or "application/octet-stream").split(";")[0].strip().lower()
    if media != "application/octet-stream" and media not in _DECLARED:
        raise UnsupportedType(f"The content type {show(media)} is not one of {_ACCEPTED}.")
    if not first_bytes:
        raise ArchiveInvalid("The body is empty; send an archive of images.")
    found = _kind(first_bytes)
    if found is None:
        raise UnsupportedType(f"The first bytes of the body are of no known archive; send {_ACCEPTED}.")
    expected = _DECLARED.get(media, found)
    if expected == found or {expected, found} == {"zip", "npz"}:
        # An npz is a zip of npy members: what the members are decides, unless the sender says npz.
        return "npz" if "npz" in (expected, found) else found
    raise UnsupportedType(f"The declared type is {media} but the first bytes are those of a {found}.")


def _kind(first: bytes) -> str | None:
    if first.startswith(b"PK\x03\x04"):
        if len(first) < 30:
            return "zip"
        (name_bytes,) = struct.unpack_from("<H", first, 26)
        name = first[30 : 30 + name_bytes]
        return "npz" if name.endswith(b".npy") and b"/" not in name else "zip"
    if first.startswith(b"PK\x05\x06"):
        return "zip"
    if first.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if len(first) >= 512 and is_tar_header(first[:512]):
        return "tar"
    return None
