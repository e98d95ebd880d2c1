"""A hostile hub: what it names stays a name, what it sends is bounded, and it leads
nowhere inside.
"""

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from core.bases.hub import download as process
from core.bases.hub import guarded_hub
from core.bases.hub.guarded_hub import GuardedHubClient, HubResponseRefused
from core.contract.jobs.hub import HubDownloadCompletedEvent, HubDownloadRequest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATA = b"weights " * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()
TOKEN = "hf_secret"
SECRET = "/inside/secret"


class Hub:
    """A server of answers: `info`, the head of the file, and the file, each as (status, headers,
    body).
    """

    def __init__(self) -> None:
        self.info: tuple[int, dict[str, str], Any] = (
            200,
            {},
            {"sha": COMMIT, "siblings": [{"rfilename": "w.safetensors"}]},
        )
        self.head: tuple[int, dict[str, str], Any] = (
            200,
            {"ETag": SHA256, "Content-Length": str(len(DATA))},
            b"",
        )
        self.file: tuple[int, dict[str, str], Any] = (200, {}, DATA)
        self.asked: list[tuple[str, str, str | None]] = []
        self.sent, self.url = 0, ""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    found = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            found.asked.append((self.command, self.path, self.headers.get("Authorization")))
            part = (
                found.info
                if self.path.startswith("/api/")
                else found.head
                if self.command == "HEAD"
                else found.file
            )
            status, headers, body = part
            if self.path == SECRET:
                status, headers, body = 200, {}, b"inside"
            content = (
                json.dumps(body).encode()
                if isinstance(body, (dict, list, str, int, type(None)))
                else body
            )
            self.send_response(status)
            length = (
                {}
                if not isinstance(content, bytes) or self.command == "HEAD"
                else {"Content-Length": str(len(content))}
            )
            for name, value in {**length, **headers}.items():
                self.send_header(name, value.replace("{port}", found.url.rpartition(":")[2]))
            self.end_headers()
            self.close_connection = not length
            for piece in [content] if isinstance(content, bytes) else content:
                self.wfile.write(piece)
                found.sent += len(piece)

        do_GET = do_HEAD = _serve

        def log_message(self, *_: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            return

    with Server(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        for name, value in (
            ("ENDPOINT", found.url),
            ("HF_HUB_ETAG_TIMEOUT", 5),
            ("HF_HUB_DOWNLOAD_TIMEOUT", 5),
        ):
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(process, "TRIES", 2)
        monkeypatch.setattr(process, "PAUSE_S", 0.0)
        monkeypatch.setattr(guarded_hub, "MAX_INFO_BYTES", 1 << 20)
        yield found
        server.shutdown()


def fetch_hub_file(folder: Path, repository: str = "timm/net") -> HubDownloadCompletedEvent:
    asked = HubDownloadRequest(
        repository=repository, file="w.safetensors", folder=folder, max_bytes=1 << 20
    )
    return process.download_hub_file_printing_start_event(asked)


def _build_info_change(**fields: Any) -> Callable[[Hub], None]:
    def change_hub_info(hub: Hub) -> None:
        hub.info = (200, {}, {**hub.info[2], **fields})

    return change_hub_info


def _build_response_change(
    part: str, status: int, headers: dict[str, str], body: Any = b""
) -> Callable[[Hub], None]:
    return lambda hub: setattr(hub, part, (status, headers, body))


def _build_head_change(**headers: str) -> Callable[[Hub], None]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    usual = {"ETag": SHA256, "Content-Length": str(len(DATA))}
    return lambda hub: setattr(hub, "head", (200, {**usual, **given}, b""))


def _build_redirect_change(location: str) -> Callable[[Hub], None]:
    return _build_response_change("file", 302, {"Location": location})


INSIDE = (
    "http://127.0.0.1:1/x", "http://localhost:1/x", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1/x",
    "http://168.63.129.16/x", "http://[::1]:1/x", "http://[::ffff:10.0.0.1]/x", "http://[64:ff9b::a00:1]/x",
    "http://[2002:a00:1::]/x", "http://[fe80::1%25lo]/x", "http://metadata.google.internal/x", "http://0.0.0.0/x",
    "http://[fd00:ec2::254]/x", "http://100.100.100.200/x",
)  # fmt: skip
SCHEMES = (
    "file:///etc/passwd", "ftp://example.org/x", "gopher://127.0.0.1:6379/_INFO", "javascript:alert(1)", "data:,x",
    "http://user:pw@example.org/x", "http://", "http://[", "//", "http://exa mple.org/x", "unix:///var/run/docker.sock",
)  # fmt: skip
HOSTILE: dict[str, Callable[[Hub], None]] = {
    **{f"commit {sha!r:.40}": _build_info_change(sha=sha) for sha in
       ("../../../pwned", "/tmp/pwned", "main", "", COMMIT.upper(), COMMIT + "0", COMMIT[:-1] + "/", None, 5, [COMMIT],
        COMMIT + "\n", "a" * 10_000)},
    "no files": _build_info_change(siblings=None),
    "files that are "
    "none": _build_info_change(siblings=[None, 5, {"rfilename": ["w.safetensors"]}, {"rfilename": {}}, "a"]),
    "info that is a list": _build_response_change("info", 200, {}, [1]),
    "info that is null": _build_response_change("info", 200, {}, None),
    "info that nests too deep": _build_response_change("info", 200, {}, b"[" * 200_000),
    "info that is a page": _build_response_change("info", 200, {}, b"<html>"),
    "endless info": lambda hub: setattr(hub, "info", (200, {}, itertools.repeat(b" " * 65536))),
    "info in a loop": _build_response_change("info", 302, {"Location": "/api/again"}),
    "info elsewhere": _build_response_change("info", 302, {"Location": "http://localhost:1/x"}),
    "info refused": _build_response_change("info", 500, {}),
    "no digest": _build_response_change("head", 200, {"Content-Length": "8000"}),
    "a digest that is a path": _build_head_change(ETag="../" * 21 + "a"),
    "another digest": _build_head_change(ETag="0" * 64),
    "a size that is none": _build_head_change(X_Linked_Size="1e3"),
    "a size below zero": _build_head_change(X_Linked_Size="-8000"),
    "a size without end": _build_head_change(X_Linked_Size="9" * 40),
    "a size beyond the limit": _build_head_change(X_Linked_Size=str(2 << 20)),
    "a head in a loop": _build_response_change("head", 302, {"Location": "/again"}),
    "a head to a file": _build_response_change("head", 302, {"Location": "file:///etc/passwd"}),
    "more than it named": lambda hub: setattr(hub, "file", (200, {}, itertools.repeat(DATA))),
    "less than it named": _build_response_change("file", 200, {}, DATA[:-1]),
    "nothing": _build_response_change("file", 200, {}, b""),
    "other bytes": _build_response_change("file", 200, {}, DATA[:-1] + b"!"),
    "a file in a loop": _build_response_change("file", 302, {"Location": "/again"}),
    "a file refused": _build_response_change("file", 403, {}),
    "a redirect without a place": _build_response_change("file", 302, {}),
    **{f"inside: {place}": _build_redirect_change(place) for place in INSIDE},
    **{f"scheme: {place}": _build_redirect_change(place) for place in SCHEMES},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_hub_ends_as_a_sentence_and_leaves_nothing_outside(
    hub: Hub, name: str, tmp_path: Path
) -> None:
    HOSTILE[name](hub)
    folder = tmp_path / "downloads"
    with pytest.raises(process.HubDownloadError) as failed:
        fetch_hub_file(folder)
    said = str(failed.value)
    assert said.isprintable() and len(said) < 300 and TOKEN not in said
    if name.startswith(("inside", "scheme")):
        assert "The Hub redirects" in said  # and was not merely out of reach
    assert hub.sent < 16 << 20 and len(hub.asked) < 30
    assert {one.name for one in tmp_path.iterdir()} <= {"downloads"}
    assert {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()} <= {
        f"timm--net/{COMMIT}/w.safetensors.part"
    }


@pytest.mark.parametrize(
    "repository", ["../../etc", "a/../b", "/etc/passwd", "a/b/c", "a", "a/b?x", "a/..", "-/b"]
)
def test_what_is_no_repository_is_asked_of_no_hub(
    hub: Hub, repository: str, tmp_path: Path
) -> None:
    with pytest.raises(process.HubDownloadError, match="no repository"):
        fetch_hub_file(tmp_path, repository)
    assert hub.asked == []


def test_an_honest_hub_is_read_with_its_token(hub: Hub, tmp_path: Path) -> None:
    assert fetch_hub_file(tmp_path).path.read_bytes() == DATA
    assert {token for _, _, token in hub.asked} == {f"Bearer {TOKEN}"}


def test_the_address_that_was_checked_is_the_one_that_is_dialled(hub: Hub) -> None:
    """A resolver that says something else at each question gets no second question for one
    connection.
    """
    port = int(hub.url.rpartition(":")[2])
    answers = itertools.cycle([["127.0.0.1"], ["10.0.0.1"]])
    asked: list[str] = []

    def resolve_to_next_answer(host: str, _port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    hub.file = (302, {"Location": f"http://cdn.test:{port}{SECRET}"}, b"")
    with GuardedHubClient(hub.url, {}, TOKEN, resolve_to_next_answer) as guarded:
        with guarded.open_response("GET", "/file", {}, 5.0) as answer:
            assert answer.read() == b"inside"
        assert asked == ["cdn.test"]
        assert hub.asked[-1] == ("GET", SECRET, None), "the token stays with the hub"
        with (
            pytest.raises(HubResponseRefused, match=r"10\.0\.0\.1 is a private"),
            guarded.open_response("GET", "/file", {}, 5.0),
        ):
            pass


def test_a_hub_of_https_leads_to_https_alone(hub: Hub) -> None:
    with GuardedHubClient(hub.url, {}, None) as guarded:
        before = guarded_hub.httpx2.URL("https://hub.test/x")
        answer = guarded_hub.httpx2.Response(302, headers={"Location": "http://example.org/x"})
        with pytest.raises(HubResponseRefused, match="not followed"):
            guarded._find_redirect_target(answer, before)
