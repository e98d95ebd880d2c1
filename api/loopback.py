"""What names this machine itself, and the headers of a request before the framework has looked at it."""

import ipaddress
import re

from starlette.types import Scope

from core.errors import NotAllowed


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that name (in lower case); None: there is none."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def host_name(scope: Scope) -> str:
    """The host that a request names, without its port."""
    host = header(scope, b"host") or ""
    return host if host.endswith("]") else re.sub(r":\d*\Z", "", host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address names this machine itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_loopback(scope: Scope) -> None:
    """Refuse a request that did not come in by a loopback address and name.

    Raises:
        NotAllowed: it did not.
    """
    server = scope.get("server") or ("", None)
    if not is_loopback(host_name(scope)) or not is_loopback(server[0]):
        raise NotAllowed(
            "With PERENNIAL_AUTH=off the service answers only on a loopback address and host name"
            " (127.0.0.1, [::1] or localhost)."
        )
