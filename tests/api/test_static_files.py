"""The files that pages load: for anybody, for ever, and no other files."""

import re

import pytest
from starlette.testclient import TestClient

from api.static_files import FOLDER, TYPES, build_static_file_url_path


@pytest.fixture
def anybody(client: TestClient) -> TestClient:
    del client.headers["Authorization"]
    return client


def test_a_file_is_kept_for_ever_under_its_digest(anybody: TestClient) -> None:
    answer = anybody.get(build_static_file_url_path("docs.js"))
    assert answer.status_code == 200
    assert answer.content == (FOLDER / "docs.js").read_bytes()
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_under_another_digest_it_is_the_file_of_now_and_not_kept(anybody: TestClient) -> None:
    answer = anybody.get("/static/00000000/docs.js")
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "/static/00000000/vendor/VENDOR.toml",
        "/static/00000000/../static_files.py",
        "/static/00000000/..%2Fstatic_files.py",
        "/static/00000000/",
        "/static/00000000//etc/passwd",
        "/static/docs.js",
    ],
)
def test_nothing_else_is_served(anybody: TestClient, path: str) -> None:
    assert anybody.get(path).status_code == 404


def test_every_file_of_a_known_kind_has_an_address() -> None:
    files = [path for path in FOLDER.rglob("*") if path.suffix in TYPES]
    assert len(files) > 5
    addresses = [
        build_static_file_url_path(path.relative_to(FOLDER).as_posix(), "/root") for path in files
    ]
    assert len({one.split("/")[3] for one in addresses}) == 1
    with pytest.raises(KeyError):
        build_static_file_url_path("nothing.js")


def test_none_of_our_own_files_names_another_host() -> None:
    own = [
        path
        for path in FOLDER.rglob("*")
        if path.suffix in TYPES and "vendor" not in path.parts and path.suffix != ".jpg"
    ]
    for path in own:
        named = set(re.findall(r"(?:https?:)?//[a-z0-9-]+[.][a-z0-9.]+", path.read_text()))
        assert named <= {"http://www.w3.org"}, path  # the name of SVG


def test_the_pages_stay_light() -> None:
    assert (FOLDER / "app.css").stat().st_size <= 12_000
    assert sum(path.stat().st_size for path in FOLDER.glob("*.jpg")) <= 24_000
    modules = [path for path in FOLDER.glob("*.js")]
    assert (
        sum(len(path.read_text().splitlines()) for path in modules) <= 750
    )  # the reader of headers is 110
