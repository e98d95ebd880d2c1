"""Pages of other origins: those that a setting names may ask for predictions, without cookies;
nothing else of it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from core.settings import Settings
from tests.api.conftest import SETTINGS, create_model, serve_api
from worker import setup

ORIGIN = "https://shop.example"
PREDICT = "/v1/models/birds/versions/production/predict"
ASKED = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


@pytest.fixture(scope="module")
def open_to_pages(
    tmp_path_factory: pytest.TempPathFactory, prepare_folder: Callable[[Path], Path]
) -> Iterator[TestClient]:
    """A service that answers the pages of two origins; it has the model birds."""
    folder = prepare_folder(tmp_path_factory.mktemp("pages"))
    changed = {"data_dir": folder, "predict_origins": f"{ORIGIN},http://127.0.0.1:8099"}
    with serve_api(SETTINGS.model_copy(update=changed)) as made:
        create_model(made, "birds")
        yield made


def read_cors_headers(answer: Any) -> dict[str, str]:
    return {
        name: value for name, value in answer.headers.items() if name.startswith("access-control")
    }


def test_a_preflight_says_what_a_page_may_send_and_the_same_for_every_model(
    open_to_pages: TestClient,
) -> None:
    answers = [
        open_to_pages.options(path, headers={"Origin": ORIGIN, "Authorization": "", **ASKED})
        for path in (
            PREDICT,
            PREDICT.replace("birds", "nothing"),
            PREDICT.replace("production", "9"),
        )
    ]
    for answer in answers:
        assert answer.status_code == 204 and not answer.content
        assert dict(answer.headers) == dict(answers[0].headers)
    assert read_cors_headers(answers[0]) == {
        "access-control-allow-origin": ORIGIN,
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "Authorization, Content-Type, X-Request-Id",
        "access-control-max-age": "600",
    }
    assert answers[0].headers["vary"] == "Origin"


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        (PREDICT, "https://evil.example"),
        (PREDICT, "http://shop.example"),
        (PREDICT, "https://shop.example:8443"),
        (PREDICT, "https://shop.example.evil.example"),
        (PREDICT, "https://SHOP.example"),
        (PREDICT, "null"),
        (PREDICT, "*"),
        (PREDICT, ""),
        (f"{PREDICT}/", ORIGIN),
        ("/v1/models", ORIGIN),
        ("/v1/models/birds", ORIGIN),
        ("/v1/models/birds/tasks", ORIGIN),
        ("/v1/keys", ORIGIN),
        ("/ui/models/birds/versions/production/predict", ORIGIN),
        ("/ui/login", ORIGIN),
        ("/openapi.json", ORIGIN),
    ],
)
def test_no_other_origin_and_no_other_route_is_answered(
    open_to_pages: TestClient, path: str, origin: str
) -> None:
    for method in ("OPTIONS", "GET", "POST"):
        answer = open_to_pages.request(method, path, headers={"Origin": origin, **ASKED})
        assert read_cors_headers(answer) == {}, method
        assert (answer.headers.get("vary") == "Origin") is (path == PREDICT)


@pytest.mark.parametrize(
    ("authorization", "kind", "status"),
    [("Bearer pk_x", "image/png", 401), (None, "image/png", 409), (None, "text/plain", 409)],
)
def test_a_page_can_read_what_is_wrong(
    open_to_pages: TestClient, authorization: str | None, kind: str, status: int
) -> None:
    headers = {"Origin": ORIGIN, "Content-Type": kind, "X-Request-Id": "page-7"}
    headers |= {} if authorization is None else {"Authorization": authorization}
    answer = open_to_pages.post(PREDICT, content=b"x", headers=headers)
    assert answer.status_code == status and answer.headers["x-request-id"] == "page-7"
    assert read_cors_headers(answer) == {
        "access-control-allow-origin": ORIGIN,
        "access-control-expose-headers": "X-Request-Id, Retry-After",
    }


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", ""])
def test_a_session_answers_no_page_of_another_origin(open_to_pages: TestClient, site: str) -> None:
    key = open_to_pages.headers["Authorization"].removeprefix("Bearer ")
    own = {"Origin": "http://127.0.0.1", "Host": "127.0.0.1"}
    login = open_to_pages.post("/ui/login", data={"key": key}, headers=own, follow_redirects=False)
    cookie = login.headers["set-cookie"].partition(";")[0]
    asked = {"Cookie": cookie, "Host": "127.0.0.1", "Content-Type": "image/png"}
    with TestClient(open_to_pages.app, raise_server_exceptions=False) as page:
        ours = {**asked, "Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
        assert (
            page.post(PREDICT, content=b"x", headers=ours).status_code == 409
        )  # nothing was taught yet
        theirs = {**asked, "Origin": ORIGIN} | ({"Sec-Fetch-Site": site} if site else {})
        answer = page.post(PREDICT, content=b"x", headers=theirs)
    assert answer.status_code == 403 and "access-control-allow-credentials" not in answer.headers


def test_a_prefix_before_the_paths_is_left_away(open_to_pages: TestClient) -> None:
    with TestClient(open_to_pages.app, root_path="/pets") as prefixed:
        assert prefixed.options(PREDICT, headers={"Origin": ORIGIN, **ASKED}).status_code == 204


def test_without_the_setting_no_page_of_another_origin_is_answered(shared: TestClient) -> None:
    for method in ("OPTIONS", "POST"):
        answer = shared.request(method, PREDICT, headers={"Origin": ORIGIN, **ASKED})
        assert read_cors_headers(answer) == {} and "vary" not in answer.headers
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("value", "origins"),
    [
        ("", set()),
        (
            " https://a.example , https://B.example:443,http://[::1]:8080 ",
            {"https://a.example", "https://b.example", "http://[::1]:8080"},
        ),
        ("http://localhost:80", {"http://localhost"}),
    ],
)
def test_origins_are_named_as_browsers_send_them(value: str, origins: set[str]) -> None:
    assert Settings(predict_origins=value).allowed_origins == origins


@pytest.mark.parametrize(
    "value",
    [
        *(
            "*",
            "https://*.example",
            "null",
            "a.example",
            "https://a.example/",
            "https://a.example/page",
        ),
        *(
            "ftp://a.example",
            "https://me@a.example",
            "https://a.example:0",
            "https://a.example:70000",
        ),
        *("https://ä.example", "https://a.example https://b.example", "https://"),
    ],
)
def test_what_is_no_origin_is_refused_at_the_start_in_a_sentence(value: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(predict_origins=value)
    assert "PERENNIAL_PREDICT_ORIGINS lists whole origins, such as https://shop.example" in str(
        refused.value
    )


def test_origins_without_keys_are_refused() -> None:
    with pytest.raises(ValidationError, match="pages of other sites need keys"):
        Settings(auth="off", predict_origins=ORIGIN)


def test_the_start_ends_with_the_sentence_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERENNIAL_PREDICT_ORIGINS", "*")
    assert setup.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("PERENNIAL_PREDICT_ORIGINS: '*' stands for any page, whoever made it: ")
