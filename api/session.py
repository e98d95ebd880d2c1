"""The cookie of somebody who has logged in, and from where it counts.

A browser sends a cookie with requests of any page, so it counts only where the browser itself says that the
request comes from a page of this service, or that a person typed the address. What changes something must
also name this service as its origin. The cookie is for this host alone (`__Host-`) and travels by TLS. On a loopback
address there need be none; since browsers send a cookie to all ports of a host, its name there holds the port, so that
two services on one machine do not log each other out. The token counts only at the host and port where it was given.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from api.loopback import header, host_name, is_loopback
from core.errors import NotAllowed
from core.requests.sessions import LIFE_S, at

SECURE = "__Host-perennial"
"""Name of the cookie under https."""
_READS = frozenset({"GET", "HEAD"})


def token(scope: Scope) -> str | None:
    """The token in the cookie of a request, with host and port; None: there is no cookie.

    Raises:
        NotAllowed: there is one, and the request is not of a page of this service.
    """
    cookies = _cookies(scope)
    found = cookies.get(SECURE) or (
        cookies.get(loopback_name(scope)) if is_loopback(host_name(scope)) else None
    )
    if not found:
        return None
    require_own(scope)
    return at(found, place(scope))


def place(scope: Scope) -> str:
    """Host and port, as a request names them."""
    return header(scope, b"host") or ""


def loopback_name(scope: Scope) -> str:
    """Name of the cookie under http on a loopback address: that of the service at the port that a request names."""
    port = place(scope).removeprefix(host_name(scope)).removeprefix(":")
    return f"perennial-{port or '80'}"


def require_own(scope: Scope) -> None:
    """Refuse a request that the browser does not call one of this service's own pages.

    Raises:
        NotAllowed: it is another site's, or the browser does not say; or it changes something and has another
        origin.
    """
    site = header(scope, b"sec-fetch-site") or ""
    reads = scope["method"] in _READS
    if site != "same-origin" and not (site == "none" and reads):
        raise NotAllowed(
            "Who is logged in is asked only by this service's own pages, and the browser does not say that this"
            " request is theirs. Open the page itself; a program sends `Authorization: Bearer pk_…`."
        )
    if not reads:
        require_own_origin(scope)


def require_own_origin(scope: Scope) -> None:
    """Refuse what a page of another origin sends.

    Raises:
        NotAllowed: `Origin` is missing, or is another.
    """
    origin, host = header(scope, b"origin") or "", header(scope, b"host") or ""
    if not host or origin.partition("://")[2] != host:
        raise NotAllowed(
            f"This request is of {origin[:200] or 'an unknown origin'}, and the service was asked for as"
            f" {host[:200]}: only its own pages change anything. A proxy before it must pass the header Host on."
        )


def refuse_foreign(scope: Scope) -> None:
    """Refuse what a browser calls another site's request, where nobody has to log in.

    Raises:
        NotAllowed: it would change something.
    """
    site = header(scope, b"sec-fetch-site") or ""
    if scope["method"] not in _READS and site not in ("", "same-origin", "none"):
        raise NotAllowed("A page of another site cannot change anything here.")


def keep(request: Request, response: Response, made: str) -> None:
    """Put the token in the browser.

    Raises:
        NotAllowed: by http, from another machine: anybody between could take it.
    """
    secure = request.headers.get("origin", "").startswith("https://")
    if not secure and not is_loopback(host_name(request.scope)):
        raise NotAllowed(
            "Logging in by http would show your key to everybody on the way. Open this page by https, or on the"
            " machine itself by http://127.0.0.1."
        )
    name = SECURE if secure else loopback_name(request.scope)
    response.set_cookie(
        name, made, max_age=int(LIFE_S), path="/", secure=secure, httponly=True, samesite="strict"
    )


def forget(request: Request, response: Response) -> None:
    """Take the token out of the browser."""
    response.delete_cookie(SECURE, path="/", secure=True, httponly=True, samesite="strict")
    response.delete_cookie(loopback_name(request.scope), path="/", httponly=True, samesite="strict")


def _cookies(scope: Scope) -> dict[str, str]:
    """The cookies of a request. Others of the same host may hold anything, which SimpleCookie stops at."""
    pairs = (part.strip().partition("=") for part in (header(scope, b"cookie") or "").split(";"))
    return {name: value for name, _, value in pairs}
