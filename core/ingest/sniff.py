"""Detection of a body's container by its first bytes, compared with the declared type."""

from core.errors import ArchiveInvalid, UnsupportedContentType
from core.ingest.image_file.kinds import kind_of
from core.ingest.image_file.unreadable import Unreadable
from core.ingest.names import quote_name
from core.ingest.reader import UploadReader
from core.ingest.readers.registry import READERS, UPLOAD_TYPES
from perennial.reading_rules import foreign

SNIFF_BYTES = 1024
"""Number of first bytes that suffice to distinguish all formats."""

_DECLARED = {media_type: reader for reader in READERS.values() for media_type in reader.media_types}
_ACCEPTED = ", ".join(UPLOAD_TYPES)


def detect_upload_format(first_bytes: bytes, declared: str | None) -> str:
    """Return the name of the upload format that an uploaded body has by its first bytes.

    `first_bytes` are the first SNIFF_BYTES of the body, or fewer if it is shorter. `declared` is
    its media type; None or application/octet-stream if the sender gave none. Raises ArchiveInvalid
    for an empty body, UnsupportedContentType if the type is unknown or contradicts the bytes.
    """
    # Parameters such as a charset say nothing about an archive.
    media = (declared or "application/octet-stream").split(";")[0].strip().lower()
    if media != "application/octet-stream" and media not in _DECLARED:
        raise UnsupportedContentType(
            f"The content type {quote_name(media)} is not one of {_ACCEPTED}."
        )
    if not first_bytes:
        raise ArchiveInvalid("The body is empty; send an archive of images.")
    reader = _find_upload_reader_by_first_bytes(first_bytes)
    if reader is None:
        if _is_image_file_start(first_bytes):
            raise UnsupportedContentType(
                "This is a single picture. Put the pictures of each class into a folder of its "
                "own, and send the folder that holds these folders, or a zip of it."
            )
        kind = foreign.find_unsupported_file_kind(first=first_bytes)
        description = (
            f"those of {kind.description}. {kind.conversion_advice}"
            if kind
            else f"of no known archive; send {_ACCEPTED}"
        )
        raise UnsupportedContentType(f"The first bytes of the body are {description}.")
    expected = _DECLARED.get(media, reader)
    # The declared type is more specific than the first bytes.
    if expected.special_of == reader.name:
        return expected.name
    if expected.name in (reader.name, reader.special_of):
        return reader.name
    raise UnsupportedContentType(
        f"The declared type is {media} but the first bytes are those of a {reader.name}."
    )


def _is_image_file_start(first_bytes: bytes) -> bool:
    try:
        return bool(kind_of(first_bytes))
    except Unreadable:
        return False


def _find_upload_reader_by_first_bytes(first: bytes) -> UploadReader | None:
    """Return the upload reader that recognises the bytes, or one for a special case of its format."""
    general_reader = next(
        (r for r in READERS.values() if r.special_of is None and r.recognises_format(first)), None
    )
    if general_reader is None:
        return None
    special = (
        r
        for r in READERS.values()
        if r.special_of == general_reader.name and r.recognises_format(first)
    )
    return next(special, general_reader)
