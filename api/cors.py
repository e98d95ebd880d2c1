"""Predictions for pages of other origins (CORS): those that `PERENNIAL_PREDICT_ORIGINS` names, and no others.

Only the predict route answers them, and never to cookies: no answer allows credentials, and a session counts only
where this service's own pages ask (`api.session`). A preflight comes without a key, so its answer is the same for every
model, there or not, and names nothing but what the browser needs to send the request.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.headers import Headers, secured
from api.loopback import header

_PATH = re.compile(r"/v1/models/[^/]+/versions/[^/]+/predict")
_METHOD = "POST"
SENT = "Authorization, Content-Type, X-Request-Id"
"""Headers that a page may send."""
SHOWN = "X-Request-Id, Retry-After"
"""Headers of an answer that it may read, beside those that it always may."""
PREFLIGHT_S = 600
"""So long a browser need not ask again."""
_VARY = (b"vary", b"Origin")


class Cors:
    """Pure ASGI middleware; it sees problems too.

    Args:
        origins: as browsers send them, such as `https://shop.example`.
    """

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self.app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _PATH.fullmatch(_path(scope)):
            await self.app(scope, receive, send)
            return
        origin = header(scope, b"origin")
        allowed: Headers = []
        if origin is not None and origin in self._origins:
            allowed = [(b"access-control-allow-origin", origin.encode())]
        if allowed and scope["method"] == "OPTIONS":
            await _send_preflight(scope, allowed, send)
            return

        async def shown(message: Message) -> None:
            if message["type"] == "http.response.start":
                exposed = [(b"access-control-expose-headers", SHOWN.encode())] if allowed else []
                message = {**message, "headers": [*message.get("headers", ()), _VARY, *allowed, *exposed]}
            await send(message)

        await self.app(scope, receive, shown)


def _path(scope: Scope) -> str:
    """The path of a request within the service, which may have a prefix before it."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


async def _send_preflight(scope: Scope, allowed: Headers, send: Send) -> None:
    headers: Headers = [_VARY, *allowed, (b"content-length", b"0")]
    if header(scope, b"access-control-request-method") == _METHOD:
        headers += [
            (b"access-control-allow-methods", _METHOD.encode()),
            (b"access-control-allow-headers", SENT.encode()),
            (b"access-control-max-age", str(PREFLIGHT_S).encode()),
        ]
    await send({"type": "http.response.start", "status": 204, "headers": secured(headers)})
    await send({"type": "http.response.body", "body": b""})
