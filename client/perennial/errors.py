"""What can go wrong, each kind with a class of its own.

PerennialError
    ConfigError            no key, no such profile, no such file
    ServiceUnreachable     nothing answered
    DigestMismatch         what came is not what was announced
    BadAnswer              what came is no answer of this API, or too much of one
    APIError               the service answered with a problem (RFC 9457)
        Invalid, Unauthorized, Forbidden, NotFound, Conflict, TooLarge, TooManyRequests, Unavailable
        ArchiveRejected    the batch cannot be used (also Rejected)
    JobEnded               a job that was waited for ended without a published version
        GateHeld, JobRejected (also Rejected), JobFailed, JobCancelled
    WaitTimeout            it has not ended in time
    BaseUnavailable        the weights of the model's base could not be brought; a batch that waits for them is kept
        BaseFailed         the job that should have brought them failed (also JobFailed)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perennial.text import one_line, printable

if TYPE_CHECKING:
    from perennial._types import Attention, Job

MAX_DETAIL_CHARS = 4000
"""Of a sentence of the service that is shown."""
MAX_ERRORS = 20
"""Wrong fields that are shown."""


class PerennialError(Exception):
    """Base of all errors of this client; `str()` of each is a sentence that says what to do.

    It has no control characters, whatever the service sent: a traceback prints it as it is.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class ConfigError(PerennialError):
    """What the client was told, or was not told, does not let it begin."""


class UndecidedBatch(ConfigError):
    """A folder can be read in several ways, and neither options nor the classes that the model knows say which."""


class NoKey(ConfigError):
    """There is no key for the service."""


class ServiceUnreachable(PerennialError):
    """Nothing answered, or the connection broke and no further attempt may be made.

    Attributes:
        is_sent: whether the service may have got the request.
    """

    def __init__(self, message: str, *, is_sent: bool = False) -> None:
        super().__init__(message)
        self.is_sent = is_sent


class DigestMismatch(PerennialError):
    """The bytes that came do not have the sha256 that the service named; nothing of them was kept."""


class BadAnswer(PerennialError):
    """The service's answer cannot be used: it is not what the API says, or larger than anything that it says."""


class WaitTimeout(PerennialError, TimeoutError):
    """A job has not ended in the time that was given; it goes on."""


class BaseUnavailable(PerennialError):
    """The weights of a model's base could not be brought: what waits for them goes on once a person has acted."""


class Rejected(PerennialError):
    """A batch that cannot be used: at the submit (`ArchiveRejected`) or once its images were read (`JobRejected`)."""


class APIError(PerennialError):
    """The service answered with a problem.

    Attributes:
        status: of HTTP.
        type: a stable path that names the kind of problem, such as `/problems/not-found`.
        detail: a sentence that says what was found, what is allowed and what to send; on one line, without controls.
        errors: single wrong fields, `{"field": …, "message": …}`.
        request_id: under which the service's log has the request; None: it did not say.
        retry_after_s: seconds after which the service asks to come again.
        problem: all that it said.
    """

    def __init__(
        self,
        status: int,
        problem: Mapping[str, Any],
        *,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.status = status
        self.problem = dict(problem)
        self.type = str(problem.get("type", "about:blank"))
        detail = str(problem.get("detail") or problem.get("title") or f"The service answered {status}.")
        self.detail = one_line(detail[:MAX_DETAIL_CHARS])
        found = problem.get("errors")
        fields = found if isinstance(found, list) else []
        self.errors: list[dict[str, str]] = [one for one in fields if isinstance(one, dict)]
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        super().__init__(self.detail)

    @property
    def code(self) -> str:
        """The last word of `type`: `not-found`, `archive-too-large` …"""
        return self.type.rpartition("/")[2]

    def __str__(self) -> str:
        shown = self.errors[:MAX_ERRORS]
        lines = [one_line(f"{one.get('field')}: {one.get('message')}"[:MAX_DETAIL_CHARS]) for one in shown]
        return "\n".join([self.detail, *(f"  {line}" for line in lines)])


class Invalid(APIError):
    """A request that says something impossible (400, 415, 422)."""


class Unauthorized(APIError):
    """No key, or one that is unknown, revoked or expired (401)."""


class Forbidden(APIError):
    """The key's scope does not cover this (403)."""


class NotFound(APIError):
    """There is no such thing, or it belongs to somebody else (404)."""


class Conflict(APIError):
    """Not possible as things stand (409); `problem` has their state."""


class TooLarge(APIError):
    """More bytes, entries or classes than the service takes (413)."""


class TooManyRequests(APIError):
    """Too much at once, or a quota is reached (429)."""


class Unavailable(APIError):
    """The service, or a part of it, does not answer (5xx)."""


class ArchiveRejected(Invalid, Rejected):
    """The batch cannot be used: its archive is broken or hostile, too large, or its labels are not allowed."""


class JobEnded(PerennialError):
    """A job that was waited for ended without a published version.

    Attributes:
        job: the job as it ended.
        attention: what in its model waits for a person because of it, with the requests that settle it.
    """

    def __init__(self, message: str, job: Job, attention: Attention | None = None) -> None:
        super().__init__(message)
        self.job = job
        self.attention = attention


class GateHeld(JobEnded):
    """The version did not pass the model's gate: production stays as it is until a person decides."""


class JobRejected(JobEnded, Rejected):
    """The batch cannot be used; the job says why."""


class JobFailed(JobEnded):
    """The service could not do the job."""


class BaseFailed(JobFailed, BaseUnavailable):
    """The job that brings the weights of a model's base could not do so."""


class JobCancelled(JobEnded):
    """Somebody ended the job."""


_ARCHIVE = frozenset({"archive-invalid", "archive-hostile", "archive-too-large", "labels-invalid"})
_BY_STATUS: dict[int, type[APIError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> APIError:
    """The error for an answer of 400 or above."""
    problem: dict[str, Any] = {}
    try:
        found = json.loads(body)
        problem = found if isinstance(found, dict) else {}
    except (ValueError, RecursionError):  # a proxy's page, for example
        problem = {"detail": _said_otherwise(status, headers, body)}
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else APIError)
    if str(problem.get("type", "")).rpartition("/")[2] in _ARCHIVE:
        kind = ArchiveRejected
    return kind(
        status,
        problem,
        request_id=headers.get("x-request-id"),
        retry_after_s=seconds_of(headers.get("retry-after")),
    )


def _said_otherwise(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """Return a sentence for an answer that is no problem in JSON. A page is made for a browser, and not repeated."""
    text = body[:200].decode("utf-8", "replace").strip()
    if "html" in headers.get("content-type", "").lower() or text.startswith("<"):
        return (
            f"A web page came in place of an answer (status {status}). Is the address that of a Perennial service, "
            "and does it answer behind the proxy there?"
        )
    said = " ".join(text.split())
    return f"The service answered {status}" + (f": {said}" if said else ".")


def seconds_of(text: str | None) -> float | None:
    """Retry-After in seconds: as a number, or until a date."""
    if not text:
        return None
    try:
        seconds = float(text)
        return None if math.isnan(seconds) else max(0.0, seconds)
    except ValueError:
        import datetime
        from email.utils import parsedate_to_datetime

        try:
            until = parsedate_to_datetime(text)
            if until.tzinfo is None:  # “-0000”
                until = until.replace(tzinfo=datetime.UTC)
        except (ValueError, OverflowError):
            return None
        return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())
