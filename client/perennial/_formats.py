"""The upload formats of the service of this version. Written by `python -m tools.client_sync` from its readers: change nothing here."""

from perennial.formats import UploadFormat, UploadFormats

FORMATS = UploadFormats(
    (
        UploadFormat(('.zip',), ((0, b'PK\x03\x04'), (0, b'PK\x05\x06'))),
        UploadFormat(('.tar',), ((257, b'ustar'),)),
        UploadFormat(('.tar.gz', '.tgz'), ((0, b'\x1f\x8b\x08'),)),
        UploadFormat(('.npz',), ()),
    )
)
