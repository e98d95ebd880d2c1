"""The upload formats of the service of this version. Written by `python -m tools.client_sync` from its readers: change nothing here."""

from perennial.formats import Format, UploadFormats

FORMATS = UploadFormats(
    (
        Format(('.zip',), ((0, b'PK\x03\x04'), (0, b'PK\x05\x06'))),
        Format(('.tar',), ((257, b'ustar'),)),
        Format(('.tar.gz', '.tgz'), ((0, b'\x1f\x8b\x08'),)),
        Format(('.npz',), ()),
    )
)
