"""What kind of container a body is, from its first bytes, and whether the declared type agrees."""

from core.errors import ArchiveInvalid, UnsupportedType
from core.ingest.names import show
from core.ingest.reader import Reader
from core.ingest.readers.registry import READERS, UPLOAD_TYPES
from core.ingest.rules import foreign

SNIFF_BYTES = 1024
"""Enough first bytes to tell every kind apart."""

_DECLARED = {media_type: reader for reader in READERS.values() for media_type in reader.media_types}
_ACCEPTED = ", ".join(UPLOAD_TYPES)


def sniff(first_bytes: bytes, declared: str | None) -> str:
    """Return the name of the reader that the body is for, see `core.ingest.readers.registry`.

    `first_bytes`: the first SNIFF_BYTES of the body (fewer when it is shorter); `declared`: its media
    type, None or application/octet-stream when the sender did not say. Raises ArchiveInvalid for an
    empty body, UnsupportedType when the type is unknown or contradicts the bytes.
    """
    media = (declared or "application/octet-stream").split(";")[0].strip().lower()
    if media != "application/octet-stream" and media not in _DECLARED:
        raise UnsupportedType(f"The content type {show(media)} is not one of {_ACCEPTED}.")
    if not first_bytes:
        raise ArchiveInvalid("The body is empty; send an archive of images.")
    found = _reader(first_bytes)
    if found is None:
        kind = foreign.what_is(first=first_bytes)
        what = f"those of {kind.what}. {kind.advice}" if kind else f"of no known archive; send {_ACCEPTED}"
        raise UnsupportedType(f"The first bytes of the body are {what}.")
    expected = _DECLARED.get(media, found)
    if expected.special_of == found.name:  # the sender knows better than the first bytes
        return expected.name
    if expected.name in (found.name, found.special_of):
        return found.name
    raise UnsupportedType(f"The declared type is {media} but the first bytes are those of a {found.name}.")


def _reader(first: bytes) -> Reader | None:
    """The first reader that knows the bytes; before it one that is a special case of it."""
    found = next((r for r in READERS.values() if r.special_of is None and r.sniff(first)), None)
    if found is None:
        return None
    special = (r for r in READERS.values() if r.special_of == found.name and r.sniff(first))
    return next(special, found)
