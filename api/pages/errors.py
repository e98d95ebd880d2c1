"""Errors as pages for people, and redirects to the login."""

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from starlette.types import Scope

from api.pages.parts.render import HEADERS, get_root_path, render_template_as_html
from api.server.loopback import find_request_header

Answer = tuple[int, dict[str, str], bytes]
PREFIX = "/ui"
LOGIN = "/ui/login"
_STRANGE = frozenset("\\#")
"""Characters that a browser reads as a slash, or that end a path."""


def is_page_request(scope: Scope) -> bool:
    """Return True if a request is for an HTML page rather than the API."""
    path = str(scope["path"]).removeprefix(get_root_path(scope))
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def render_problem_page_or_redirect_to_login(scope: Scope, response: Answer) -> Answer:
    """Render an error as an HTML page; for 401, redirect to the login and back."""
    status, headers, body = response
    # The other headers describe the JSON that the page replaces.
    kept_headers = {
        name: value for name, value in headers.items() if name in ("Retry-After", "Allow")
    }
    if status in (401, 403) and _is_request_from_external_link(scope):
        # A link from another site: the browser withholds the cookie, or it does not count, until a
        # page of this service sends the request.
        return _render_same_site_reload_page(scope)
    if status == 401:
        return _redirect_to_login(scope)
    problem: Mapping[str, Any] = json.loads(body)
    context = {
        "title": problem["title"],
        "detail": problem["detail"],
        "status": status,
        "model": _find_model_of_refused_page_request(scope, status),
        "remedies": problem.get("remedies", []),
    }
    text = render_template_as_html(scope, "error.html", context)
    return (
        status,
        {**kept_headers, **HEADERS, "Content-Type": "text/html; charset=utf-8"},
        text.encode(),
    )


def _find_model_of_refused_page_request(scope: Scope, status: int) -> str | None:
    """Return the model whose page sent a refused request, or None."""
    match = re.match(
        rf"{PREFIX}/models/([\w.-]+)/",
        str(scope["path"]).removeprefix(get_root_path(scope)),
        re.ASCII,
    )
    return match[1] if match and status in (400, 409, 422) else None


def get_safe_page_path(scope: Scope, path: str) -> str:
    """Return a URL path if a browser would stay within the service's pages, else the start page.

    It is never a path of another site: the path is checked as written, percent-decoded, and
    normalized.
    """
    pages = f"{get_root_path(scope)}{PREFIX}"
    written, mark, query = path.partition("?")
    decoded = unquote(written)
    normalized = posixpath.normpath(decoded)
    is_plain = (
        path.isascii()
        and decoded.isascii()
        and (path + decoded).isprintable()
        and not _STRANGE & {*path, *decoded}
    )
    if (
        not is_plain
        or not (normalized == pages or normalized.startswith(f"{pages}/"))
        or not written.startswith(pages)
    ):
        return pages
    # The path that was checked, not the one as written, which a browser might read otherwise.
    return f"{quote(normalized)}{mark}{query}"


def _is_request_from_external_link(scope: Scope) -> bool:
    return scope["method"] == "GET" and find_request_header(scope, b"sec-fetch-site") in (
        "cross-site",
        "same-site",
    )


def _render_same_site_reload_page(scope: Scope) -> Answer:
    text = render_template_as_html(
        scope, "again.html", {"here": get_safe_page_path(scope, _format_request_path(scope))}
    )
    return 200, {**HEADERS, "Content-Type": "text/html; charset=utf-8"}, text.encode()


def _format_request_path(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{scope['path']}?{query}" if query else str(scope["path"])


def _get_unchecked_referer_path(scope: Scope) -> str:
    """Return path and query of the Referer header, unchecked; the start page's path if it cannot be
    parsed.
    """
    try:
        referer = urlsplit(find_request_header(scope, b"referer") or "")
    except ValueError:  # such as http://[
        return PREFIX
    return f"{referer.path}?{referer.query}" if referer.query else referer.path


def _redirect_to_login(scope: Scope) -> Answer:
    """Redirect to the login and back to the page; say so if a form was sent and not processed."""
    is_sent = scope["method"] != "GET"
    # A form's path may take POST alone, so the way back leads to the page that it was on.
    back = _get_unchecked_referer_path(scope) if is_sent else _format_request_path(scope)
    next_path = quote(get_safe_page_path(scope, back), safe="/")
    location = f"{get_root_path(scope)}{LOGIN}?next={next_path}{'&sent=yes' if is_sent else ''}"
    # htmx would insert the login page into a part of the current page.
    if find_request_header(scope, b"hx-request"):
        return 200, {"HX-Redirect": location}, b""
    return 303, {"Location": location}, b""
