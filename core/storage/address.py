"""The address of an S3 store: `s3://HOST:PORT/BUCKET[/PREFIX]?secure=0&region=us-east-1`.

Parsing is strict on purpose. An unknown option is an error, and so is a key inside the URL, where
it would end up in logs. The error message does not repeat the URL.
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from core.storage.objects import check_object_key

_FORM = "s3://HOST:PORT/BUCKET[/PREFIX]?secure=0&region=us-east-1"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION = re.compile(r"[a-z0-9-]{1,40}")


@dataclass(frozen=True)
class S3Address:
    """Location of an object store in S3: endpoint, bucket and prefix.

    `endpoint` is HOST:PORT; `prefix` is empty or ends with a slash.
    """

    endpoint: str
    bucket: str
    prefix: str
    secure: bool
    region: str

    @classmethod
    def parse(cls, url: str) -> "S3Address":
        """Parse the URL of an S3 store. TLS is on unless `secure=0`; the region defaults to
        us-east-1.

        Raises:
            ValueError: the URL has another form, an unknown option, or credentials inside.
        """
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise ValueError(
                "PERENNIAL_STORE_URL must not hold keys: use PERENNIAL_STORE_ACCESS_KEY and "
                "_SECRET_KEY."
            )
        bucket, _, prefix = parts.path.removeprefix("/").partition("/")
        prefix = prefix.strip("/")
        if (
            parts.scheme != "s3"
            or not parts.hostname
            or not _BUCKET.fullmatch(bucket)
            # A prefix with a `#` would silently end there.
            or parts.fragment
        ):
            raise ValueError(f"PERENNIAL_STORE_URL must be {_FORM}.")
        if prefix:
            try:
                check_object_key(prefix)
            except ValueError:
                # Without the first error, which quotes the prefix.
                raise ValueError(
                    "The prefix in PERENNIAL_STORE_URL has characters that are not allowed."
                ) from None
        # Blank values count, so that `secure=` is refused instead of ignored.
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        secure, region = options.pop("secure", "1"), options.pop("region", "us-east-1")
        # A misspelt `secure` would otherwise go unnoticed.
        if options or secure not in ("0", "1") or not _REGION.fullmatch(region):
            raise ValueError(
                f"PERENNIAL_STORE_URL knows the options secure=0|1 and region: {_FORM}."
            )
        return cls(parts.netloc, bucket, f"{prefix}/" if prefix else "", secure == "1", region)

    def __str__(self) -> str:
        return f"s3://{self.endpoint}/{self.bucket}/{self.prefix}".rstrip("/")
