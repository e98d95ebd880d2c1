"""JSON responses built by hand: core returns plain JSON values, which are serialized once."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


def build_json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, *, replay: bool = False
) -> Response:
    """Return a JSON response.

    Args:
        replay: mark the response as a repetition of an earlier one with the same idempotency key.
    """
    # NaN is not JSON: fail here rather than in the client's parser.
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    extra = {"Idempotency-Replayed": "true"} if replay else {}
    return Response(body, status, {**(headers or {}), **extra}, "application/json")


def build_queued_job_response(job: Mapping[str, Any]) -> Response:
    """Return 202 for a job that was queued again, with its `Location` and `Retry-After`."""
    return build_json_response(job, 202, {"Location": f"/v1/jobs/{job['id']}", "Retry-After": "1"})


def is_etag_in_if_none_match(if_none_match: str, tag: str) -> bool:
    """Return True if `If-None-Match` names the tag (weak comparison, RFC 9110 §13.1.2)."""
    if not if_none_match:
        return False
    # The usual case: a client that polls sends back the one tag that it got.
    if if_none_match == tag:
        return True
    names = [name.strip() for name in if_none_match.split(",")]
    # A proxy that compresses a response may mark its tag as weak.
    return "*" in names or tag in names or f"W/{tag}" in names
