"""Who asks, and what the service is."""

from typing import Literal

from typing_extensions import TypedDict


class OwnerLimits(TypedDict):
    """What one owner may do, in each API process; null: no limit.

    `max_body_bytes`: of one upload; `max_uploads`: under way at once; `max_open_jobs`: that are not over;
    `max_owner_bytes`: in the store; `max_requests_per_s`: on average.
    """

    max_body_bytes: int
    max_uploads: int
    max_open_jobs: int
    max_owner_bytes: int | None
    max_requests_per_s: float | None


class Formats(TypedDict):
    """`uploads`: media types that a batch may have; `downloads`: values of `?format=`."""

    uploads: list[str]
    downloads: list[str]


class ServiceOut(TypedDict):
    """The service. `auth`: whether it asks for keys."""

    version: str
    formats: Formats
    auth: Literal["on", "off"]


class MeOut(TypedDict):
    """The caller. `key`: id of the key, null where the service asks for none; `owner`: name of the owner that
    it belongs to; `expires_at`: null: never."""

    key: str | None
    owner: str
    scope: Literal["scrape", "read", "write", "admin"]
    expires_at: str | None
    limits: OwnerLimits
    service: ServiceOut
