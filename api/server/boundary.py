"""The outermost layer: every response that leaves the service is well-formed.

It assigns an id to each request and turns every exception into a problem. It closes a connection
whose large body was not read, since the client would otherwise keep sending it. Every log line of a
request has its id. Requests that may change something are logged one by one; reads are not, because
there are too many.
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
from api.pages import errors
from api.server.headers import add_security_headers
from core.database import session, sqlite_damage
from core.errors import (
    BadRequest,
    DatabaseCorrupt,
    NotFound,
    PerennialError,
    ServiceDiskFull,
    Unavailable,
)
from core.files import descriptors, disk

log = structlog.get_logger(__name__)

DISCARDED_BYTES = 64 << 10
"""Largest unread body in bytes that the server discards after the response, keeping the
connection.
"""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_GONE = "the handler is closed"
"""uvloop's message for a connection whose client left with pipelined requests: not a
service error.
"""
_AMBIGUOUS = re.compile(rb"%(?:2[fe]|5c|00)", re.IGNORECASE)
"""Percent-encoded slash, dot, backslash or NUL, which a proxy might interpret differently."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_SIXTY_FOUR_BITS = (1 << 64) - 1
_numbers = itertools.count(secrets.randbits(64))
"""Source of request ids. It starts at a random number, since every process counts on its own."""


class RequestIdAndErrorMiddleware:
    """Pure ASGI middleware that names requests, converts errors and closes unread connections."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, length, coding, hosts = _read_id_and_framing_headers(scope)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=request_id.decode())
        began = time.perf_counter()
        status = 0
        # Watch only bodies that may force a close, which spares the others a call per message.
        unread = coding is not None or length > DISCARDED_BYTES

        async def receive_and_track_end() -> Message:
            nonlocal unread
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                unread = False
            return message

        async def send_with_service_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = add_security_headers(
                    [*message.get("headers", ()), (b"x-request-id", request_id)]
                )
                if unread:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            try:
                await send(message)
            except RuntimeError as error:
                # uvloop has no error class of its own for a closed connection.
                if _GONE not in str(error):
                    raise
                raise ClientDisconnect from error

        try:
            # Hardly any request has one of these, so the others are spared the full check.
            if hosts > 1 or coding is not None or b"%" in scope.get("raw_path", b""):
                _refuse_ambiguous_request(scope, hosts, coding)
            await self.app(
                scope, receive_and_track_end if unread else receive, send_with_service_headers
            )
        except ClientDisconnect:
            log.info("client gone", path=scope["path"])
        except Exception as error:
            problem = _log_and_convert_error_to_response(error, request_id.decode(), scope)
            # The response has begun, so a problem can no longer be sent: let the server cut the
            # connection.
            if status:
                raise
            await send_whole_response(
                errors.render_problem_page_or_redirect_to_login(scope, problem)
                if errors.is_page_request(scope)
                else problem,
                send_with_service_headers,
            )
        finally:
            if scope["method"] not in _READS:
                _log_request(scope, status, time.perf_counter() - began)


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    actor = scope.get("state", {}).get("actor")
    log.info(
        "request",
        method=scope["method"],
        path=scope["path"],
        status=status or None,  # None: the client left before a response
        ms=round(1000 * seconds, 1),
        key=None if actor is None else actor.key_id,
    )


async def send_whole_response(response: tuple[int, dict[str, str], bytes], send: Send) -> None:
    """Send a status, headers and body as one response."""
    status, headers, body = response
    raw = [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()]
    raw.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _refuse_ambiguous_request(scope: Scope, hosts: int, coding: bytes | None) -> None:
    """Refuse requests that this service and a proxy in front of it might interpret differently.

    Raises:
        BadRequest: several Host headers, or a transfer coding other than chunked.
        NotFound: a path with a percent-encoded character that a segment cannot contain.
    """
    if hosts > 1:
        raise BadRequest(f"The request has {hosts} Host headers. Send one.")
    if coding is not None and coding.strip().lower() != b"chunked":
        raise BadRequest("The one Transfer-Encoding that is understood here is chunked.")
    hidden = _AMBIGUOUS.search(scope.get("raw_path", b""))
    if hidden is not None:
        raise NotFound(
            f"There is nothing at this path: it holds {hidden[0].decode()}. Names have no slash, "
            "backslash or NUL, and a dot is sent as it is."
        )


def _read_id_and_framing_headers(scope: Scope) -> tuple[bytes, int, bytes | None, int]:
    """Return request id, declared body length, transfer coding, and number of Host headers."""
    request_id, length, coding, hosts = b"", 0, None, 0
    for name, value in scope["headers"]:
        if name == b"host":
            hosts += 1
        # The id is written to log lines and into a header, so only harmless characters pass.
        elif name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            request_id = value
        elif name == b"content-length" and value.isdigit() and len(value) < 19:
            length = int(value)
        elif name == b"transfer-encoding":
            coding = value
    return request_id or b"%016x" % (next(_numbers) & _SIXTY_FOUR_BITS), length, coding, hosts


def _log_and_convert_error_to_response(
    error: Exception, request_id: str, scope: Scope
) -> tuple[int, dict[str, str], bytes]:
    # First, because SQLite reports a full disk by the class of errors that an outage has, too.
    if disk.is_disk_full_error(error) or session.is_database_full(error):
        error = ServiceDiskFull("There is no room left on a disk of the service. Try again later.")
    # A typed error says what to do, even if a shortage is among its causes.
    elif not isinstance(error, PerennialError) and descriptors.is_out_of_file_descriptors_error(
        error
    ):
        error = Unavailable(
            "The service has too many files and connections open. Try again in a few seconds."
        )
    elif sqlite_damage.is_sqlite_damage_error(error):
        error = DatabaseCorrupt(sqlite_damage.DAMAGED)
    if isinstance(error, PerennialError):
        if error.status >= 500:
            log.error("request failed", path=scope["path"], code=error.code, detail=error.detail)
        return problems.convert_error_to_response(error)
    if isinstance(error, SQLAlchemyError) and session.is_database_outage(error):
        log.error("database outage", path=scope["path"], error=str(error)[:500])
        status, headers, _ = problems.convert_http_status_to_problem(503)
        headers["Retry-After"] = str(problems.OUTAGE_RETRY_S)
        detail = "The database does not answer. Try again in a few seconds."
        return (
            status,
            headers,
            problems.encode_problem_json("unavailable", "Temporarily unavailable", 503, detail),
        )
    # Only the log gets the exception: its text may contain private data.
    log.exception("unexpected error", method=scope["method"], path=scope["path"])
    detail = f"Something went wrong that should not. The log has it under request {request_id}."
    status, headers, _ = problems.convert_http_status_to_problem(500)
    return (
        status,
        headers,
        problems.encode_problem_json(
            "internal", "Internal error", 500, detail, extra={"request": request_id}
        ),
    )
