"""Identity of the caller: the first request of a page or a command line."""

from starlette.testclient import TestClient

from api.app import create_app
from tests.openapi import check_schema


def test_the_caller_learns_of_his_key_his_owner_and_what_he_may_do(client, key_of):
    mine = key_of("birders", "read", expires_at="2999-01-01T00:00:00Z")
    found = client.get("/v1/me", headers=mine).json()
    made = [key for key in client.get("/v1/keys").json()["items"] if key["owner"] == "birders"]
    assert (found["key"], found["owner"], found["scope"]) == (made[0]["id"], "birders", "read")
    assert found["expires_at"] == "2999-01-01T00:00:00.000000Z"
    assert found["limits"]["max_uploads"] == 16 and found["limits"]["max_owner_bytes"] is None
    assert "application/zip" in found["service"]["formats"]["uploads"]
    assert found["service"]["formats"]["downloads"] == ["safetensors", "onnx"]
    assert found["service"]["auth"] == "on"
    assert found["service"]["version"] == client.get("/openapi.json").json()["info"]["version"]
    check_schema(client, "MeOut", found)


def test_a_key_that_never_expires_says_null(client):
    found = client.get("/v1/me").json()
    assert (found["owner"], found["scope"], found["expires_at"]) == ("admin", "admin", None)


def test_a_key_for_figures_alone_is_not_told(client, key_of):
    assert client.get("/v1/me", headers=key_of("prometheus", "scrape")).status_code == 403


def test_where_no_key_is_asked_for_everybody_is_the_administrator(settings):
    open_to_all = create_app(settings.model_copy(update={"auth": "off"}))
    with TestClient(open_to_all, base_url="http://127.0.0.1:8000") as anyone:
        found = anyone.get("/v1/me").json()
    assert (found["key"], found["owner"], found["scope"]) == (None, "admin", "admin")
    assert found["service"]["auth"] == "off"
