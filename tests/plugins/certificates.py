"""Load the certificates of authorities once.

Every client of `httpx2` loads them when it is made, which takes longer than many a test with its
requests, and nearly all services of tests speak plain HTTP.
"""

import os
import ssl
from collections.abc import Callable
from functools import cache

import httpcore2


def pytest_configure() -> None:
    httpcore2.default_ssl_context = keep_contexts(httpcore2.default_ssl_context)


def keep_contexts(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """Return a function that makes one context for each file and folder of certificates.
    The environment names them.
    """

    @cache
    def get_cached_context(file: str | None, folder: str | None, **options: bool) -> ssl.SSLContext:
        return make(**options)

    def get_default_context(**options: bool) -> ssl.SSLContext:
        return get_cached_context(
            os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"), **options
        )

    return get_default_context
