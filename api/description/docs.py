"""`/openapi.json` and `/docs`: Swagger UI from the service's own files, usable without a network.

Neither needs a key, since neither contains private data. The document is therefore built once, in a
thread, and sent unchanged.
"""

import asyncio
import html
import json

from anyio import to_thread
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from api.static_files import build_static_file_url_path

PATH = "/docs"
DOCUMENT_PATH = "/openapi.json"
# Swagger UI shows icons from data: URLs, fetches the document and tries calls out.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: the API</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{style}">
</head>
<body>
<div id="swagger-ui" data-document="{document}"></div>
<script src="{bundle}"></script>
<script src="{script}"></script>
</body>
</html>
"""


def add_openapi_routes(app: FastAPI) -> None:
    """Add the routes of the OpenAPI document and of the Swagger page."""
    document_by_root: dict[str, bytes] = {}
    lock = asyncio.Lock()

    async def serve_openapi_document(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")  # set per process, not per request
        # Concurrent first requests wait for one build.
        async with lock:
            if root not in document_by_root:
                document_by_root[root] = await to_thread.run_sync(
                    _encode_openapi_document, app, root
                )
        return Response(document_by_root[root], media_type="application/json")

    async def serve_swagger_page(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        return HTMLResponse(
            _render_swagger_page(app.title, root), headers={"Content-Security-Policy": POLICY}
        )

    app.add_route(DOCUMENT_PATH, serve_openapi_document, include_in_schema=False)
    app.add_route(PATH, serve_swagger_page, include_in_schema=False)


def _render_swagger_page(title: str, root: str) -> str:
    return _PAGE.format(
        title=html.escape(title),
        icon=build_static_file_url_path("icon.svg", root),
        style=build_static_file_url_path("vendor/swagger-ui.css", root),
        bundle=build_static_file_url_path("vendor/swagger-ui-bundle.js", root),
        script=build_static_file_url_path("docs.js", root),
        document=html.escape(f"{root}{DOCUMENT_PATH}"),
    )


def _encode_openapi_document(app: FastAPI, root: str) -> bytes:
    """Encode the OpenAPI document as JSON, with a path prefix named as its server."""
    servers = {"servers": [{"url": root}]} if root else {}
    return json.dumps(
        {**app.openapi(), **servers}, ensure_ascii=False, separators=(",", ":")
    ).encode()
