"""The session cookie, and the requests for which it counts.

A browser sends a cookie with requests of any page. It counts only if the browser itself declares
that the request comes from a page of this service, or that a person typed the address. Requests
that change something must also name this service as their origin.

The cookie is for this host alone (`__Host-`) and requires TLS, except on a loopback address.
Browsers send a cookie to all ports of a host, so the loopback cookie's name contains the port: two
services on one machine do not log each other out. The token is valid only at the host and port that
issued it.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from api.server.loopback import find_request_header, is_loopback_host, parse_host_name
from core.errors import InsufficientKeyScope
from core.keys.sessions import LIFE_S, combine_session_token_and_host

SECURE = "__Host-perennial"
"""Name of the cookie under https."""
_READS = frozenset({"GET", "HEAD"})


def find_session_token_and_check_own_page(scope: Scope) -> str | None:
    """Return the session token in a request's cookie, bound to host and port, or None without a
    cookie.

    Raises:
        InsufficientKeyScope: there is a cookie, and the request does not come from a page of this service.
    """
    cookies = _parse_cookies(scope)
    # A cookie without TLS counts only on loopback, where nobody else can read it on its way.
    cookie = cookies.get(SECURE) or (
        cookies.get(get_loopback_session_cookie_name(scope))
        if is_loopback_host(parse_host_name(scope))
        else None
    )
    if not cookie:
        return None
    require_request_from_own_page(scope)
    return combine_session_token_and_host(cookie, read_host_and_port(scope))


def read_host_and_port(scope: Scope) -> str:
    """Return the host and port in the Host header of a request."""
    return find_request_header(scope, b"host") or ""


def get_loopback_session_cookie_name(scope: Scope) -> str:
    """Return the session cookie's name under http on a loopback address, which includes the port."""
    port = read_host_and_port(scope).removeprefix(parse_host_name(scope)).removeprefix(":")
    return f"perennial-{port or '80'}"


def require_request_from_own_page(scope: Scope) -> None:
    """Refuse a request unless the browser declares that it comes from this service's own pages.

    Raises:
        InsufficientKeyScope: it comes from another site, the browser does not say, or it changes something
            and names another origin.
    """
    site = find_request_header(scope, b"sec-fetch-site") or ""
    is_read = scope["method"] in _READS
    # "none" means that a person typed the address or followed a bookmark.
    if site != "same-origin" and not (site == "none" and is_read):
        raise InsufficientKeyScope(
            "Who is logged in is asked only by this service's own pages, and the browser does not "
            "say that this request is theirs. Open the page itself; a program sends "
            "`Authorization: Bearer pk_…`."
        )
    if not is_read:
        require_own_request_origin(scope)


def require_own_request_origin(scope: Scope) -> None:
    """Refuse a request sent by a page of another origin.

    Raises:
        InsufficientKeyScope: `Origin` is missing or differs from the Host header.
    """
    origin, host = (
        find_request_header(scope, b"origin") or "",
        find_request_header(scope, b"host") or "",
    )
    # Without the scheme, which only the browser knows behind a proxy that ends TLS.
    if not host or origin.partition("://")[2] != host:
        raise InsufficientKeyScope(
            f"This request is of {origin[:200] or 'an unknown origin'}, and the service was asked "
            f"for as {host[:200]}: only its own pages change anything. A proxy before it must pass "
            f"the header Host on."
        )


def refuse_cross_site_change(scope: Scope) -> None:
    """Refuse changes requested by another site while authentication is off.

    Raises:
        InsufficientKeyScope: a browser marks the request as another site's, and it would change something.
    """
    site = find_request_header(scope, b"sec-fetch-site") or ""
    # Programs do not send this header, and browsers mark requests of other sites by it.
    if scope["method"] not in _READS and site not in ("", "same-origin", "none"):
        raise InsufficientKeyScope("A page of another site cannot change anything here.")


def require_secure_origin_and_set_cookie(
    request: Request, response: Response, session_token: str
) -> None:
    """Set the session cookie in a response.

    Raises:
        InsufficientKeyScope: the request uses http from another machine, so others could read the token.
    """
    # Behind a proxy that ends TLS, only Origin has the scheme that the browser uses.
    is_secure = request.headers.get("origin", "").startswith("https://")
    if not is_secure and not is_loopback_host(parse_host_name(request.scope)):
        raise InsufficientKeyScope(
            "Logging in by http would show your key to everybody on the way. Open this page by "
            "https, or on the machine itself by http://127.0.0.1."
        )
    name = SECURE if is_secure else get_loopback_session_cookie_name(request.scope)
    # A link from another site comes without a strict cookie; `api.pages.errors` repeats it.
    response.set_cookie(
        name,
        session_token,
        max_age=int(LIFE_S),
        path="/",
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )


def delete_session_cookie(request: Request, response: Response) -> None:
    """Delete the session cookie in a response."""
    # Both names: the cookie may have been set under the other scheme.
    response.delete_cookie(SECURE, path="/", secure=True, httponly=True, samesite="strict")
    response.delete_cookie(
        get_loopback_session_cookie_name(request.scope), path="/", httponly=True, samesite="strict"
    )


def _parse_cookies(scope: Scope) -> dict[str, str]:
    """Parse the Cookie header of a request into names and values.

    Other cookies of the same host may contain characters that make SimpleCookie stop.
    """
    pairs = (
        part.strip().partition("=")
        for part in (find_request_header(scope, b"cookie") or "").split(";")
    )
    return {name: value for name, _, value in pairs}
