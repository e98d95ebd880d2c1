"""Addresses of buckets: exactly `s3://bucket/prefix`, `gs://…` and `az://…`."""

import re
from typing import NamedTuple

from perennial.pack.errors import PackError
from perennial.pack.text import quote_name

SCHEMES = ("s3", "gs", "az")
_SCHEME_START = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(::|://?)")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}[a-z0-9]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MAX_PREFIX_BYTES = 1024
_OTHERS = {"gcs": "gs", "s3a": "s3", "s3n": "s3", "abfs": "az", "abfss": "az"}


class BucketAddress(NamedTuple):
    """Scheme, bucket and key prefix of a folder in cloud storage.

    Attributes:
        prefix: prefix of its keys, ending with a slash; empty: the whole bucket.
    """

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}".removesuffix("/")


def is_remote_address(text: str) -> bool:
    """Return True if a text is an address with a scheme, and not a path (a Windows drive is a
    path).
    """
    match = _SCHEME_START.match(text)
    return (
        match is not None and (match[2] in ("::", "://") or len(match[1]) > 1) and match[2] != ":/"
    )


def parse_bucket_address(text: str) -> BucketAddress:
    """Parse a cloud storage address `s3://`, `gs://` or `az://` with its prefix. Raises PackError."""
    scheme, separator, remainder = text.partition("://")
    # fsspec would read a chain of file systems, and a local file could be one of its links.
    if "::" in text:
        raise PackError(
            f"{quote_name(text)} chains addresses with “::”; give one of {_format_known_schemes()}."
        )
    if not separator or scheme not in SCHEMES:
        suggestion = _OTHERS.get(scheme.lower()) or (
            scheme.lower() if scheme.lower() in SCHEMES else None
        )
        hint = f" Write {suggestion}://." if suggestion else ""
        if scheme.lower() in ("http", "https"):
            hint = " URLs are sent as a list: a CSV whose first line is url,label."
        raise PackError(
            f"{quote_name(text)} is no source that is read; possible are paths, and "
            f"{_format_known_schemes()}.{hint}"
        )
    bucket, _, prefix = remainder.partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise PackError(
            f"{quote_name(bucket)} in {quote_name(text)} is no name of a bucket; give one of "
            f"{_format_known_schemes()}."
        )
    if _CONTROL.search(prefix) or len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise PackError(
            f"The prefix of {quote_name(text)} has control characters, or more than "
            f"{MAX_PREFIX_BYTES:,} bytes."
        )
    # With a slash, because “cats” alone is also a prefix of “cats-old/1.png”.
    return BucketAddress(
        scheme, bucket, prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    )


def _format_known_schemes() -> str:
    return ", ".join(f"{scheme}://bucket/prefix" for scheme in SCHEMES)
