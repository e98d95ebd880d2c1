"""The caller, and the service."""

from typing import Literal

from typing_extensions import TypedDict


class OwnerLimits(TypedDict):
    """Request limits of one owner in each API process; null: no limit.

    - `max_body_bytes`: size of one upload.
    - `max_uploads`: simultaneous uploads.
    - `max_open_jobs`: unfinished jobs.
    - `max_owner_bytes`: bytes in the store.
    - `max_requests_per_s`: average rate of requests.
    """

    max_body_bytes: int
    max_uploads: int
    max_open_jobs: int
    max_owner_bytes: int | None
    max_requests_per_s: float | None


class Formats(TypedDict):
    """File formats that the service supports for uploads and downloads.

    - `uploads`: media types of batches.
    - `downloads`: values of `?format=`.
    """

    uploads: list[str]
    downloads: list[str]


class ServiceOut(TypedDict):
    """Facts about the service: version, formats and whether it requires keys (`auth`)."""

    version: str
    formats: Formats
    auth: Literal["on", "off"]


class MeOut(TypedDict):
    """The caller: key, owner, scope and limits, with facts about the service.

    - `key`: id of the key; null if the service requires none.
    - `owner`: name of the key's owner.
    - `expires_at`: null: never.
    """

    key: str | None
    owner: str
    scope: Literal["scrape", "read", "write", "admin"]
    expires_at: str | None
    limits: OwnerLimits
    service: ServiceOut
