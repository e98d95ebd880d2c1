"""CORS for predictions: pages of the origins in `PERENNIAL_PREDICT_ORIGINS` may ask for them.

Only the predict route allows other origins, and never with cookies: no response allows credentials,
and a session counts only for this service's own pages (`api.authentication.session`). A preflight request carries
no key. Its response is the same for every model, existing or not, and lists only what the browser
needs to send the request.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.server.headers import Headers, add_security_headers
from api.server.loopback import find_request_header

_PATH = re.compile(r"/v1/models/[^/]+/versions/[^/]+/predict")
_METHOD = "POST"
SENT = "Authorization, Content-Type, X-Request-Id"
"""Request headers that a page may send."""
SHOWN = "X-Request-Id, Retry-After"
"""Response headers that a page may read, beside those that are always readable."""
PREFLIGHT_S = 600
"""Seconds for which a browser may cache a preflight response."""
_VARY = (b"vary", b"Origin")


class CorsMiddleware:
    """Pure ASGI middleware that adds CORS headers, to problems too.

    Args:
        origins: allowed origins as browsers send them, such as `https://shop.example`.
    """

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self.app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The route is not known yet: preflight requests have none.
        if scope["type"] != "http" or not _PATH.fullmatch(_get_path_without_root_path(scope)):
            await self.app(scope, receive, send)
            return
        origin = find_request_header(scope, b"origin")
        allowed: Headers = []
        if origin is not None and origin in self._origins:
            allowed = [(b"access-control-allow-origin", origin.encode())]
        if allowed and scope["method"] == "OPTIONS":
            await _send_preflight_response(scope, allowed, send)
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                exposed = [(b"access-control-expose-headers", SHOWN.encode())] if allowed else []
                message = {
                    **message,
                    # Without Vary, a cache could give one origin the response to another.
                    "headers": [*message.get("headers", ()), _VARY, *allowed, *exposed],
                }
            await send(message)

        await self.app(scope, receive, send_with_cors)


def _get_path_without_root_path(scope: Scope) -> str:
    """Return the path of a request within the service, without a prefix in front of it."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


async def _send_preflight_response(scope: Scope, allowed: Headers, send: Send) -> None:
    headers: Headers = [_VARY, *allowed, (b"content-length", b"0")]
    if find_request_header(scope, b"access-control-request-method") == _METHOD:
        headers += [
            (b"access-control-allow-methods", _METHOD.encode()),
            (b"access-control-allow-headers", SENT.encode()),
            (b"access-control-max-age", str(PREFLIGHT_S).encode()),
        ]
    await send(
        {"type": "http.response.start", "status": 204, "headers": add_security_headers(headers)}
    )
    await send({"type": "http.response.body", "body": b""})
