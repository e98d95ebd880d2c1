"""Downloads are attachments under the security headers, whole, in part, and by HEAD."""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient


@pytest.mark.parametrize(
    ("path", "method", "range", "status"),
    [
        ("download", "GET", None, 200),
        ("download", "HEAD", None, 200),
        ("download", "GET", "bytes=0-9", 206),
        ("files/head", "GET", None, 200),
        ("files/head", "GET", "bytes=0-9", 206),
    ],
)
def test_a_download_is_an_attachment(
    client: TestClient,
    model: str,
    publish: Callable[..., int],
    path: str,
    method: str,
    range: str | None,
    status: int,
) -> None:
    number = publish(model)
    headers = {} if range is None else {"Range": range}
    answer = client.request(method, f"/v1/models/birds/versions/{number}/{path}", headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["cache-control"] == "private, no-cache"
