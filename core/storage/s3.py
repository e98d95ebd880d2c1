"""A store in a bucket of any S3-compatible server, through the `minio` client.

Memory is constant: files are uploaded in parts of a fixed size and downloaded in chunks. Every call
has time-outs and a bounded number of retries with growing pauses. An interrupted download resumes
where it stopped. Error texts name the server and S3's error code, never a key, a header or a signed
URL.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from xml.etree.ElementTree import ParseError

import certifi
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3 import BaseHTTPResponse, PoolManager, Retry, Timeout
from urllib3.connectionpool import ConnectionPool
from urllib3.exceptions import HTTPError, MaxRetryError
from urllib3.exceptions import TimeoutError as TimeoutError_

from core.errors import StoredObjectDamaged, Unavailable
from core.storage.address import S3Address
from core.storage.objects import (
    CHUNK_BYTES,
    STRAY_AFTER_S,
    ObjectInfo,
    check_key_prefix,
    check_object_key,
    require_nonnegative_range,
)

PART_BYTES = 8 << 20
# S3 accepts no more parts in one upload.
MAX_PARTS = 10_000
PRESIGN_MAX_S = 900
_RETRIED_STATUS = (429, 500, 502, 503, 504)
_SIGNED_HEADERS = frozenset(
    {
        "content-type",
        "content-language",
        "expires",
        "cache-control",
        "content-disposition",
        "content-encoding",
    }
)
"""The response headers that S3 lets a signed URL set (GetObject, `response-…` parameters)."""
_ABSENT = frozenset({"NoSuchKey", "ResourceNotFound"})


@dataclass(frozen=True)
class S3TimeLimits:
    """Time limits of one call to S3.

    Attributes:
        connect_s: seconds for a connection.
        read_s: seconds without a byte from the server.
        retries: number of further tries.
        pause_s: first pause between tries in seconds; it doubles each time.
    """

    connect_s: float = 3.0
    read_s: float = 20.0
    retries: int = 3
    pause_s: float = 0.2
    repeat_silence: bool = True
    """Repeat a request to a server that accepted it but did not respond in time."""

    def make_connection_pool(self) -> PoolManager:
        """Return a connection pool for S3 with these time limits; TLS certificates are always
        verified.
        """
        return PoolManager(
            timeout=Timeout(connect=self.connect_s, read=self.read_s),
            retries=(Retry if self.repeat_silence else _RetryExceptAfterTimeout)(
                total=self.retries,
                backoff_factor=self.pause_s,
                backoff_jitter=self.pause_s,
                backoff_max=5.0,
                status_forcelist=_RETRIED_STATUS,
                allowed_methods=None,  # every S3 call used here is safe to repeat
                # A server must not choose how long a request hangs
                respect_retry_after_header=False,
                # The last response is returned instead, since it has S3's error code.
                raise_on_status=False,
            ),
            maxsize=16,
            cert_reqs="CERT_REQUIRED",
            # As in the client's own pool, which this one replaces.
            ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
        )


class _RetryExceptAfterTimeout(Retry):
    """Retry policy for S3: retries after errors and broken connections, but not after a time-out."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
        if isinstance(error, TimeoutError_):
            raise MaxRetryError(_pool, url, error) from error  # type: ignore[arg-type]
        return super().increment(method, url, response, error, _pool, _stacktrace)


REQUEST_LIMITS = S3TimeLimits(connect_s=2.0, read_s=5.0, retries=2, repeat_silence=False)
"""Limits while a client waits.

Two time-outs in a row (a part, then the end of its upload) still leave the client 15 s.
"""
CHECK_LIMITS = S3TimeLimits(connect_s=1.0, read_s=2.0, retries=0)


class S3Store:
    """Object store in an S3 bucket, under the address's prefix.

    Safe for threads; not to be shared across a fork.
    """

    def __init__(
        self,
        address: S3Address,
        access_key: str,
        secret_key: str,
        *,
        limits: S3TimeLimits | None = None,
    ) -> None:
        self.address = address
        self._limits = limits or S3TimeLimits()
        self._client = _make_s3_client(address, access_key, secret_key, self._limits)
        # A check must answer within seconds, without the retries of other calls.
        self._check_client = _make_s3_client(address, access_key, secret_key, CHECK_LIMITS)

    def __repr__(self) -> str:
        return f"S3Store({str(self.address)!r})"

    def put_file(self, key: str, path: Path, *, move: bool = False) -> str:
        """Store a file in S3, in parts if it is large. The object appears with the last part."""
        name = self._get_object_name(key)
        with path.open("rb") as handle:
            tag = self._put_object(name, handle, os.fstat(handle.fileno()).st_size)
        if move:
            path.unlink(missing_ok=True)
        return tag

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store bytes under a key in S3."""
        self._put_object(self._get_object_name(key), BytesIO(data), len(data))

    def _put_object(self, name: str, handle: BinaryIO, size: int) -> str:
        """Store an object in S3 and return its ETag."""
        # S3 takes 10,000 parts at most, so parts of a very large file are larger.
        part = max(PART_BYTES, -(-size // MAX_PARTS))
        # If the response that completes a multipart upload is lost, the client repeats the request
        # and the server answers NoSuchUpload, although the object may exist. Sending the whole
        # object again is always right.
        for last in (False, True):
            handle.seek(0)
            with self._translate_client_errors():
                try:
                    # One part at a time: memory stays at two parts, and no thread outlives an
                    # error.
                    written = self._client.put_object(
                        self.address.bucket,
                        name,
                        handle,
                        size,
                        part_size=part,
                        num_parallel_uploads=1,
                    )
                    return written.etag or ""
                except S3Error as error:
                    if last or error.code != "NoSuchUpload":
                        raise
        raise AssertionError("the second try returns or raises")

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Return chunks of an S3 object or of a range of it; raise StoredObjectDamaged if it is missing."""
        require_nonnegative_range(offset, length)
        name = self._get_object_name(key)
        # For the client, a length of 0 means the rest of the object.
        if length == 0:
            if self.stat(key) is None:
                raise _build_missing_object_error(key)
            return iter(())
        response = self._start_download(key, name, offset, length)
        return (
            iter(()) if response is None else self._read_chunks(key, name, offset, length, response)
        )

    def _start_download(
        self, key: str, name: str, offset: int, length: int | None
    ) -> BaseHTTPResponse | None:
        """Start the download of an S3 object and return its response; None if the range lies beyond
        the end.
        """
        with self._translate_client_errors():
            try:
                response = self._client.get_object(self.address.bucket, name, offset, length or 0)
                # Without a length, a connection that breaks looks like the end of the object.
                if "content-length" not in response.headers or (
                    (offset or length) and response.status != 206
                ):
                    response.close()
                    raise HTTPError("a server that ignores ranges cannot be used")
                return response
            except S3Error as error:
                if error.code in _ABSENT:
                    raise _build_missing_object_error(key) from None
                if error.code == "InvalidRange":
                    return None
                raise

    def _read_chunks(
        self, key: str, name: str, offset: int, length: int | None, response: BaseHTTPResponse
    ) -> Iterator[bytes]:
        etag = response.headers.get("etag")
        end = offset + int(response.headers["content-length"])
        failures, whole_since = 0, offset
        try:
            while offset < end:
                try:
                    chunk = response.read(min(CHUNK_BYTES, end - offset), decode_content=False)
                    if not chunk:
                        # No bytes before the announced end: the server closed the connection.
                        raise HTTPError("the answer ended early")
                except (HTTPError, OSError) as error:
                    failures += 1
                    response.close()
                    if failures > self._limits.retries:
                        raise self._build_outage_error(error) from error
                    time.sleep(self._limits.pause_s * 2**failures)
                    resumed = self._start_download(key, name, offset, end - offset)
                    # The rest of another object must not be appended to the first part of this one.
                    if resumed is None or resumed.headers.get("etag") != etag:
                        raise StoredObjectDamaged(
                            f"The stored object {key} changed while it was read."
                        ) from error
                    response, whole_since = resumed, offset
                    continue
                offset += len(chunk)
                if offset - whole_since >= CHUNK_BYTES:
                    # A connection that breaks before this many bytes counts as one more failure.
                    failures = 0
                yield chunk
            # Only a response that was read to its end leaves a connection that can be used again.
            response.release_conn()
        finally:
            response.close()

    def stat(self, key: str) -> ObjectInfo | None:
        """Return size, time and ETag of an S3 object; None if there is no such object."""
        name = self._get_object_name(key)
        with self._translate_client_errors():
            try:
                metadata = self._client.stat_object(self.address.bucket, name)
            except S3Error as error:
                if error.code in _ABSENT:
                    return None
                raise
        modified = metadata.last_modified.timestamp() if metadata.last_modified else 0.0
        return ObjectInfo(
            key, metadata.size or 0, modified, f"{metadata.etag}-{modified}", metadata.etag or ""
        )

    def delete(self, key: str) -> None:
        """Delete the S3 object of a key."""
        name = self._get_object_name(key)
        with self._translate_client_errors():
            try:
                self._client.remove_object(self.address.bucket, name)
            except S3Error as error:
                # S3 reports success for a missing object, but another server may not.
                if error.code not in _ABSENT:
                    raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the S3 objects whose key starts with `prefix`, one page of the server at a time."""
        start = self.address.prefix + check_key_prefix(prefix)
        # Not a generator itself, so that a wrong prefix is refused at once.
        return self._list_objects(start)

    def _list_objects(self, start: str) -> Iterator[ObjectInfo]:
        objects = self._client.list_objects(self.address.bucket, prefix=start, recursive=True)
        while True:
            with self._translate_client_errors():
                # The pages are requested while they are read, so errors come here and not above.
                item = next(objects, None)
            if item is None:
                return
            name = item.object_name or ""
            modified = item.last_modified.timestamp() if item.last_modified else 0.0
            yield ObjectInfo(name.removeprefix(self.address.prefix), item.size or 0, modified)

    def get_local_path(self, key: str) -> Path | None:
        """Return None, because an S3 store has no local files."""
        # A wrong key is refused as by a folder, though none is used here.
        check_object_key(key)
        return None

    def make_download_url(self, key: str, seconds: int, headers: Mapping[str, str]) -> str | None:
        """Return a URL by which an S3 object can be downloaded for `seconds` (1 to 900), with these
        response headers.

        Raises:
            ValueError: another lifetime, or a header that S3 does not let a URL set.
        """
        name = self._get_object_name(key)
        # A signed URL cannot be revoked with the key of its owner, so it lives for minutes only.
        if not 1 <= seconds <= PRESIGN_MAX_S:
            raise ValueError(f"a signed URL lives 1 to {PRESIGN_MAX_S} seconds, not {seconds}")
        fixed: dict[str, str] = {}
        for header, value in headers.items():
            if header.lower() not in _SIGNED_HEADERS:
                raise ValueError(f"a signed URL cannot set the header {header!r}")
            fixed[f"response-{header.lower()}"] = value
        with self._translate_client_errors():
            return self._client.get_presigned_url(
                "GET", self.address.bucket, name, timedelta(seconds=seconds), dict(fixed)
            )

    def check_store_usable(self) -> None:
        """Raise `Unavailable` unless the S3 server responds within 3 seconds and has the bucket."""
        with self._translate_client_errors():
            if not self._check_client.bucket_exists(self.address.bucket):
                raise self._make_missing_bucket_error()

    def create_folder_or_bucket(self) -> None:
        """Create the S3 bucket if it is missing."""
        with self._translate_client_errors():
            if self._client.bucket_exists(self.address.bucket):
                return
            try:
                self._client.make_bucket(self.address.bucket, self.address.region)
            except S3Error as error:
                if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    # Another process was faster; the first call shows whether the bucket is ours.
                    raise

    def remove_incomplete_objects(self, older_s: float = STRAY_AFTER_S) -> None:
        """Abort multipart uploads to S3 that a killed process left unfinished.

        Some servers list none for a whole bucket. Those, such as MinIO, abort old ones by
        themselves.
        """
        oldest = datetime.now(UTC) - timedelta(seconds=older_s)
        bucket = self.address.bucket
        # The client has these calls, but no public name for them.
        with self._translate_client_errors():
            # No key has a bar. The empty delimiter that the client sends by default hides
            # everything on some servers.
            listing = self._client._list_multipart_uploads(
                bucket, delimiter="|", prefix=self.address.prefix
            )
            for upload in listing.uploads:
                initiated_at, upload_id = upload.initiated_time, upload.upload_id
                if initiated_at is None or upload_id is None or initiated_at > oldest:
                    continue
                try:
                    self._client._abort_multipart_upload(bucket, upload.object_name, upload_id)
                except S3Error as error:
                    if error.code != "NoSuchUpload":  # another worker was faster
                        raise

    def _get_object_name(self, key: str) -> str:
        return self.address.prefix + check_object_key(key)

    @contextmanager
    def _translate_client_errors(self) -> Iterator[None]:
        """Convert the S3 client's errors about the server or the network into `Unavailable`."""
        try:
            yield
        except (MinioException, HTTPError, ParseError) as error:
            raise self._build_outage_error(error) from error

    def _build_outage_error(self, error: Exception) -> Unavailable:
        if isinstance(error, S3Error) and error.code == "NoSuchBucket":
            return self._make_missing_bucket_error()
        if isinstance(error, MaxRetryError) and error.reason is not None:
            error = error.reason
        if isinstance(error, S3Error):
            # The code alone, since a message may contain a key or a signed URL.
            reason = error.code or "an error without a code"
        elif isinstance(error, (ServerError, InvalidResponseError)):
            reason = f"HTTP status {_read_http_status_of_s3_error(error)}"
        else:
            reason = type(error).__name__
        return Unavailable(
            f"The object store at {self.address.endpoint} failed: {reason}.", retry_after_s=5
        )

    def _make_missing_bucket_error(self) -> Unavailable:
        return Unavailable(
            f"The object store at {self.address.endpoint} has no bucket {self.address.bucket}:"
            " run `perennial migrate`, which makes it."
        )


def _read_http_status_of_s3_error(error: ServerError | InvalidResponseError) -> str:
    # `InvalidResponseError` has its status in a private attribute only.
    return str(getattr(error, "status_code", None) or getattr(error, "_code", "unknown"))


def _make_s3_client(
    address: S3Address, access_key: str, secret_key: str, limits: S3TimeLimits
) -> Minio:
    return Minio(
        address.endpoint,
        access_key=access_key,
        secret_key=secret_key,
        secure=address.secure,
        # Given, or the client would ask the server for it, even to sign a URL.
        region=address.region,
        http_client=limits.make_connection_pool(),
    )


def _build_missing_object_error(key: str) -> StoredObjectDamaged:
    return StoredObjectDamaged(f"The stored object {key} is missing.", extra={"object": key})
