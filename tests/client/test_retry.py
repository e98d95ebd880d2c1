"""Retries against a failing server: which requests, how often, and with which idempotency key."""

import pytest
from stub import Said, build_problem, run_stub_with_client

from perennial import (
    APIError,
    ArchiveRejected,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Perennial,
    Retries,
    ServiceUnreachable,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from tools import service

MODEL = {"id": "mdl_1", "name": "birds"}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses between attempts instead of waiting."""
    found: list[float] = []
    monkeypatch.setattr("perennial._sync.http.sleep_seconds", found.append)
    return found


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_failure_that_may_pass_is_tried_again(status: int) -> None:
    answers = iter(
        [
            build_problem(status, "unavailable"),
            build_problem(status, "unavailable"),
            Said(body=MODEL),
        ]
    )
    with run_stub_with_client(lambda _: next(answers)) as (stub, client):
        assert client.models.retrieve("birds").name == "birds"
        assert len(stub.asked) == 3


def test_five_attempts_are_made_and_then_the_problem_is_raised() -> None:
    said = build_problem(503, "unavailable", "The database is down.")
    with run_stub_with_client(lambda _: said) as (stub, client):
        with pytest.raises(Unavailable, match="database is down"):
            client.models.retrieve("birds")
        assert len(stub.asked) == 5


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "bad-request", Invalid),
        (401, "not-authenticated", Unauthorized),
        (403, "not-allowed", Forbidden),
        (404, "not-found", NotFound),
        (409, "wrong-state", Conflict),
        (413, "body-too-large", TooLarge),
        (413, "archive-too-large", ArchiveRejected),
        (415, "unsupported-type", Invalid),
        (422, "archive-hostile", ArchiveRejected),
        (422, "invalid", Invalid),
        (429, "storage-full", TooManyRequests),
        (500, "internal", Unavailable),
        (507, "no-space", Unavailable),
    ],
)
def test_no_other_problem_is_tried_again(status: int, code: str, kind: type[APIError]) -> None:
    with run_stub_with_client(lambda _: build_problem(status, code, "Say it otherwise.")) as (
        stub,
        client,
    ):
        with pytest.raises(kind) as caught:
            client.models.retrieve("birds")
        assert len(stub.asked) == 1
    assert (caught.value.status, caught.value.code, caught.value.request_id) == (
        status,
        code,
        "req-1",
    )
    assert caught.value.detail == "Say it otherwise."


def test_all_attempts_of_a_post_carry_one_idempotency_key() -> None:
    answers = iter(
        [
            build_problem(503, "unavailable"),
            build_problem(409, "idempotency-in-flight"),
            Said(201, MODEL),
        ]
    )
    with run_stub_with_client(lambda _: next(answers)) as (stub, client):
        client.models.create("birds")
        client_keys = [one.headers["idempotency-key"] for one in stub.asked]
        assert len(client_keys) == 3 and len(set(client_keys)) == 1


def test_two_posts_have_two_keys() -> None:
    with run_stub_with_client(lambda _: Said(201, MODEL)) as (stub, client):
        client.models.create("birds")
        client.models.create("birds")
        assert len({one.headers["idempotency-key"] for one in stub.asked}) == 2


def test_retry_after_is_waited_for(pauses: list[float]) -> None:
    answers = iter([build_problem(429, "too-many-requests", Retry_After="7"), Said(body=MODEL)])
    with run_stub_with_client(lambda _: next(answers)) as (_, client):
        client.models.retrieve("birds")
    assert 7 <= pauses[0] <= 7.5


def test_a_longer_pause_than_a_person_would_wait_is_an_error_at_once(pauses: list[float]) -> None:
    said = build_problem(503, "unavailable", Retry_After="3600")
    with run_stub_with_client(lambda _: said) as (_, client), pytest.raises(Unavailable) as caught:
        client.models.retrieve("birds")
    assert caught.value.retry_after_s == 3600
    assert pauses == []


def test_pauses_are_jittered_and_bounded() -> None:
    error = Unavailable(503, {})
    retries = Retries(attempts=20)
    for attempt, most in ((1, 0.5), (2, 1.0), (3, 2.0), (12, 30.0)):
        found = [retries.compute_pause_seconds(error, attempt, True) or 0.0 for _ in range(300)]
        assert max(found) <= most
        assert min(found) < most / 4 and max(found) > most / 2


@pytest.mark.parametrize("status", [502, 504])
def test_what_must_not_happen_twice_is_not_asked_for_twice(status: int) -> None:
    with run_stub_with_client(lambda _: build_problem(status, "bad-gateway")) as (stub, client):
        with pytest.raises(Unavailable):
            client.keys.create("ci")
        assert len(stub.asked) == 1


def test_nobody_there_is_told_in_a_sentence(pauses: list[float]) -> None:
    url = f"http://127.0.0.1:{service.find_free_port()}"
    unreachable = pytest.raises(ServiceUnreachable, match="does not answer")
    with Perennial("k", base_url=url) as client, unreachable as caught:
        client.models.retrieve("birds")
    assert not caught.value.is_sent
    assert len(pauses) == 4


def test_a_page_of_a_proxy_is_an_error_too() -> None:
    said = Said(502, b"<html>Bad\nGateway</html>")
    with run_stub_with_client(lambda _: said) as (_, client), pytest.raises(Unavailable) as caught:
        client.models.retrieve("birds")
    assert "A web page came in place of an answer (status 502)" in caught.value.detail
    assert "<html>" not in caught.value.detail


def test_fields_of_a_newer_service_are_kept() -> None:
    with run_stub_with_client(lambda _: Said(body={**MODEL, "colour": "green"})) as (_, client):
        found = client.models.retrieve("birds")
    assert found.extra == {"colour": "green"}
    assert found.to_dict()["colour"] == "green"


def test_a_name_with_a_slash_stays_one_segment() -> None:
    with run_stub_with_client(lambda _: Said(body=MODEL)) as (stub, client):
        client.models.retrieve("../keys")
    assert stub.asked[0].path == "/v1/models/..%2Fkeys"
