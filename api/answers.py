"""Answers made by hand: the shapes come from core as plain JSON and are written once."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, *, replay: bool = False
) -> Response:
    """A JSON answer.

    Args:
        replay: it repeats an earlier answer to the same idempotency key.
    """
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    extra = {"Idempotency-Replayed": "true"} if replay else {}
    return Response(body, status, {**(headers or {}), **extra}, "application/json")


def queued(job: Mapping[str, Any]) -> Response:
    """The 202 of a job that was queued again: where it is, and when to look."""
    return json_answer(job, 202, {"Location": f"/v1/jobs/{job['id']}", "Retry-After": "1"})


def matches(if_none_match: str, tag: str) -> bool:
    """Whether `If-None-Match` names the tag (weak comparison, RFC 9110 §13.1.2)."""
    if not if_none_match:
        return False
    if if_none_match == tag:
        return True
    names = [name.strip() for name in if_none_match.split(",")]
    return "*" in names or tag in names or f"W/{tag}" in names
