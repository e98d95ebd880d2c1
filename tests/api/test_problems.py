"""Every error is a problem: one shape, whatever went wrong and wherever."""

import asyncio
import errno
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from api.server.boundary import RequestIdAndErrorMiddleware
from core.errors import DatabaseCorrupt, ServiceDiskFull, Unavailable


def build_too_many_files_error(number: int) -> OSError:
    return OSError(number, "Too many open files")


def build_error_caused_by(error: OSError) -> RuntimeError:
    found = RuntimeError("could not start")
    found.__cause__ = error
    return found


def build_database_full_error() -> OperationalError:
    original = sqlite3.OperationalError("database or disk is full")
    original.sqlite_errorcode = sqlite3.SQLITE_FULL
    return OperationalError("INSERT", {}, original)


@pytest.fixture
def failing(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Answers to a list of models that meets an error."""

    def request_models_with_error(error: Exception, **headers: str) -> Any:
        def raise_given_error(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("core.models.models.list_models", raise_given_error)
        return client.get("/v1/models", headers=headers)

    return request_models_with_error


def assert_problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == f"/problems/{code}"
    assert problem["status"] == status
    assert problem["title"] and problem["detail"]
    assert isinstance(problem["errors"], list)
    return problem


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        pytest.param("/v1/nothing", 404, "not-found", id="unknown path"),
        pytest.param("/v1/models/", 404, "not-found", id="a final slash is not redirected"),
        pytest.param("/v1/models/a%00b", 404, "not-found", id="NUL in the path"),
        pytest.param("/v1/jobs?model=a%00b", 422, "invalid", id="NUL in the query"),
        pytest.param("/v1/models?limit=3&limit=4", 422, "invalid", id="repeated query parameter"),
        pytest.param("/v1%2fmodels", 404, "not-found", id="hidden slash"),
        pytest.param(
            "/healthz%2f..%2fmetrics", 404, "not-found", id="hidden slashes to another route"
        ),
    ],
)
def test_what_leads_nowhere_is_a_problem(
    shared: TestClient, path: str, status: int, code: str
) -> None:
    assert_problem(shared.get(path), status, code)


def test_a_wrong_method_names_all_allowed_ones(shared: TestClient) -> None:
    answer = shared.put("/v1/models")
    assert_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, POST"


def test_an_unknown_field_is_named(shared: TestClient) -> None:
    answer = shared.post("/v1/models", json={"name": "a", "scenario": "class", "colour": 1})
    problem = assert_problem(answer, 422, "invalid")
    assert problem["errors"][0]["field"] == "colour"


def test_an_unknown_query_parameter_is_named(shared: TestClient) -> None:
    problem = assert_problem(shared.get("/v1/models?limt=3"), 422, "invalid")
    assert problem["errors"][0]["field"] == "limt"


def test_a_json_body_of_another_type_is_415(shared: TestClient) -> None:
    answer = shared.post("/v1/models", content=b"name=a", headers={"content-type": "text/plain"})
    assert_problem(answer, 415, "unsupported-type")


def test_a_json_body_that_is_too_large_is_413_whole_or_in_chunks(shared: TestClient) -> None:
    assert_problem(
        shared.post("/v1/models", content=b" " * (1 << 20) + b"{}"), 413, "body-too-large"
    )
    pieces = (b" " * 65536 for _ in range(17))
    headers = {"content-type": "application/json"}
    assert_problem(
        shared.post("/v1/models", content=pieces, headers=headers), 413, "body-too-large"
    )


def test_a_json_body_in_chunks_of_undeclared_length_is_read(shared: TestClient) -> None:
    headers = {"content-type": "application/json"}
    answer = shared.post("/v1/models", content=iter([b"{", b"}"]), headers=headers)
    problem = assert_problem(answer, 422, "invalid")
    assert "name" in str(problem["errors"])


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"name": "a", "name": "b", "scenario": "class"}',
        b'{"name": "a", "scenario": "class", "gate": {"min_acc": NaN}}',
        b'{"name": "a", "scenario": "class", "gate": {"min_acc": 1e999}}',
        b'{"name": "a", "scenario": "class", "recipe": {"seed": 9223372036854775808}}',
        b'{"name": "a\\u0000", "scenario": "class"}',
        b'{"name": "\\ud800", "scenario": "class"}',
        b'{"name": "\xff", "scenario": "class"}',
        b'{"name": "a", "scenario": "class", "recipe": ' + b"[" * 100_000,
        b'{"name": "a", "scenario": "class", "recipe": {"a": ' + b"[" * 100 + b"]" * 100 + b"}}",
        b"[]",
        b"null",
        b"",
    ],
)
def test_json_that_is_not_strict_is_refused(shared: TestClient, body: bytes) -> None:
    answer = shared.post("/v1/models", content=body, headers={"content-type": "application/json"})
    assert_problem(answer, 422, "invalid")


def test_a_damaged_database_is_a_500_that_the_log_names(
    failing: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert_problem(failing(DatabaseCorrupt("The database is damaged.")), 500, "database-corrupt")
    assert any("request failed" in str(record.msg) for record in caplog.records)


def test_an_unexpected_error_is_a_500_with_the_request_and_without_its_message(
    failing: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    answer = failing(ZeroDivisionError("a secret"), **{"X-Request-Id": "abc-1"})
    problem = assert_problem(answer, 500, "internal")
    assert problem["request"] == "abc-1" == answer.headers["x-request-id"]
    assert "secret" not in answer.text
    assert any("unexpected error" in str(r.msg) for r in caplog.records)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            OperationalError("SELECT 1", {}, Exception("connection refused")), id="database outage"
        ),
        pytest.param(build_too_many_files_error(errno.EMFILE), id="no descriptor of the process"),
        pytest.param(build_too_many_files_error(errno.ENFILE), id="no descriptor of the machine"),
        pytest.param(
            build_error_caused_by(build_too_many_files_error(errno.EMFILE)),
            id="caused by the first",
        ),
        pytest.param(
            build_error_caused_by(build_too_many_files_error(errno.ENFILE)),
            id="caused by the second",
        ),
    ],
)
def test_an_outage_is_a_503_that_says_when_to_come_again(
    failing: Callable[..., Any], error: Exception
) -> None:
    answer = failing(error)
    assert_problem(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0


def test_an_outage_of_a_hot_read_is_a_503(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_database_unavailable(*_: object, **__: object) -> None:
        raise Unavailable("The database does not answer.", retry_after_s=1)

    monkeypatch.setattr(client.app.state.polling, "find_job", raise_database_unavailable)  # type: ignore[attr-defined]
    answer = client.get("/v1/jobs/job_00000000000000000000000000")
    assert_problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "1"


def test_a_key_that_was_sent_in_a_wrong_place_is_not_repeated(client: TestClient) -> None:
    key = "pk_abcdefghijkl_" + "Canary" * 7 + "x"
    for answer in (
        client.get(f"/v1/models/{key}"),
        client.get(f"/v1/{key}"),
        client.get("/v1/models", params={key: "1"}),
        client.get("/v1/jobs", params={"state": key}),
        client.post("/v1/models", json={key: 1, "name": key, "scenario": "class"}),
        client.post("/v1/keys", json={"name": "k", "owner": key, "scope": key}),
    ):
        assert answer.status_code in (404, 422)
        assert "Canary" not in answer.text


def test_a_client_that_left_with_requests_in_line_is_no_unexpected_error(
    client: TestClient, capfd: pytest.CaptureFixture[str]
) -> None:
    async def raise_closed_transport(_message: Any) -> None:
        raise RuntimeError(
            "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
        )

    async def receive_empty_message() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http", "method": "GET", "path": "/healthz", "raw_path": b"/healthz", "query_string": b"",
        "headers": [], "http_version": "1.1", "scheme": "http", "app": client.app,
    }  # fmt: skip
    asyncio.run(
        RequestIdAndErrorMiddleware(client.app)(
            scope, receive_empty_message, raise_closed_transport
        )
    )  # type: ignore[arg-type]
    said = capfd.readouterr()
    assert "unexpected error" not in said.out + said.err


@pytest.mark.parametrize(
    "full",
    [
        OSError(errno.ENOSPC, "full"),
        build_database_full_error(),
        ServiceDiskFull("The store's folder is full."),
    ],
    ids=["file", "database", "store"],
)
def test_a_full_disk_is_a_507_with_retry_after(
    failing: Callable[..., Any], full: Exception
) -> None:
    answer = failing(full)
    assert_problem(answer, 507, "no-space")
    assert answer.headers["retry-after"] == "60"


def test_readiness_is_told_in_time_though_the_database_hangs(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(client.app.state.database, "check_row_readable", lambda: answered.wait(60))  # type: ignore[attr-defined]
    monkeypatch.setattr("api.routes.service.health.LIMIT_S", 0.3)
    answer = client.get("/readyz")
    answered.set()
    assert answer.status_code == 503
    parts = {"database": "down", "store": "up", "broker": "none", "workers": "none"}
    assert answer.json() == {"status": "not ready", **parts}


def test_a_full_store_is_told_and_serves_what_it_holds(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full() -> None:
        raise ServiceDiskFull("There is no room left.")

    monkeypatch.setattr(client.app.state.store, "check_store_usable", raise_disk_full)  # type: ignore[attr-defined]
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["store"]) == (200, "full")


@pytest.mark.parametrize("hidden", ["%2f", "%2F", "%5c", "%5C", "%00", "%2e", "%2E"])
def test_a_path_that_hides_a_character_is_not_found_and_says_which(
    shared: TestClient, hidden: str
) -> None:
    problem = assert_problem(shared.get(f"/v1/models/a{hidden}b"), 404, "not-found")
    assert hidden in problem["detail"]


def test_a_percent_form_of_another_character_is_read(client: TestClient) -> None:
    assert client.get("/v1/%6dodels").status_code == 200


def test_two_hosts_are_refused(client: TestClient) -> None:
    both = [("Host", "a"), ("Host", "b"), ("Authorization", client.headers["Authorization"])]
    assert_problem(client.request("GET", "/v1/models", headers=both), 400, "bad-request")


def test_another_coding_than_chunks_is_refused(client: TestClient) -> None:
    answer = client.post(
        "/v1/models", content=iter([b"{}"]), headers={"Transfer-Encoding": "gzip, chunked"}
    )
    assert_problem(answer, 400, "bad-request")
