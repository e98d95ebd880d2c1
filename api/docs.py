"""`/docs`: Swagger UI, the one page for browsers, under a policy that lets in just what it needs.

That is its bundle from the CDN and its one inline script, which is named by digest.
"""

import base64
import hashlib
import re

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

PATH = "/docs"
_CDN = "https://cdn.jsdelivr.net"
_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def add_docs(app: FastAPI) -> None:
    """Serve the page; it needs no key, since it holds nothing but the address of `/openapi.json`."""

    async def docs(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        page = get_swagger_ui_html(openapi_url=f"{root}{app.openapi_url}", title=app.title)
        page.headers["Content-Security-Policy"] = policy(bytes(page.body).decode())
        return page

    app.add_route(PATH, docs, include_in_schema=False)


def policy(page: str) -> str:
    """The Content-Security-Policy of a page of Swagger UI."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in _INLINE.findall(page)]
    scripts = " ".join([_CDN, *(f"'sha256-{digest.decode()}'" for digest in digests)])
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_CDN} 'unsafe-inline';"
        " img-src data: https://fastapi.tiangolo.com; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
