"""Objects by key in a folder or in S3, with content-addressed blobs on either.

`open_object_store` reads the store's URL from the settings. Nothing in this package logs, prints or raises
the secret of an access key. Importing it does not load the S3 client; opening an S3 store does.
"""

from pathlib import Path

from core.settings import Settings
from core.storage.blobs import VERIFIED, Blobs
from core.storage.folder import FolderStore
from core.storage.objects import ObjectInfo, ObjectStorage
from core.storage.timed import TimedStore

__all__ = ["Blobs", "ObjectInfo", "ObjectStorage", "open_object_store"]


def open_object_store(settings: Settings, *, waited_for: bool = False) -> ObjectStorage:
    """Open the object store that `PERENNIAL_STORE_URL` names, without contacting or creating
    anything.

    Args:
        waited_for: a client waits for the result, so that an outage must be reported within
            seconds.

    Raises:
        ValueError: the URL, or a key of an S3 store, is missing or wrong.
    """
    # All stores of the process share this memory, which was made before the settings were read.
    VERIFIED.age_s = settings.verified_s
    url = settings.resolved_store_url
    scheme, _, path = url.partition("://")
    if scheme == "file":
        # A relative folder would be another one for each process with its own working directory.
        if not path.startswith("/"):
            raise ValueError("PERENNIAL_STORE_URL must be file:///ABSOLUTE/FOLDER.")
        return TimedStore(FolderStore(Path(path)))
    if scheme == "s3":
        from core.storage.address import S3Address

        # the client costs 0.2 s of start: only who needs it pays
        from core.storage.s3 import REQUEST_LIMITS, S3Store

        address = S3Address.parse(url)
        # Otherwise, the client would fall back on anonymous requests.
        if not settings.store_access_key or not settings.resolved_store_secret_key:
            raise ValueError(
                "An S3 store needs PERENNIAL_STORE_ACCESS_KEY and PERENNIAL_STORE_SECRET_KEY"
                " (or PERENNIAL_STORE_SECRET_KEY_FILE)."
            )
        limits = REQUEST_LIMITS if waited_for else None
        return TimedStore(
            S3Store(
                address,
                settings.store_access_key,
                settings.resolved_store_secret_key,
                limits=limits,
            )
        )
    raise ValueError("PERENNIAL_STORE_URL must start with file:/// or s3://.")
