"""Errors as RFC 9457 problems: one format for everything that can go wrong.

Typed errors of core carry their own code and status. Errors of the framework (no such path, wrong
method, failed validation) and unexpected errors are converted to the same format here.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import JsonValue

from core.errors import PerennialError
from core.logging import hide_access_keys

MEDIA_TYPE = "application/problem+json"
OUTAGE_RETRY_S = 2

_HTTP_CODES = {
    400: "bad-request",
    401: "not-authenticated",
    403: "not-allowed",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    408: "body-timeout",
    410: "gone",
    411: "length-required",
    413: "body-too-large",
    415: "unsupported-type",
    416: "range-not-satisfiable",
    422: "invalid",
    429: "too-many-requests",
    431: "head-too-large",
    500: "internal",
    503: "unavailable",
}


def encode_problem_json(
    code: str,
    title: str,
    status: int,
    detail: str,
    errors: Sequence[Mapping[str, str]] = (),
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the JSON bytes of a problem; a key sent in the wrong place is masked."""
    body = {
        **(extra or {}),
        "type": f"/problems/{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "errors": [dict(e) for e in errors],
    }
    # UTF-8 cannot encode half of a surrogate pair, which a request may contain and a detail quote.
    return hide_access_keys(json.dumps(body, ensure_ascii=False, default=str)).encode(
        errors="backslashreplace"
    )


def convert_error_to_response(error: PerennialError) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for a typed error."""
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"}
    # Every 401 must name a scheme (RFC 9110 §11.6.1).
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    retry = error.retry_after_s
    if retry is None and error.status in (429, 503):
        retry = OUTAGE_RETRY_S
    if retry is not None:
        headers["Retry-After"] = str(retry)
    body = encode_problem_json(
        error.code, error.title, error.status, error.detail, error.fields, error.extra
    )
    return error.status, headers, body


def convert_http_status_to_problem(
    status: int, detail: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body for an HTTP error without a typed error."""
    try:
        phrase = HTTPStatus(status).phrase
    # A number that is not registered as a status has no phrase.
    except ValueError:
        phrase = "Error"
    code = _HTTP_CODES.get(status, f"http-{status}")
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"}
    return status, headers, encode_problem_json(code, phrase, status, detail or phrase)


def build_openapi_problem_responses(*statuses: int) -> dict[int | str, dict[str, JsonValue]]:
    """Return these statuses as problems, for a route's `responses=`.

    `api.description.openapi` adds the statuses that every route can return: 401, 403, 422, 500, 503, 507, and
    404, 400, 413, 415 for path parameters or a body. Name only special ones, such as 409.
    """
    return {status: describe_problem_in_openapi(status) for status in statuses}


def describe_problem_in_openapi(status: int) -> dict[str, JsonValue]:
    """Return the OpenAPI response object of a problem."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:  # a status that only tus defines
        phrase = "Refused"
    return {
        "description": phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
