"""The list of upload formats. A new format is a file in this folder and a line here."""

from core.errors import UnsupportedContentType
from core.ingest.names import quote_name
from core.ingest.reader import UploadReader
from core.ingest.readers.npz import NpzReader
from core.ingest.readers.tar import GzippedTarReader, TarReader
from core.ingest.readers.zip import ZipReader
from perennial.formats import UploadFormats

_ALL: list[UploadReader] = [
    ZipReader(),
    TarReader(),
    GzippedTarReader(),
    NpzReader(),
]
READERS = {each.name: each for each in _ALL}
"""Readers by the name that is stored with a task."""
FORMATS = UploadFormats(tuple(each.format for each in _ALL))
"""Endings and marks of all readers; `tools.client_sync` writes them for the client."""
UPLOAD_TYPES = [each.media_types[0] for each in _ALL]
"""The media types to send; a reader may accept others with the same meaning."""


def get_upload_reader_by_format_name(name: str) -> UploadReader:
    """Return the upload format's reader of that name. Raises UnsupportedContentType."""
    if name not in READERS:
        raise UnsupportedContentType(f"{quote_name(name)} is no archive that can be read.")
    return READERS[name]
