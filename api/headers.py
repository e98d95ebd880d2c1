"""Security headers of every answer: a browser that meets one runs nothing, frames nothing, keeps nothing.

Answers are private data, and some hold a secret, so no cache may keep them; one with an ETag may be kept by
the client alone, who asks again each time. What an answer sets itself stays (`api.docs` has a policy of its
own). Strict-Transport-Security is left to whatever ends TLS before this service: only that knows of TLS.
"""

Headers = list[tuple[bytes, bytes]]

_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_PLAIN = (*_ALWAYS, (b"cache-control", b"no-store"))
_TAGGED = (*_ALWAYS, (b"cache-control", b"private, no-cache"))


def secured(headers: Headers) -> Headers:
    """An answer's headers (names in lower case) with those for safety that it has not set itself."""
    names = {name for name, _ in headers}
    added = _TAGGED if b"etag" in names else _PLAIN
    return [*headers, *(pair for pair in added if pair[0] not in names)]
