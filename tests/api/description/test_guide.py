"""The guide's files: for anybody, under a policy of their own, and no other files."""

import gzip
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from api.description import guide


@pytest.fixture
def anybody(client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Somebody without a key, at a service with a guide of few files."""
    folder = tmp_path / "guide"
    (folder / "howto").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>The guide</h1>")
    (folder / "howto" / "use-it.html").write_text("<h1>Use it</h1>")
    (folder / "a.png").write_bytes(b"\x89PNG")
    (folder / "notes.txt").write_text("not of the guide")
    monkeypatch.setattr(guide, "FOLDER", folder)
    del client.headers["Authorization"]
    return client


def test_the_first_page_is_at_the_address_with_a_slash(anybody: TestClient) -> None:
    answer = anybody.get("/docs/guide")
    assert answer.url.path == "/docs/guide/" and answer.text == "<h1>The guide</h1>"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert anybody.get("/docs/guide/howto/use-it.html").text == "<h1>Use it</h1>"


def test_a_page_has_an_origin_of_its_own_and_may_connect_to_nothing(anybody: TestClient) -> None:
    headers = anybody.get("/docs/guide/").headers
    policy = headers["content-security-policy"].split("; ")
    assert policy[:2] == ["sandbox allow-scripts", "default-src 'none'"]
    assert not any(word in headers["content-security-policy"] for word in ("unsafe", "same-origin"))
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


def test_a_file_is_compressed_and_sent_again_only_if_it_changed(anybody: TestClient) -> None:
    answer = anybody.get("/docs/guide/", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["cache-control"] == "public, no-cache"
    tag = answer.headers["etag"]
    assert anybody.get("/docs/guide/", headers={"If-None-Match": tag}).status_code == 304
    (guide.FOLDER / "index.html").write_text("<h1>The guide of a later release</h1>")
    assert anybody.get("/docs/guide/", headers={"If-None-Match": tag}).status_code == 200


def test_a_client_without_gzip_and_a_picture_get_the_plain_bytes(anybody: TestClient) -> None:
    for path, accepted in (("", "gzip;q=0"), ("", "br"), ("a.png", "gzip")):
        answer = anybody.get(f"/docs/guide/{path}", headers={"Accept-Encoding": accepted})
        assert "content-encoding" not in answer.headers
        assert answer.content == (guide.FOLDER / (path or "index.html")).read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "howto",
        "howto/",
        "index.html/",
        "nothing.html",
        "%2e%2e/guide/index.html",
        "..%2Findex.html",
        "/etc/passwd.html",
        "howto/%2e%2e/index.html",
        "a/b/c/d/e/f/g.html",
    ],
)
def test_nothing_else_is_served(anybody: TestClient, path: str) -> None:
    assert anybody.get(f"/docs/guide/{path}").status_code == 404


def test_without_the_guide_a_sentence_says_where_it_is_and_how_to_build_it(
    anybody: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide, "FOLDER", guide.FOLDER / "nowhere")
    for path in ("", "howto/use-it.html"):
        answer = anybody.get(f"/docs/guide/{path}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert "`make docs`" in answer.text and "docs/README.md" in answer.text


def test_compressed_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("p{}")
    _, body, packed = guide._read_guide_file(tmp_path / "a.css")
    assert packed is not None and gzip.decompress(packed) == body == b"p{}"
