"""Errors of the client, each kind with a class of its own.

PerennialError
    ConfigError            no key, no such profile, no such file
    ServiceUnreachable     no response from the service
    DigestMismatch         the received bytes differ from those announced
    BadAnswer              the response is not one of this API, or is too large
    APIError               the service answered with a problem (RFC 9457)
        Invalid, Unauthorized, Forbidden, NotFound, Conflict, TooLarge, TooManyRequests, Unavailable
        ArchiveRejected    the batch cannot be used (also Rejected)
    JobEnded               a job that was waited for ended without a published version
        GateHeld, JobRejected (also Rejected), JobFailed, JobCancelled
    WaitTimeout            the job has not ended in time
    BaseUnavailable        the model's base could not be fetched; waiting batches are retained
        BaseFailed         the job that fetches it failed (also JobFailed)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perennial.text import escape_control_characters, make_text_one_line

if TYPE_CHECKING:
    from perennial._types import Attention, Job

MAX_DETAIL_CHARS = 4000
"""Most characters that are shown of a detail from the service."""
MAX_ERRORS = 20
"""Most invalid fields that are shown."""


class PerennialError(Exception):
    """Base class of the client's errors; `str()` of each is a sentence that says what to do.

    The text has no control characters, whatever the service sent, so that a traceback prints it as
    it is.
    """

    def __str__(self) -> str:
        return escape_control_characters(super().__str__())


class ConfigError(PerennialError):
    """Configuration or arguments are missing or wrong, so that the request cannot be made."""


class UndecidedBatch(ConfigError):
    """A folder can be read in several ways, and neither options nor the model's classes decide
    which."""


class NoKey(ConfigError):
    """There is no API key for the service."""


class ServiceUnreachable(PerennialError):
    """The service cannot be reached, or the connection broke and the request must not be repeated.

    Attributes:
        is_sent: whether the service may have received the request.
    """

    def __init__(self, message: str, *, is_sent: bool = False) -> None:
        super().__init__(message)
        self.is_sent = is_sent


class DigestMismatch(PerennialError):
    """The downloaded bytes do not have the SHA-256 that the service named, so they were discarded."""


class BadAnswer(PerennialError):
    """The service's response cannot be used: it does not follow the API, or exceeds its sizes."""


class WaitTimeout(PerennialError, TimeoutError):
    """A job has not ended within the given time; it continues."""


class BaseUnavailable(PerennialError):
    """The base weights of a model could not be fetched; waiting jobs continue once a person has
    acted."""


class Rejected(PerennialError):
    """A batch that cannot be used: at the submit (`ArchiveRejected`) or after decoding
    (`JobRejected`)."""


class APIError(PerennialError):
    """Base class of errors that the service returned.

    Attributes:
        status: HTTP status.
        type: a stable path that names the kind of problem, such as `/problems/not-found`.
        detail: a sentence that says what is wrong, what is allowed and what to send; on one line,
            without control characters.
        errors: invalid fields, `{"field": …, "message": …}`.
        request_id: id of the request in the service's log; None: it sent none.
        retry_after_s: seconds after which the service asks to retry.
        problem: the whole problem document.
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
        detail = str(
            problem.get("detail") or problem.get("title") or f"The service answered {status}."
        )
        # Cut before it is cleaned, so that a huge text costs little.
        self.detail = make_text_one_line(detail[:MAX_DETAIL_CHARS])
        field_errors = problem.get("errors")
        fields = field_errors if isinstance(field_errors, list) else []
        # A response is trusted no further than its types: anything but objects is dropped.
        self.errors: list[dict[str, str]] = [one for one in fields if isinstance(one, dict)]
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        super().__init__(self.detail)

    @property
    def code(self) -> str:
        """Error code of the service: the last segment of `type`, such as `not-found`."""
        return self.type.rpartition("/")[2]

    def __str__(self) -> str:
        shown_errors = self.errors[:MAX_ERRORS]
        error_lines = [
            make_text_one_line(f"{one.get('field')}: {one.get('message')}"[:MAX_DETAIL_CHARS])
            for one in shown_errors
        ]
        return "\n".join([self.detail, *(f"  {error_line}" for error_line in error_lines)])


class Invalid(APIError):
    """The service rejected the request as invalid (400, 415, 422)."""


class Unauthorized(APIError):
    """The API key is missing, unknown, revoked or expired (401)."""


class Forbidden(APIError):
    """The API key's scope does not allow the request (403)."""


class NotFound(APIError):
    """The resource does not exist, or belongs to another owner (404)."""


class Conflict(APIError):
    """The request conflicts with the resource's present state (409); `problem` describes the state."""


class TooLarge(APIError):
    """The request has more bytes, entries or classes than the service accepts (413)."""


class TooManyRequests(APIError):
    """Too many requests at once, or a quota is reached (429)."""


class Unavailable(APIError):
    """The service, or a part of it, does not respond (5xx)."""


class ArchiveRejected(Invalid, Rejected):
    """The batch cannot be used: its archive is broken or hostile, too large, or its labels are not
    allowed.
    """


class JobEnded(PerennialError):
    """Base class of errors for a job that ended without a published version.

    Attributes:
        job: the job as it ended.
        attention: the item in its model that waits for a person, with the requests that settle it.
    """

    def __init__(self, message: str, job: Job, attention: Attention | None = None) -> None:
        super().__init__(message)
        self.job = job
        self.attention = attention


class GateHeld(JobEnded):
    """The version did not pass the model's gate: production stays unchanged until a person
    decides."""


class JobRejected(JobEnded, Rejected):
    """The job found that the batch cannot be used, and says why."""


class JobFailed(JobEnded):
    """The job failed: the service could not complete it."""


# Of both kinds, because callers may handle it as a failed job or as a missing base.
class BaseFailed(JobFailed, BaseUnavailable):
    """The job that fetches the weights of a model's base failed."""


class JobCancelled(JobEnded):
    """A person cancelled the job."""


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


def build_api_error(status: int, headers: Mapping[str, str], body: bytes) -> APIError:
    """Return the error for a response of status 400 or above."""
    problem: dict[str, Any] = {}
    try:
        document = json.loads(body)
        problem = document if isinstance(document, dict) else {}
    except (ValueError, RecursionError):  # for example, a proxy's HTML page
        problem = {"detail": _describe_response_without_problem(status, headers, body)}
    # By range, because proxies have statuses of their own above 500, such as 520.
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else APIError)
    # By the code, because such refusals come with several statuses (413, 422).
    if str(problem.get("type", "")).rpartition("/")[2] in _ARCHIVE:
        kind = ArchiveRejected
    return kind(
        status,
        problem,
        request_id=headers.get("x-request-id"),
        retry_after_s=parse_retry_after(headers.get("retry-after")),
    )


def _describe_response_without_problem(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """Return an error message for an error response that is no JSON problem.

    HTML pages are not repeated in it.
    """
    text = body[:200].decode("utf-8", "replace").strip()
    # A proxy's page is long, says nothing to a person, and may hold anything.
    if "html" in headers.get("content-type", "").lower() or text.startswith("<"):
        return (
            f"A web page came in place of an answer (status {status}). Is the address that of a "
            "Perennial service, and does it answer behind the proxy there?"
        )
    one_line_text = " ".join(text.split())
    return f"The service answered {status}" + (f": {one_line_text}" if one_line_text else ".")


def parse_retry_after(text: str | None) -> float | None:
    """Parse the Retry-After header into seconds; it may be a number or a date."""
    if not text:
        return None
    try:
        # float() reads “nan”, too, and no comparison with a limit would stop such a pause.
        seconds = float(text)
        return None if math.isnan(seconds) else max(0.0, seconds)
    except ValueError:
        # Dates are rare in Retry-After, and these modules take a moment to import.
        import datetime
        from email.utils import parsedate_to_datetime

        try:
            until = parsedate_to_datetime(text)
            if until.tzinfo is None:  # the offset “-0000” gives a time without a zone
                until = until.replace(tzinfo=datetime.UTC)
        except (ValueError, OverflowError):
            return None
        return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())
