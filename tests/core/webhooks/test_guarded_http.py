"""Requests to addresses of others: each goes to the checked address, and ends in time."""

import itertools
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import receiver as receivers

from core.webhooks import guarded_http
from core.webhooks.guarded_http import (
    GuardedRequestSettings,
    NoHttpResponseError,
    post_guarded_request,
)
from perennial.public_address import parse_ip_networks, parse_url_target
from tests.security import addresses

LOOPBACK = parse_ip_networks("127.0.0.0/8")
WAY = GuardedRequestSettings(LOOPBACK, 5.0)
SHORT = GuardedRequestSettings(LOOPBACK, 0.6)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a self-signed certificate of `receiver.test`, with its key."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    named = "-subj /CN=receiver.test -addext subjectAltName=DNS:receiver.test"
    made = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 {named} -keyout {path}.key -out {path}"
    )
    subprocess.run(made.split(), check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.key").read_text())
    return path


def test_a_body_is_posted_once_and_the_first_bytes_of_the_answer_are_read() -> None:
    with receivers.run_receiver() as receiver:
        receiver.status, receiver.body = lambda path, number: 200, b"thanks"
        answer = post_guarded_request(
            parse_url_target(f"{receiver.url}/hook?a=b"), {"webhook-id": "dlv_1"}, b"{}", WAY
        )
        (one,) = receiver.seen
    assert (answer.status, answer.body) == (200, "thanks")
    assert one.path == "/hook?a=b" and one.body == b"{}" and one.headers["webhook-id"] == "dlv_1"
    assert one.headers["host"] == receiver.url.removeprefix("http://")


def test_a_long_answer_is_cut() -> None:
    with receivers.run_receiver() as receiver:
        receiver.body, receiver.status = b"x" * 1_000_000, lambda path, number: 500
        answer = post_guarded_request(parse_url_target(f"{receiver.url}/"), {}, b"{}", WAY)
    assert (answer.status, answer.body) == (500, "x" * guarded_http.ANSWER_BYTES)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status: int) -> None:
    with receivers.run_receiver() as receiver, receivers.run_receiver() as inside:
        receiver.status, receiver.headers = (
            lambda path, number: status,
            {"Location": f"{inside.url}/secret"},
        )
        assert (
            post_guarded_request(parse_url_target(f"{receiver.url}/"), {}, b"{}", WAY).status
            == status
        )
        assert (len(receiver.seen), len(inside.seen)) == (1, 0)


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receivers.run_receiver() as receiver, receivers.run_receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert (
            post_guarded_request(parse_url_target(f"{receiver.url}/"), {}, b"{}", WAY).status == 204
        )
        assert (len(receiver.seen), len(proxy.seen)) == (1, 0)


def test_a_name_is_resolved_once_and_exactly_that_address_is_dialled() -> None:
    """The name is looked up only once, even if the resolver would answer differently each time."""
    asked: list[str] = []
    answers = itertools.cycle([["127.0.0.1"], ["169.254.169.254"]])

    def resolve_to_next_answer(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    with receivers.run_receiver() as receiver:
        port = receiver.url.rpartition(":")[2]
        target = parse_url_target(f"http://receiver.test:{port}/")
        assert (
            post_guarded_request(
                target, {}, b"{}", GuardedRequestSettings(LOOPBACK, 5.0, resolve_to_next_answer)
            ).status
            == 204
        )
        assert asked == ["receiver.test"]
        assert receiver.seen[0].headers["host"] == f"receiver.test:{port}"
        with pytest.raises(
            NoHttpResponseError, match=r"169\.254\.169\.254 is a link-local address"
        ):
            post_guarded_request(
                target, {}, b"{}", GuardedRequestSettings(LOOPBACK, 5.0, resolve_to_next_answer)
            )


def test_a_name_that_was_public_and_is_not_any_more_is_not_dialled() -> None:
    with receivers.run_receiver() as receiver:
        port = receiver.url.rpartition(":")[2]
        for named in addresses.NAMES:
            target = parse_url_target(f"https://receiver.test:{port}/")
            with pytest.raises(NoHttpResponseError):
                post_guarded_request(
                    target,
                    {},
                    b"{}",
                    GuardedRequestSettings(
                        (), 5.0, lambda host, port, named=named: list(named.answers)
                    ),
                )
        assert receiver.seen == []


def test_tls_asks_for_the_name_though_the_address_is_dialled(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trust = ssl.create_default_context(cafile=str(certificate))
    asked: list[str | None] = []
    context.sni_callback = lambda connection, name, context: asked.append(name)
    way = GuardedRequestSettings(LOOPBACK, 5.0, lambda host, port: ["127.0.0.1"])
    with receivers.run_receiver(context) as receiver:
        port = receiver.url.rpartition(":")[2]
        with pytest.raises(NoHttpResponseError, match="certificate is not trusted"):
            post_guarded_request(parse_url_target(f"https://receiver.test:{port}/"), {}, b"{}", way)
        monkeypatch.setattr(guarded_http, "_load_tls_context", lambda: trust)
        assert (
            post_guarded_request(
                parse_url_target(f"https://receiver.test:{port}/"), {}, b"{}", way
            ).status
            == 204
        )
        with pytest.raises(NoHttpResponseError, match="certificate is not trusted"):
            post_guarded_request(parse_url_target(f"https://other.test:{port}/"), {}, b"{}", way)
    assert asked == ["receiver.test", "receiver.test", "other.test"]


def _repeat_byte_forever(first: bytes) -> Iterator[bytes]:
    yield first
    while True:
        yield b"x"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n",
    ],
)
def test_an_answer_that_drips_ends_at_the_deadline(first: bytes) -> None:
    with (
        receivers.serve_slowly(lambda: _repeat_byte_forever(first)) as url,
        pytest.raises(NoHttpResponseError, match="within 1 s"),
    ):
        post_guarded_request(parse_url_target(url), {}, b"{}", SHORT)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"-ERR unknown command\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"\x00" * 200,
    ],
)
def test_what_speaks_no_http_is_told_in_a_sentence(answer: bytes) -> None:
    with (
        receivers.serve_slowly(lambda: iter([answer])) as url,
        pytest.raises(NoHttpResponseError) as told,
    ):
        post_guarded_request(parse_url_target(url), {}, b"{}", WAY)
    assert str(told.value).startswith("The receiver") and str(told.value).isprintable()


def test_nobody_there_is_told_in_a_sentence() -> None:
    with pytest.raises(NoHttpResponseError, match="cannot be reached: Connection refused"):
        post_guarded_request(parse_url_target("http://127.0.0.1:1/"), {}, b"{}", WAY)
