"""Static files of the pages: `/static/<sha8>/<name>`, public and cached indefinitely.

The digest covers all files together, so that one may refer to another by a relative path. A URL
therefore always means the same bytes, and a browser requests it once. A page of an older release
that uses an older digest gets the current file.
"""

import hashlib
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media types of served files by suffix; other files are not served."""
_FOR_EVER = "public, max-age=31536000, immutable"


def add_static_file_route(app: FastAPI) -> None:
    """Serve the static files without a key; they contain no private data."""
    app.add_route("/static/{digest}/{name:path}", _serve_static_file, include_in_schema=False)


def build_static_file_url_path(name: str, root: str = "") -> str:
    """Return the URL path of a static file below the prefix `root`.

    Raises:
        KeyError: there is no such file.
    """
    if name not in _index_static_files_with_total_digest()[1]:
        raise KeyError(f"There is no static file {name!r}.")
    return f"{root}/static/{_index_static_files_with_total_digest()[0]}/{name}"


async def _serve_static_file(request: Request) -> Response:
    digest, files = _index_static_files_with_total_digest()
    # Names come from this index alone, so no path can lead out of the folder.
    path = files.get(request.path_params["name"])
    if path is None:
        raise HTTPException(404)
    # Under an older release's digest these bytes must not be cached forever.
    cache_control = _FOR_EVER if request.path_params["digest"] == digest else "no-cache"
    return FileResponse(
        path, headers={"Cache-Control": cache_control}, media_type=TYPES[path.suffix]
    )


@cache
def _index_static_files_with_total_digest() -> tuple[str, dict[str, Path]]:
    """Return the first 8 hex digits of the SHA-256 of all files, and the files by name."""
    files = {
        path.relative_to(FOLDER).as_posix(): path
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in TYPES
    }
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:8], files
