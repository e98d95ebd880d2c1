"""The outermost layer: nothing leaves the service that is not a proper answer.

It names each request, turns whatever was raised into a problem, and closes a connection whose large body
was left unread (the client would otherwise go on sending it). Every line that is logged for a request has
its id; one that may change something has a line of its own (a line per read would drown them).
"""

import itertools
import re
import secrets
import time

import structlog
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.headers import secured
from api.pages import errors
from core import descriptors, disk
from core.db import session, soundness
from core.errors import BadRequest, DatabaseCorrupt, NoSpace, NotFound, PerennialError, Unavailable

log = structlog.get_logger(__name__)

DISCARDED_BYTES = 64 << 10
"""A body at most this long is thrown away by the server after the answer, and the connection kept."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_GONE = "the handler is closed"
"""What uvloop says of a connection whose client left with requests in line: no error of ours."""
_AMBIGUOUS = re.compile(rb"%(?:2[fe]|5c|00)", re.IGNORECASE)
"""Slash, dot, backslash and NUL that hide: who stands before the service might read them otherwise."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_SIXTY_FOUR_BITS = (1 << 64) - 1
_numbers = itertools.count(secrets.randbits(64))
"""Make ids of requests: from a random start, since each of many processes counts for itself."""


class Boundary:
    """Pure ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, length, coding, hosts = _headers(scope)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=request_id.decode())
        began = time.perf_counter()
        status = 0
        unread = coding is not None or length > DISCARDED_BYTES

        async def watched_receive() -> Message:
            nonlocal unread
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                unread = False
            return message

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = secured([*message.get("headers", ()), (b"x-request-id", request_id)])
                if unread:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            try:
                await send(message)
            except RuntimeError as error:
                if _GONE not in str(error):
                    raise
                raise ClientDisconnect from error

        try:
            if hosts > 1 or coding is not None or b"%" in scope.get("raw_path", b""):
                _check(scope, hosts, coding)
            await self.app(scope, watched_receive if unread else receive, named_send)
        except ClientDisconnect:
            log.info("client gone", path=scope["path"])
        except Exception as error:
            answer = _answer(error, request_id.decode(), scope)
            if status:  # too late for a problem: let the server cut the connection
                raise
            await send_answer(
                errors.of_problem(scope, answer) if errors.is_page(scope) else answer, named_send
            )
        finally:
            if scope["method"] not in _READS:
                _report(scope, status, time.perf_counter() - began)


def _report(scope: Scope, status: int, seconds: float) -> None:
    actor = scope.get("state", {}).get("actor")
    log.info(
        "request",
        method=scope["method"],
        path=scope["path"],
        status=status or None,  # None: the client went away before an answer
        ms=round(1000 * seconds, 1),
        key=None if actor is None else actor.key_id,
    )


async def send_answer(answer: tuple[int, dict[str, str], bytes], send: Send) -> None:
    """Send a status, headers and body."""
    status, headers, body = answer
    raw = [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()]
    raw.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _check(scope: Scope, hosts: int, coding: bytes | None) -> None:
    """Refuse what this service and a proxy before it might understand in two ways.

    Raises:
        BadRequest: several Host headers, or a body in another coding than chunks.
        NotFound: a path with a character that a segment cannot hold, hidden in percent form.
    """
    if hosts > 1:
        raise BadRequest(f"The request has {hosts} Host headers. Send one.")
    if coding is not None and coding.strip().lower() != b"chunked":
        raise BadRequest("The one Transfer-Encoding that is understood here is chunked.")
    hidden = _AMBIGUOUS.search(scope.get("raw_path", b""))
    if hidden is not None:
        raise NotFound(
            f"There is nothing at this path: it holds {hidden[0].decode()}. Names have no slash, backslash or NUL,"
            " and a dot is sent as it is."
        )


def _headers(scope: Scope) -> tuple[bytes, int, bytes | None, int]:
    """Request id, declared length of the body, its transfer coding, and the number of Host headers."""
    request_id, length, coding, hosts = b"", 0, None, 0
    for name, value in scope["headers"]:
        if name == b"host":
            hosts += 1
        elif name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            request_id = value
        elif name == b"content-length" and value.isdigit() and len(value) < 19:
            length = int(value)
        elif name == b"transfer-encoding":
            coding = value
    return request_id or b"%016x" % (next(_numbers) & _SIXTY_FOUR_BITS), length, coding, hosts


def _answer(error: Exception, request_id: str, scope: Scope) -> tuple[int, dict[str, str], bytes]:
    if disk.is_full(error) or session.is_full(error):
        error = NoSpace("There is no room left on a disk of the service. Try again later.")
    elif not isinstance(error, PerennialError) and descriptors.is_short(error):
        error = Unavailable(
            "The service has too many files and connections open. Try again in a few seconds."
        )
    elif soundness.is_damage(error):
        error = DatabaseCorrupt(soundness.DAMAGED)
    if isinstance(error, PerennialError):
        if error.status >= 500:
            log.error("request failed", path=scope["path"], code=error.code, detail=error.detail)
        return problems.of_error(error)
    if isinstance(error, SQLAlchemyError) and session.is_outage(error):
        log.error("database outage", path=scope["path"], error=str(error)[:500])
        status, headers, _ = problems.of_status(503)
        headers["Retry-After"] = str(problems.OUTAGE_RETRY_S)
        detail = "The database does not answer. Try again in a few seconds."
        return status, headers, problems.problem("unavailable", "Temporarily unavailable", 503, detail)
    log.exception("unexpected error", method=scope["method"], path=scope["path"])
    detail = f"Something went wrong that should not. The log has it under request {request_id}."
    status, headers, _ = problems.of_status(500)
    return (
        status,
        headers,
        problems.problem("internal", "Internal error", 500, detail, extra={"request": request_id}),
    )
