"""`/docs/guide/`: the documents as a site, from files that `make docs` or `make dist` has built.

Anybody may read it without a key, because it contains no private data. It is code that a theme
brings, at the address of a service in which somebody may be signed in. So its policy has `sandbox`:
a browser gives these pages an origin of their own. Their scripts can read neither cookies nor
storage nor pages of the service, and what they would send is a request of another site. Besides, no
directive allows them to connect, to send a form or to be framed.
"""

import gzip
import hashlib
import re
from functools import lru_cache
from pathlib import Path

from anyio import to_thread
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from api.json_responses import is_etag_in_if_none_match
from api.static_files import TYPES

FOLDER = Path(__file__).parents[1] / "built_guide"
PATH = "/docs/guide"
POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MISSING = (
    "The guide is not built here. In a checkout, run `make docs` and load this page again; the wheels "
    "of a release have the guide. Its documents are in the folder docs of the repository, and "
    "docs/README.md lists them.\n"
)
_MEDIA = {**TYPES, ".html": "text/html; charset=utf-8", ".png": "image/png"}
_TEXTS = {".css", ".html", ".js", ".svg"}
_NAME = re.compile(r"(?:[\w-]+/){0,4}[\w-]+\.(?:css|html|js|png|svg)", re.ASCII)
"""Names of files of the guide: none leads out of its folder."""
_MOST_FILES = 300
"""Files kept in memory; the guide has about 90, together 3 MB."""


def add_guide_routes(app: FastAPI) -> None:
    """Add the routes that serve the user guide's pages."""
    app.add_route(PATH, _redirect_to_guide, include_in_schema=False)
    app.add_route(f"{PATH}/{{name:path}}", _serve_guide_file, include_in_schema=False)


async def _redirect_to_guide(request: Request) -> Response:
    """Redirect to the guide's path with a trailing slash, which relative links on its first page
    need.
    """
    return RedirectResponse(f"{request.scope.get('root_path', '').rstrip('/')}{PATH}/")


async def _serve_guide_file(request: Request) -> Response:
    name = request.path_params["name"] or "index.html"
    # Checked at each request, because the guide may be built while the service runs.
    if not await to_thread.run_sync((FOLDER / "index.html").is_file):
        return PlainTextResponse(MISSING, 404)
    if _NAME.fullmatch(name) is None:
        raise HTTPException(404)
    try:
        tag, body, packed = await to_thread.run_sync(_read_guide_file, FOLDER / name)
    # The second error is that of a path below a file, such as index.html/x.
    except (FileNotFoundError, NotADirectoryError) as error:
        raise HTTPException(404) from error
    headers = {
        "Cache-Control": "public, no-cache",
        "Content-Security-Policy": POLICY,
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if is_etag_in_if_none_match(request.headers.get("if-none-match", ""), tag):
        return Response(None, 304, headers)
    if packed and accepts_gzip(request.headers.get("accept-encoding", "")):
        body, headers["Content-Encoding"] = packed, "gzip"
    return Response(body, 200, headers, _MEDIA[Path(name).suffix])


def accepts_gzip(accepted: str) -> bool:
    """Return True if `Accept-Encoding` allows gzip."""
    return re.search(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|\Z))", accepted) is not None


def _read_guide_file(path: Path) -> tuple[str, bytes, bytes | None]:
    """Return ETag, bytes and gzipped bytes of a guide file; pictures are not compressed."""
    return _read_guide_file_cached(path, path.stat().st_mtime_ns)


# The time of the last change is a part of the key, so that a rebuilt guide is read again.
@lru_cache(_MOST_FILES)
def _read_guide_file_cached(path: Path, _changed_ns: int) -> tuple[str, bytes, bytes | None]:
    body = path.read_bytes()
    # Weak: the same tag names the file compressed and not.
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:16]}"'
    return tag, body, gzip.compress(body, mtime=0) if path.suffix in _TEXTS else None
