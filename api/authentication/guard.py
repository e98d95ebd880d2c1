"""Checks in front of every route: key, rate and scope, then the form of the request, then its body.

FastAPI would read a body before it evaluates a dependency. Here the route's ASGI app is wrapped:
the key, its scope and Content-Length are checked before the first byte of a body is read. JSON
bodies are parsed strictly, and unknown query parameters are refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.authentication.access import Authenticator
from api.authentication.key_watch import KeyValidityWatch
from api.dependencies import ScopeDeclaringDependency
from api.limits.fair_share import (
    FairRequestSlots,
    RequestSlotHolder,
    reacquire_request_slot_after_wait,
    release_request_slot_before_wait,
)
from api.limits.predict_limits import PredictKeyLimiter
from api.limits.rate import OwnerRateLimiter
from api.strict_json import is_storable_text, parse_strict_json
from core.database import session
from core.errors import (
    BodyTimeout,
    BodyTooLarge,
    BodyTruncated,
    InsufficientKeyScope,
    Invalid,
    NotFound,
    ServiceDiskFull,
    UnsupportedContentType,
)
from core.files import disk, disk_reserve
from core.requests.actor import Actor
from core.text.nearest import format_field_path_suggestion

MAX_JSON_BYTES = 1 << 20
JSON_BODY_S = 30.0
OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/ui/login", "/ui/logout"})
"""Routes that need no key; `/openapi.json` and `/docs` are not guarded routes."""

MAKES_ROOM = ("/cancel", "/discard", "/delete", "/jobs/{job}/{verb}")
"""Path endings of requests that, like DELETE, must work on a full disk."""

DirectHandler = Callable[..., Awaitable[Response]]
H = TypeVar("H", bound=DirectHandler)


def mark_handler_for_direct_call(*, reads_query: bool) -> Callable[[H], H]:
    """Return a decorator that marks an async handler for calls without FastAPI's dependencies.

    The handler receives `request`, `actor` and its path parameters.

    Args:
        reads_query: True if the handler reads query and header parameters from the request itself;
            they only document the route. With False, it is called directly if the request has no
            query string and no path value is too long. It must then have no header parameters, and
            its path parameters may only have a maximum length.
    """

    def mark_handler(endpoint: H) -> H:
        endpoint.direct_call_reads_query = reads_query  # type: ignore[attr-defined]
        return endpoint

    return mark_handler


@dataclass(frozen=True)
class GuardServices:
    """The authenticator, rate limiter and request slots that a route consults before its handler
    runs.

    Attributes:
        access: authenticates the caller.
        rate: limits the requests of an owner; None if they are not limited.
        limits: limits the requests and images of keys of scope predict.
        share: divides the process fairly between owners.
    """

    access: Callable[[], Authenticator]
    rate: Callable[[], OwnerRateLimiter | None]
    limits: Callable[[], PredictKeyLimiter]
    share: FairRequestSlots


def wrap_route_in_guard(route: APIRoute, services: GuardServices) -> None:
    """Wrap a route so that key, rate limits and request fields are checked before its handler runs.

    Raises:
        RuntimeError: the route neither names a scope nor is open.
    """
    need = find_key_scope_of_route(route)
    if need is None and route.path not in OPEN_PATHS:
        raise RuntimeError(
            f"{route.path} names no scope: give its handler a Scrape, Read, Write or Admin."
        )
    route.app = _GuardedApp(route, need, services)


def find_key_scope_of_route(route: APIRoute) -> str | None:
    """Return the key scope that a route's handler requires, or None if it requires no key."""
    for dependency in route.dependant.dependencies:
        if isinstance(dependency.call, ScopeDeclaringDependency):
            return dependency.call.scope
    return None


def _read_longest_path_values(route: APIRoute) -> dict[str, int]:
    """Return the maximum length in characters of each of a route's path parameters.

    Raises:
        RuntimeError: a path parameter has another constraint, which a direct call would not check.
    """
    limits: dict[str, int] = {}
    for parameter in route.dependant.path_params:
        longest = [getattr(one, "max_length", None) for one in parameter.field_info.metadata]
        if len(longest) != 1 or longest[0] is None:
            raise RuntimeError(f"{route.path}: {parameter.alias} may only have a maximum length.")
        limits[parameter.alias] = longest[0]
    return limits


class _GuardedApp:
    def __init__(self, route: APIRoute, need: str | None, services: GuardServices) -> None:
        self.inner: ASGIApp = route.app
        self.need = need
        self.services = services
        self.query = {p.alias for p in route.dependant.query_params}
        # Only direct dependencies declare parameters (see `api.dependencies`).
        for sub in route.dependant.dependencies:
            self.query |= {p.alias for p in sub.query_params}
        for extra in (route.openapi_extra or {}).get("parameters", []):
            if extra.get("in") == "query":
                self.query.add(extra["name"])
        self.json_body = route.body_field is not None
        self.body_required = self.json_body and bool(
            route.body_field and route.body_field.field_info.is_required()
        )
        # Cached authentication suffices for predictions, which change nothing and are frequent, and
        # for reads other than those of uploads.
        self.is_fresh = route.methods != {"GET"} and not route.path.endswith("/predict")
        methods = route.methods or set()
        self.makes_room = "DELETE" in methods or (
            "POST" in methods and route.path.endswith(MAKES_ROOM)
        )
        reads_query: bool | None = getattr(route.endpoint, "direct_call_reads_query", None)
        self.direct = None if reads_query is None else cast(DirectHandler, route.endpoint)
        self.direct_reads_query = bool(reads_query)
        self.longest_path_values = _read_longest_path_values(route) if reads_query is False else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.need is None:
            await self._check_request_fields_and_serve(None, scope, receive, send)
            return
        access = self.services.access()
        actor = await access.authenticate_request(scope, fresh=self.is_fresh)
        if actor.scope == "predict":
            await self._admit_predict_key_request(actor, scope)
        else:
            # Before the scope is checked, so that refused requests count as well.
            rate = self.services.rate()
            if rate is not None:
                await rate.charge_owner_request(actor.owner_id)
            if not actor.has_scope(self.need):
                raise InsufficientKeyScope(
                    f"This call needs a key of scope {self.need}; yours is {actor.scope}."
                )
        scope.setdefault("state", {})["actor"] = actor
        working = RequestSlotHolder(self.services.share, actor.owner_id)

        async def release_slot_before_send(message: Message) -> None:
            # From here on the client sets the pace: release the slot.
            working.release_request_slot()
            await send(message)

        watch = KeyValidityWatch(access, scope)
        data_dir: Path = scope["app"].state.settings.data_dir
        try:
            await working.acquire_request_slot()
            # Before the handler, which first writes to the database: a full disk would prevent it.
            if self.makes_room:
                disk_reserve.remove_disk_reserve_if_disk_full(data_dir)
            await self._check_request_fields_and_serve(
                actor,
                scope,
                watch.wrap_receive_with_check(receive),
                watch.wrap_send_with_check(release_slot_before_send),
            )
        except Exception as error:
            # A quota may be exceeded although the disk's own figures show free space.
            is_full = disk.is_disk_full_error(error) or session.is_database_full(error)
            if not (
                self.makes_room and is_full and disk_reserve.remove_disk_reserve_file(data_dir)
            ):
                raise
            raise ServiceDiskFull(
                "The disk of the service was full, and now has some room: send this again.",
                retry_after_s=1,
            ) from error
        finally:
            working.release_request_slot()

    async def _admit_predict_key_request(self, actor: Actor, scope: Scope) -> None:
        """Allow a request with a predict-scope key only for the key's own model alias, and count
        it.

        Every other request gets the same error, before anything is looked up, so it does not reveal
        which models exist. Its requests do not count against its owner's rate: a page that has the
        key could lock the owner out.
        """
        params = scope["path_params"]
        bound = actor.bound if self.need == "predict" else None
        if bound is None or not bound.allows_model_and_alias(
            params.get("model", ""), params.get("version", "")
        ):
            raise InsufficientKeyScope(
                "Your key is of scope predict: it asks for predictions of the one model and alias "
                "that it was made for, and for nothing else."
            )
        assert actor.key_id is not None
        await self.services.limits().charge_predict_key_request(actor.key_id)

    async def _check_request_fields_and_serve(
        self, actor: Actor | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["path_params"]:
            self._check_path_values(scope)
        if scope["query_string"]:
            self._check_query_names(scope["query_string"])
        if self.json_body:
            receive = await self._check_json_syntax_and_replay_body(scope, receive)
        if self.direct is None or actor is None or not self._can_be_called_directly(scope):
            await self.inner(scope, receive, send)
            return
        response = await self.direct(
            request=Request(scope, receive, send), actor=actor, **scope["path_params"]
        )
        await response(scope, receive, send)

    def _can_be_called_directly(self, scope: Scope) -> bool:
        """Return True if this request needs none of FastAPI's checks."""
        return self.direct_reads_query or (
            not scope["query_string"]
            # FastAPI refuses longer values.
            and all(
                len(scope["path_params"][name]) <= longest
                for name, longest in self.longest_path_values.items()
            )
        )

    def _check_path_values(self, scope: Scope) -> None:
        for value in scope["path_params"].values():
            if isinstance(value, str) and not is_storable_text(value):
                raise NotFound("There is nothing at this path.")

    def _check_query_names(self, query: bytes) -> None:
        try:
            # Latin-1 decodes every byte, so that too many fields are the only possible error.
            pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=100)
        except ValueError:
            raise Invalid("The query string has too many fields.") from None
        checked_names: set[str] = set()
        for name, value in pairs:
            if name not in self.query:
                allowed = sorted(self.query)
                suggestion = format_field_path_suggestion(name, allowed)
                raise Invalid(
                    f"Unknown query parameter {name[:60]!r}; {suggestion}this call has: "
                    f"{', '.join(allowed) or 'none'}.",
                    fields=[
                        {
                            "field": name[:60],
                            "message": f"unknown query parameter; {suggestion}".rstrip("; "),
                        }
                    ],
                )
            if name in checked_names:
                raise Invalid(
                    f"The query parameter {name!r} is given twice.",
                    fields=[{"field": name, "message": "given twice"}],
                )
            checked_names.add(name)
            if not is_storable_text(value):
                raise Invalid(
                    f"The query parameter {name!r} holds a NUL character.",
                    fields=[{"field": name, "message": "holds a NUL character"}],
                )

    async def _check_json_syntax_and_replay_body(self, scope: Scope, receive: Receive) -> Receive:
        headers = Request(scope).headers
        length = read_declared_length(headers.get("content-length"))
        if length is not None and length > MAX_JSON_BYTES:
            raise BodyTooLarge(
                f"A JSON body may have {MAX_JSON_BYTES} bytes; this one has {length}."
            )
        # The client sets the pace of its body, and a slot must not wait for it.
        release_request_slot_before_wait()
        body = await read_small_body(receive, MAX_JSON_BYTES, length)
        await reacquire_request_slot_after_wait()
        # An optional body may be absent, and then needs no media type.
        if body or self.body_required:
            media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type != "application/json":
                raise UnsupportedContentType("Send the body as application/json.")
            # FastAPI parses the body again; this refuses what its lenient parser would accept.
            parse_strict_json(body)
        return make_receive_that_replays_body(body, receive)


def read_declared_length(header: str | None) -> int | None:
    """Return the value of Content-Length in bytes, or None without one.

    Raises:
        Invalid: it is not a number.
    """
    if header is None:
        return None
    # More than 18 digits may not fit 64 bits.
    if not (header.isascii() and header.isdigit() and len(header) <= 18):
        raise Invalid("Content-Length is not a number of bytes.")
    return int(header)


async def read_small_body(receive: Receive, limit: int, declared: int | None = None) -> bytes:
    """Read a small request body completely into memory.

    Raises:
        BodyTooLarge: it has more than `limit` bytes.
        BodyTruncated: the client disconnected, or sent another number of bytes than declared.
        BodyTimeout: it takes longer than `JSON_BODY_S` seconds.
    """
    chunks, size = [], 0
    # For the body as a whole: a limit for each message could be stretched byte by byte.
    deadline = asyncio.get_running_loop().time() + JSON_BODY_S
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise BodyTimeout(f"The body was not complete after {JSON_BODY_S:.0f} s.") from None
        if message["type"] == "http.disconnect":
            raise BodyTruncated("The connection was closed before the body was complete.")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"The body may have {limit} bytes.")
        chunks.append(chunk)
        if not message.get("more_body", False):
            break
    if declared is not None and size != declared:
        raise BodyTruncated(f"Content-Length says {declared} bytes, {size} came.")
    return b"".join(chunks)


def make_receive_that_replays_body(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` that yields the body read before, then further messages of the
    server.
    """
    done = False

    async def receive_replayed_body() -> Message:
        nonlocal done
        if done:
            return await receive()
        done = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_replayed_body
