"""Errors as pages: a person reads what went wrong, and who is not logged in is led to the login."""

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from starlette.types import Scope

from api.loopback import header
from api.pages.render import HEADERS, rendered, root_of

Answer = tuple[int, dict[str, str], bytes]
PREFIX = "/ui"
LOGIN = "/ui/login"
_STRANGE = frozenset("\\#")
"""Characters that a browser reads as a slash, or at which it ends a path."""


def is_page(scope: Scope) -> bool:
    """Whether a path is one of the pages'."""
    path = str(scope["path"]).removeprefix(root_of(scope))
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def of_problem(scope: Scope, answer: Answer) -> Answer:
    """The page of a problem; of 401 the way to the login, and from there back."""
    status, headers, body = answer
    kept = {name: value for name, value in headers.items() if name in ("Retry-After", "Allow")}
    if status in (401, 403) and _is_link_elsewhere(scope):
        # Another site's link: the cookie is kept back, or does not count, until a page of this service asks.
        return _asked_again(scope)
    if status == 401:
        return _to_login(scope)
    told: Mapping[str, Any] = json.loads(body)
    said = {
        "title": told["title"],
        "detail": told["detail"],
        "status": status,
        "model": _model(scope, status),
        "remedies": told.get("remedies", []),
    }
    text = rendered(scope, "error.html", said)
    return status, {**kept, **HEADERS, "Content-Type": "text/html; charset=utf-8"}, text.encode()


def _model(scope: Scope, status: int) -> str | None:
    """The model whose page a refused request came from."""
    found = re.match(
        rf"{PREFIX}/models/([\w.-]+)/", str(scope["path"]).removeprefix(root_of(scope)), re.ASCII
    )
    return found[1] if found and status in (400, 409, 422) else None


def own_path(scope: Scope, path: str) -> str:
    """That path of the pages as a browser would follow it, or where they begin: never one of another site.

    It is judged as it is written, as its percent forms read, and after its steps back: a page of ours in all of them.
    """
    pages = f"{root_of(scope)}{PREFIX}"
    place, mark, query = path.partition("?")
    read = unquote(place)
    normal = posixpath.normpath(read)
    plain = (
        path.isascii() and read.isascii() and (path + read).isprintable() and not _STRANGE & {*path, *read}
    )
    if not plain or not (normal == pages or normal.startswith(f"{pages}/")) or not place.startswith(pages):
        return pages
    return f"{quote(normal)}{mark}{query}"


def _is_link_elsewhere(scope: Scope) -> bool:
    return scope["method"] == "GET" and header(scope, b"sec-fetch-site") in ("cross-site", "same-site")


def _asked_again(scope: Scope) -> Answer:
    text = rendered(scope, "again.html", {"here": own_path(scope, _here(scope))})
    return 200, {**HEADERS, "Content-Type": "text/html; charset=utf-8"}, text.encode()


def _here(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{scope['path']}?{query}" if query else str(scope["path"])


def _page_of_form(scope: Scope) -> str:
    """The page that a form was on, as the browser says; `own_path` makes sure that it is one of ours."""
    try:
        sent = urlsplit(header(scope, b"referer") or "")
    except ValueError:  # such as http://[
        return PREFIX
    return f"{sent.path}?{sent.query}" if sent.query else sent.path


def _to_login(scope: Scope) -> Answer:
    """And from there back to the page; where something was sent, the login says that it was not done."""
    is_sent = scope["method"] != "GET"
    back = _page_of_form(scope) if is_sent else _here(scope)
    place = f"{root_of(scope)}{LOGIN}?next={quote(own_path(scope, back), safe='/')}{'&sent=yes' if is_sent else ''}"
    if header(scope, b"hx-request"):  # htmx would put the login into a part of the page
        return 200, {"HX-Redirect": place}, b""
    return 303, {"Location": place}, b""
