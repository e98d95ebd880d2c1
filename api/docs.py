"""`/openapi.json`, and `/docs`: Swagger UI, the one page for browsers, under a policy that lets in just what it needs.

That is its bundle from the CDN and its one inline script, which is named by digest. Neither needs a key, since neither
holds anything of anybody's; so the document is made once, beside the event loop, and sent as it is.
"""

import asyncio
import base64
import hashlib
import json
import re

from anyio import to_thread
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

PATH = "/docs"
DOCUMENT_PATH = "/openapi.json"
_CDN = "https://cdn.jsdelivr.net"
_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def add_docs(app: FastAPI) -> None:
    """Serve the document and the page."""
    made: dict[str, bytes] = {}
    making = asyncio.Lock()

    async def document(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")  # of the process, not of the request
        async with making:
            if root not in made:
                made[root] = await to_thread.run_sync(_document, app, root)
        return Response(made[root], media_type="application/json")

    async def docs(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        page = get_swagger_ui_html(openapi_url=f"{root}{DOCUMENT_PATH}", title=app.title)
        page.headers["Content-Security-Policy"] = policy(bytes(page.body).decode())
        return page

    app.add_route(DOCUMENT_PATH, document, include_in_schema=False)
    app.add_route(PATH, docs, include_in_schema=False)


def _document(app: FastAPI, root: str) -> bytes:
    """The OpenAPI document, in which a path before all of the service's is named as its server."""
    servers = {"servers": [{"url": root}]} if root else {}
    return json.dumps({**app.openapi(), **servers}, ensure_ascii=False, separators=(",", ":")).encode()


def policy(page: str) -> str:
    """The Content-Security-Policy of a page of Swagger UI."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in _INLINE.findall(page)]
    scripts = " ".join([_CDN, *(f"'sha256-{digest.decode()}'" for digest in digests)])
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_CDN} 'unsafe-inline';"
        " img-src data: https://fastapi.tiangolo.com; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
