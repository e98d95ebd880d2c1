"""Security headers of every response: browsers run, frame and store none of its content.

Responses are private data, and some contain secrets, so no cache may store them. One with an ETag
may be cached by the client, which revalidates it each time. Headers that a response sets itself
stay (`api.description.docs` has a policy of its own). Strict-Transport-Security is left to the proxy that ends
TLS in front of this service.
"""

Headers = list[tuple[bytes, bytes]]

_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    # For browsers that do not know frame-ancestors.
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_PLAIN = (*_ALWAYS, (b"cache-control", b"no-store"))
_TAGGED = (*_ALWAYS, (b"cache-control", b"private, no-cache"))


def add_security_headers(headers: Headers) -> Headers:
    """Return a response's headers (names in lower case), adding security headers it does
    not set.
    """
    names = {name for name, _ in headers}
    added = _TAGGED if b"etag" in names else _PLAIN
    return [*headers, *(pair for pair in added if pair[0] not in names)]
