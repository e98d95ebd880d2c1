"""Buckets of S3, Google Cloud and Azure, through fsspec's implementations and the user's
credentials.

A listing is read page by page without caching. An object is read only in the listed version.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from perennial.pack.errors import PackError
from perennial.pack.extras import import_optional_module_or_raise
from perennial.pack.remote.address import BucketAddress
from perennial.pack.remote.fetching import RemoteImageChanged
from perennial.pack.text import quote_name

PAGE_KEYS = 1000
_GONE = "is there no more, or has been replaced"


class ListedObject(NamedTuple):
    """An object listed in a bucket: key, size in bytes, and version (an ETag or a generation)."""

    key: str
    size: int
    version: str


class StoreOptions(NamedTuple):
    """Options for opening a cloud storage bucket, such as endpoint and anonymous access.

    Attributes:
        endpoint: URL of another service with the same protocol.
        profile: profile of the AWS configuration.
        anonymous: access without credentials, as for public buckets.
    """

    endpoint: str = ""
    profile: str = ""
    anonymous: bool = False


class RemoteBucket(ABC):
    """Base class of a cloud storage bucket whose objects are listed and read."""

    def __init__(self, address: BucketAddress) -> None:
        self.address = address
        self.errors: tuple[type[Exception], ...] = (OSError, ValueError)

    def list_object_pages(self) -> Iterator[list[ListedObject]]:
        """Yield the objects below the prefix of the bucket, one list per page of the store.

        Raises PackError if it cannot be listed.
        """
        token: str | None = None
        while True:
            try:
                rows, following = self._read_listing_page(token)
            except self.errors as error:
                raise PackError(
                    f"{quote_name(str(self.address))} cannot be listed: {_format_store_error(error)}. "
                    f"Are the name and the credentials "
                    "right? They are those of the tools of your cloud."
                ) from error
            yield rows
            if not following:
                return
            # A faulty store that repeats a page would be listed forever.
            if following == token:
                raise PackError(
                    f"The listing of {quote_name(str(self.address))} comes to no end: it repeats a "
                    f"page."
                )
            token = following

    def read_object(self, listed: ListedObject) -> bytes:
        """Read an object of the bucket. Raises RemoteImageChanged or PackError."""
        try:
            # One byte more than listed reveals an object that has grown.
            return self._read_object_start(listed, listed.size + 1)
        except FileNotFoundError:
            raise RemoteImageChanged(_GONE) from None
        except self.errors as error:
            if self._is_changed_error(error):
                raise RemoteImageChanged(_GONE) from error
            raise PackError(
                f"The object {quote_name(listed.key)} of {quote_name(str(self.address))} cannot be "
                f"read: {_format_store_error(error)}. Send the "
                "batch again: what has arrived is kept."
            ) from error

    @abstractmethod
    def _read_listing_page(self, token: str | None) -> tuple[list[ListedObject], str | None]:
        """Read a page of the bucket's listing; return it with the token of the next page, or None."""

    @abstractmethod
    def _read_object_start(self, listed: ListedObject, max_bytes: int) -> bytes:
        """Return the first `max_bytes` bytes of a bucket's object in its listed version."""

    def _is_changed_error(self, error: Exception) -> bool:
        """Return True if the store's error means that the object was replaced after it was listed."""
        del error
        return False


class S3Store(RemoteBucket):
    """A bucket of Amazon S3, or of a service with its protocol."""

    def __init__(self, address: BucketAddress, options: StoreOptions) -> None:
        super().__init__(address)
        s3fs = import_optional_module_or_raise("s3fs", "A bucket of S3", "s3")
        botocore = import_optional_module_or_raise("botocore.exceptions", "A bucket of S3", "s3")
        self.errors = (*self.errors, botocore.BotoCoreError, botocore.ClientError)
        self._sync = import_optional_module_or_raise("fsspec.asyn", "A bucket of S3", "s3").sync
        file_system_options: dict[str, Any] = {"anon": options.anonymous}
        if options.endpoint:
            file_system_options["endpoint_url"] = options.endpoint
        if options.profile:
            file_system_options["profile"] = options.profile
        # Caches of fsspec would give an earlier listing, or an instance with other credentials.
        self._fs = s3fs.S3FileSystem(
            use_listings_cache=False, skip_instance_cache=True, **file_system_options
        )

    def _read_listing_page(self, token: str | None) -> tuple[list[ListedObject], str | None]:
        more = {"ContinuationToken": token} if token else {}
        response = self._fs.call_s3(
            "list_objects_v2",
            Bucket=self.address.bucket,
            Prefix=self.address.prefix,
            MaxKeys=PAGE_KEYS,
            **more,
        )
        rows = [
            ListedObject(row["Key"], int(row["Size"]), row.get("ETag", ""))
            for row in response.get("Contents", ())
        ]
        return rows, response.get("NextContinuationToken") if response.get("IsTruncated") else None

    def _read_object_start(self, listed: ListedObject, max_bytes: int) -> bytes:
        # A replaced object is refused instead of being sent under the size of the old one.
        match = {"IfMatch": listed.version} if listed.version else {}
        response = self._fs.call_s3(
            "get_object", Bucket=self.address.bucket, Key=listed.key, **match
        )
        # In the event loop of fsspec, to which the body's connection belongs.
        content: bytes = self._sync(
            self._fs.loop, _read_body_start_and_close, response["Body"], max_bytes
        )
        return content

    def _is_changed_error(self, error: Exception) -> bool:
        # s3fs raises OSError from botocore's error, and only the latter has the code.
        code = str(
            getattr(error.__cause__ or error, "response", {}).get("Error", {}).get("Code", "")
        )
        return code in ("412", "PreconditionFailed", "404", "NoSuchKey")


class GoogleStore(RemoteBucket):
    """A bucket of Google Cloud Storage."""

    def __init__(self, address: BucketAddress, options: StoreOptions) -> None:
        super().__init__(address)
        # gcsfs.core, so that no other protocol is tried.
        gcsfs = import_optional_module_or_raise("gcsfs.core", "A bucket of Google Cloud", "gs")
        google = import_optional_module_or_raise(
            "google.auth.exceptions", "A bucket of Google Cloud", "gs"
        )
        http = import_optional_module_or_raise("gcsfs.retry", "A bucket of Google Cloud", "gs")
        aiohttp = import_optional_module_or_raise("aiohttp", "A bucket of Google Cloud", "gs")
        self.errors = (*self.errors, google.GoogleAuthError, http.HttpError, aiohttp.ClientError)
        file_system_options: dict[str, Any] = {"token": "anon"} if options.anonymous else {}
        if options.endpoint:
            file_system_options["endpoint_url"] = options.endpoint
        self._fs = gcsfs.GCSFileSystem(
            # Fewer rights than the credentials may have, since nothing is written.
            access="read_only",
            use_listings_cache=False,
            skip_instance_cache=True,
            **file_system_options,
        )

    def _read_listing_page(self, token: str | None) -> tuple[list[ListedObject], str | None]:
        response = self._fs.call(
            "GET",
            "b/{}/o",
            self.address.bucket,
            prefix=self.address.prefix,
            maxResults=PAGE_KEYS,
            json_out=True,
            **({"pageToken": token} if token else {}),
        )
        rows = [
            ListedObject(row["name"], int(row["size"]), str(row["generation"]))
            for row in response.get("items", ())
        ]
        return rows, response.get("nextPageToken")

    def _read_object_start(self, listed: ListedObject, max_bytes: int) -> bytes:
        path = f"{self.address.bucket}/{listed.key}"
        content: bytes = self._fs.cat_file(path, start=0, end=max_bytes, generation=listed.version)
        return content


class AzureStore(RemoteBucket):
    """A container of Azure Blob Storage."""

    def __init__(self, address: BucketAddress, options: StoreOptions) -> None:
        super().__init__(address)
        adlfs = import_optional_module_or_raise("adlfs", "A container of Azure", "az")
        azure = import_optional_module_or_raise(
            "azure.core.exceptions", "A container of Azure", "az"
        )
        self._core = import_optional_module_or_raise("azure.core", "A container of Azure", "az")
        self._sync = import_optional_module_or_raise(
            "fsspec.asyn", "A container of Azure", "az"
        ).sync
        self.errors = (*self.errors, azure.AzureError)
        self._changes = (azure.ResourceModifiedError, azure.ResourceNotFoundError)
        if options.endpoint:
            raise PackError(
                "az:// has no endpoint=; name another service in AZURE_STORAGE_CONNECTION_STRING."
            )
        file_system_options = {"anon": True} if options.anonymous else {}
        try:
            # fsspec would reuse earlier listings and instances, and miss objects added since.
            self._fs = adlfs.AzureBlobFileSystem(
                use_listings_cache=False, skip_instance_cache=True, **file_system_options
            )
        except ValueError as error:
            raise PackError(
                f"{quote_name(str(address))} cannot be opened: {_format_store_error(error)}. Set "
                f"AZURE_STORAGE_ACCOUNT_NAME, and a key or "
                "a token as the tools of Azure take it, or AZURE_STORAGE_CONNECTION_STRING."
            ) from error

    def _read_listing_page(self, token: str | None) -> tuple[list[ListedObject], str | None]:
        page: tuple[list[ListedObject], str | None] = self._sync(
            self._fs.loop, self._fetch_listing_page, token
        )
        return page

    async def _fetch_listing_page(self, token: str | None) -> tuple[list[ListedObject], str | None]:
        client = self._fs.service_client.get_container_client(self.address.bucket)
        listing = client.list_blobs(
            name_starts_with=self.address.prefix or None, results_per_page=PAGE_KEYS
        )
        pages = listing.by_page(token)
        # Only the first page is read: the token leads to the next one.
        async for page in pages:
            return [
                ListedObject(one.name, one.size, one.etag) async for one in page
            ], pages.continuation_token
        return [], None

    def _read_object_start(self, listed: ListedObject, max_bytes: int) -> bytes:
        content: bytes = self._sync(self._fs.loop, self._fetch_first_bytes, listed, max_bytes)
        return content

    async def _fetch_first_bytes(self, listed: ListedObject, max_bytes: int) -> bytes:
        client = self._fs.service_client.get_blob_client(self.address.bucket, listed.key)
        # As in S3Store: a replaced object is refused.
        condition = self._core.MatchConditions.IfNotModified
        stream = await client.download_blob(
            offset=0, length=max_bytes, etag=listed.version, match_condition=condition
        )
        content: bytes = await stream.readall()
        return content

    def _is_changed_error(self, error: Exception) -> bool:
        return isinstance(error, self._changes)


STORES: dict[str, Callable[[BucketAddress, StoreOptions], RemoteBucket]] = {
    "s3": S3Store,
    "gs": GoogleStore,
    "az": AzureStore,
}


def open_remote_bucket(address: BucketAddress, options: StoreOptions) -> RemoteBucket:
    """Open the bucket of a cloud storage address. Raises ExtraMissing or PackError."""
    if options.endpoint and not options.endpoint.startswith(("https://", "http://")):
        raise PackError(
            f"The endpoint {quote_name(options.endpoint)} is no URL such as https://s3.example.org."
        )
    if options.profile and address.scheme != "s3":
        raise PackError(f"{address.scheme}:// has no profile=; that is of s3.")
    return STORES[address.scheme](address, options)


async def _read_body_start_and_close(body: Any, max_bytes: int) -> bytes:
    """Read up to `max_bytes` bytes of a response's body, then close it."""
    pieces, remaining_bytes = [], max_bytes
    try:
        while remaining_bytes and (piece := await body.read(min(remaining_bytes, 1 << 20))):
            pieces.append(piece)
            remaining_bytes -= len(piece)
    finally:
        body.close()
    return b"".join(pieces)


def _format_store_error(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:300].rstrip(".")
