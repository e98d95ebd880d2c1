"""Access control: valid keys and what each may see."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.authentication.guard import OPEN_PATHS
from api.server.loopback import is_loopback_host
from core.settings import Settings
from tests.api.conftest import KeyOf, Make

MODEL = {"name": "birds", "scenario": "class", "architecture": "small-cnn"}


def test_without_a_key_it_is_401_and_says_how(client: TestClient) -> None:
    del client.headers["Authorization"]
    answer = client.get("/v1/models")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["type"] == "/problems/not-authenticated"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer pk_x",
        "Basic YTpi",
        f"Bearer pk_aaaaaaaaaaaa_{'b' * 43}",
        "Bearer \xff",
        "pk_a_b",
    ],
)
def test_a_wrong_key_is_401(shared: TestClient, value: str) -> None:
    answer = shared.get("/v1/models", headers={"Authorization": value.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code == 401


def test_one_wrong_character_in_the_secret_is_401(shared: TestClient) -> None:
    good = shared.headers["Authorization"]
    bad = good[:-1] + ("A" if good[-1] != "A" else "B")
    assert shared.get("/v1/models", headers={"Authorization": bad}).status_code == 401


@pytest.mark.parametrize(
    ("scope", "method", "path", "status"),
    [
        ("read", "GET", "/v1/models", 200),
        ("read", "POST", "/v1/models", 403),
        ("read", "GET", "/v1/keys", 403),
        ("write", "POST", "/v1/models", 422),
        ("write", "GET", "/v1/keys", 403),
        ("write", "GET", "/v1/audit", 403),
        ("admin", "GET", "/v1/keys", 200),
    ],
)
def test_a_scope_allows_what_it_names(
    client: TestClient, key_of: KeyOf, scope: str, method: str, path: str, status: int
) -> None:
    content = b"{}" if method == "POST" else None
    headers = {**key_of("somebody", scope), "content-type": "application/json"}
    assert client.request(method, path, content=content, headers=headers).status_code == status


def test_another_owners_objects_are_404_and_the_admin_sees_them(
    client: TestClient, key_of: KeyOf, archive: Make
) -> None:
    mine, other = key_of("mine"), key_of("other")
    client.post("/v1/models", json=MODEL, headers=mine)
    job = client.post("/v1/models/birds/tasks", content=archive(a=2, b=2), headers=mine).json()[
        "job"
    ]["id"]
    paths = [
        "/v1/models/birds",
        "/v1/models/birds/tasks",
        f"/v1/jobs/{job}",
        f"/v1/jobs/{job}/events",
    ]
    for path in paths:
        assert client.get(path, headers=mine).status_code == 200
        assert client.get(path, headers=other).status_code == 404
        assert client.get(path).status_code == 200
    assert client.post(f"/v1/jobs/{job}/cancel", headers=other).status_code == 404
    assert client.get("/v1/jobs", headers=other).json()["items"] == []
    assert client.get("/v1/jobs?model=birds", headers=other).status_code == 404


def test_two_owners_may_use_one_name(client: TestClient, key_of: KeyOf) -> None:
    for owner in ("mine", "other"):
        assert client.post("/v1/models", json=MODEL, headers=key_of(owner)).status_code == 201


def test_every_route_names_its_scope_or_is_open(settings: Settings) -> None:
    for path, operations in create_app(settings).openapi()["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) is (path not in OPEN_PATHS), path


def test_without_authentication_only_loopback_is_served(settings: Settings) -> None:
    settings.auth = "off"
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8000") as client:
        assert client.get("/v1/models").status_code == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:8000", ""):
            assert client.get("/v1/models", headers={"Host": host}).status_code == 403, host
    with TestClient(create_app(settings), base_url="http://10.0.0.7:8000") as client:
        assert client.get("/v1/models", headers={"Host": "localhost"}).status_code == 403


def test_without_authentication_another_address_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="loopback"):
        create_app(Settings(data_dir=tmp_path, auth="off", host="0.0.0.0"))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((name, True) for name in ("127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LOCALHOST")),
        *((name, False) for name in ("0.0.0.0", "10.0.0.1", "localhost.evil.example", "", "::")),
    ],
)
def test_what_counts_as_loopback(host: str, expected: bool) -> None:
    assert is_loopback_host(host) is expected
