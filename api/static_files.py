"""The files that pages load: `/static/<sha8>/<name>`, for anybody, and for ever.

The digest is of all files together, so that one may name another by a relative path. An address therefore
never means other bytes, and a browser asks for it once. Who asks with an older digest, from a page of the
release before, gets the file of now.
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
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Files of other kinds are not served."""
_FOR_EVER = "public, max-age=31536000, immutable"


def add_static_files(app: FastAPI) -> None:
    """Serve the files; they hold nothing of anybody's, so no key is asked for."""
    app.add_route("/static/{digest}/{name:path}", _file, include_in_schema=False)


def address(name: str, root: str = "") -> str:
    """Where a file is, after the path `root` that comes before all of the service's."""
    if name not in _files()[1]:
        raise KeyError(f"There is no static file {name!r}.")
    return f"{root}/static/{_files()[0]}/{name}"


async def _file(request: Request) -> Response:
    digest, files = _files()
    path = files.get(request.path_params["name"])
    if path is None:
        raise HTTPException(404)
    kept = _FOR_EVER if request.path_params["digest"] == digest else "no-cache"
    return FileResponse(path, headers={"Cache-Control": kept}, media_type=TYPES[path.suffix])


@cache
def _files() -> tuple[str, dict[str, Path]]:
    """The first 8 digits of the sha256 of all files, and the files by name."""
    files = {
        path.relative_to(FOLDER).as_posix(): path
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in TYPES
    }
    found = hashlib.sha256()
    for name, path in files.items():
        found.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:8], files
