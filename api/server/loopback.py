"""Loopback hosts and addresses, and raw request headers before the framework has parsed them."""

import ipaddress
import re

from starlette.types import Scope

from core.errors import InsufficientKeyScope


def find_request_header(scope: Scope, name: bytes) -> str | None:
    """Return the first header with this name (in lower case), or None."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def parse_host_name(scope: Scope) -> str:
    """Return the host in a request's Host header, without its port."""
    host = find_request_header(scope, b"host") or ""
    # Behind a closing bracket there is no port: the colons belong to an IPv6 address.
    return host if host.endswith("]") else re.sub(r":\d*\Z", "", host)


def is_loopback_host(host: str) -> bool:
    """Return True if a host name or address refers to this machine itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_loopback_request(scope: Scope) -> None:
    """Refuse a request that did not arrive at a loopback address and host name.

    Raises:
        InsufficientKeyScope: the address or the host name is not a loopback one.
    """
    server = scope.get("server") or ("", None)
    # The host name too: a page elsewhere can let its own name point to 127.0.0.1.
    if not is_loopback_host(parse_host_name(scope)) or not is_loopback_host(server[0]):
        raise InsufficientKeyScope(
            "With PERENNIAL_AUTH=off the service answers only on a loopback address and host name"
            " (127.0.0.1, [::1] or localhost)."
        )
