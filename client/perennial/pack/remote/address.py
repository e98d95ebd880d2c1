"""Addresses of sources beyond the disk: `s3://bucket/prefix`, `gs://…` and `az://…`, and nothing else."""

import re
from typing import NamedTuple

from perennial.pack.errors import PackError
from perennial.pack.text import show

SCHEMES = ("s3", "gs", "az")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(::|://?)")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}[a-z0-9]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MAX_PREFIX_BYTES = 1024
_OTHERS = {"gcs": "gs", "s3a": "s3", "s3n": "s3", "abfs": "az", "abfss": "az"}


class Address(NamedTuple):
    """A folder of a bucket. prefix: what its keys begin with, with a slash at the end, or empty for all of it."""

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}".removesuffix("/")


def is_address(text: str) -> bool:
    """Return whether a text names something by a scheme, rather than by a path; a drive of Windows is a path."""
    found = _SCHEME.match(text)
    return found is not None and (found[2] in ("::", "://") or len(found[1]) > 1) and found[2] != ":/"


def address_of(text: str) -> Address:
    """Parse a text. Raises PackError unless it is exactly `s3://`, `gs://` or `az://`, a bucket and a prefix."""
    scheme, there, rest = text.partition("://")
    if "::" in text:
        raise PackError(f"{show(text)} chains addresses with “::”; give one of {_forms()}.")
    if not there or scheme not in SCHEMES:
        other = _OTHERS.get(scheme.lower()) or (scheme.lower() if scheme.lower() in SCHEMES else None)
        hint = f" Write {other}://." if other else ""
        if scheme.lower() in ("http", "https"):
            hint = " URLs are sent as a list: a CSV whose first line is url,label."
        raise PackError(f"{show(text)} is no source that is read; possible are paths, and {_forms()}.{hint}")
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise PackError(f"{show(bucket)} in {show(text)} is no name of a bucket; give one of {_forms()}.")
    if _CONTROL.search(prefix) or len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise PackError(
            f"The prefix of {show(text)} has control characters, or more than {MAX_PREFIX_BYTES:,} bytes."
        )
    return Address(scheme, bucket, prefix if not prefix or prefix.endswith("/") else f"{prefix}/")


def _forms() -> str:
    return ", ".join(f"{scheme}://bucket/prefix" for scheme in SCHEMES)
