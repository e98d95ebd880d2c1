"""Files and streams of a hostile service: bounds on reading, and the files that are written."""

import asyncio
import gzip
import io
import itertools
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile_service
import pytest
from hostile_answers import build_json_response
from hostile_service import HostileService, Reply, Request, build_http_response
from sample_answers import answer_as_service, build_file_answer, build_onnx_zip, find_sample_answer

from perennial import AsyncPerennial, BadAnswer, Perennial
from perennial.cli.main import run_command_line
from perennial.responses import MAX_RATIO, ResponseBodyLimitMeter

MIB = 1 << 20
Answer = Callable[[Request], Reply]


@pytest.fixture(scope="module")
def service() -> Iterator[HostileService]:
    with hostile_service.run_hostile_service() as found:
        yield found


@pytest.fixture(autouse=True)
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: HostileService) -> Path:
    """Return a folder to work in, and a client that does not wait."""
    for module in ("http", "upload", "download", "stream", "job"):
        monkeypatch.setattr(f"perennial._sync.{module}.sleep_seconds", lambda _: None)
    monkeypatch.setattr("perennial._sync.upload.send_batch.__defaults__", (1,))
    monkeypatch.setattr("perennial._sync.download.LONGEST_MAKING_S", 60.0)
    monkeypatch.setitem(Perennial.__init__.__kwdefaults__, "max_retries", 0)
    monkeypatch.setenv("PERENNIAL_URL", service.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", "pk_secret")
    service.forget()
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "batch.zip").write_bytes(b"some bytes")
    monkeypatch.chdir(folder)
    return folder


def replace_downloads(answer: Answer) -> Answer:
    """Return an honest service except for its files, which `answer` gives."""
    return lambda request: (
        answer(request) if "/download" in request.target else answer_as_service(request)
    )


def build_version_answer(number: Any) -> Answer:
    """Return a service whose version has another number."""

    def answer_with_version_number(request: Request) -> Reply:
        found = find_sample_answer(request.method, request.target)
        is_version = request.target == "/v1/models/birds/versions/1"
        return (
            build_json_response({**found, "number": number})
            if is_version
            else answer_as_service(request)
        )

    return answer_with_version_number


def _build_wrong_length_answer(head: str | None, got: int) -> Answer:
    """Announce one length and send another."""

    def answer_with_wrong_length(request: Request) -> Reply:
        if request.method == "HEAD":
            line = "" if head is None else f"Content-Length: {head}\r\n"
            return iter([f"HTTP/1.1 200 OK\r\n{line}Connection: close\r\n\r\n".encode()])
        return build_http_response(b"x" * got)

    return answer_with_wrong_length


def _build_zip(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entries:
            archive.writestr(name, content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _answer_unasked_range(request: Request) -> Reply:
    """Answer with a range that the client did not request."""
    content = build_onnx_zip()
    whole = build_file_answer(content)(request)
    if request.method == "HEAD":
        return whole
    part = {"Content_Range": f"bytes 7-{len(content)}/{len(content)}"}
    return build_http_response(content, "206 Partial Content", **part)


def _build_not_ready_answer(pause: str) -> Answer:
    return lambda _request: build_http_response(b"", "202 Accepted", Retry_After=pause)


LINK = zipfile.ZipInfo("link")
LINK.create_system, LINK.external_attr = 3, 0o120777 << 16
ZIP, FILES, TRITON = (
    "download birds -v 1",
    "download birds -v 1 --layout files",
    "download birds -v 1 --layout triton",
)
DOWNLOADS: dict[str, tuple[str, Answer, str]] = {
    "a version that is a path": (ZIP, build_version_answer("../../pwned"), "where a whole number belongs"),
    "a version that is a broken number": (ZIP, build_version_answer(1.5), "where a whole number belongs"),
    "a version below zero": (ZIP, build_version_answer(-1), "should be a whole number"),
    "no version": (ZIP, build_version_answer(None), "should be a whole number"),
    "another version": (ZIP, build_version_answer(7), "answers with version 7, where version 1 was asked "
        "for"),
    "another digest": (ZIP, replace_downloads(build_file_answer(b"x", ETag=f'"{"0" * 64}"')), "was announced. "
        "Nothing was kept"),
    "more than was announced": (ZIP, replace_downloads(_build_wrong_length_answer("10", 5 * MIB)),
        "more than 10 bytes"),
    "less than was announced": (ZIP, replace_downloads(_build_wrong_length_answer("1000", 10)),
        "ended after 10 of 1000 "
        "bytes"),
    "no length": (ZIP, replace_downloads(_build_wrong_length_answer(None, 10)), "Content-Length"),
    "a length that is none": (ZIP, replace_downloads(_build_wrong_length_answer("1e9", 10)), "e"),
    "a length without end": (ZIP, replace_downloads(_build_wrong_length_answer("9" * 17, 10)), "--max-size"),
    "more than is allowed": (f"{ZIP} --max-size "
        f"1KiB", replace_downloads(build_file_answer(b"x" * 1025)), "1,024 are taken"),
    "another part": (ZIP, replace_downloads(_answer_unasked_range), "another digest|was announced|another part"),
    "never ready": (ZIP, replace_downloads(_build_not_ready_answer("1e300")), "still makes"),
    "ready at no time": (ZIP, replace_downloads(_build_not_ready_answer("nan")), "still makes"),
    "names upwards": (FILES, replace_downloads(build_file_answer(_build_zip(("../../pwned", b"x")))), "no safe name"),
    "an absolute "
    "name": (FILES, replace_downloads(build_file_answer(_build_zip(("/tmp/pwned", b"x")))), "no safe name"),
    "a name of "
    "Windows": (FILES, replace_downloads(build_file_answer(_build_zip(("C:\\pwned", b"x")))), "no safe name"),
    "a device": (FILES, replace_downloads(build_file_answer(_build_zip(("NUL.txt", b"x")))), "no safe name"),
    "a hidden name": (FILES, replace_downloads(build_file_answer(_build_zip((".bashrc", b"x")))), "no safe name"),
    "a name with "
    "escapes": (FILES, replace_downloads(build_file_answer(_build_zip(("a\x1b[2J\u202e.txt", b"x")))), "no safe name"),
    "a bomb": (FILES, replace_downloads(build_file_answer(_build_zip(("model.safetensors",
        bytes(80 * MIB))))), "far more than its size"),
    "many files": (FILES, replace_downloads(build_file_answer(_build_zip(*((f"f{n}",
        b"") for n in range(1500))))), "1,500 files"),
    "no zip": (FILES, replace_downloads(build_file_answer(b"\x1b[2J")), "no archive that can be read"),
    "labels upwards": (TRITON, replace_downloads(build_file_answer(build_onnx_zip({"../../pwned": ["a"]}))),
        "no safe name"),
    "labels that are none": (TRITON, replace_downloads(build_file_answer(build_onnx_zip({"a": 5}))), "does not name "
        "the labels"),
    "a graph upwards": (TRITON, replace_downloads(build_file_answer(build_onnx_zip(None,
        **{"model.onnx./../../a": b"x"}))), "no safe"),
}  # fmt: skip
"""Command, answers, and part of the message that the user reads."""


@pytest.mark.parametrize("name", DOWNLOADS)
def test_a_hostile_download_ends_as_a_sentence_and_leaves_nothing(
    service: HostileService, name: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, service.answer, sentence = DOWNLOADS[name]
    assert run_command_line(command.split()) not in (0, 2)
    err = capsys.readouterr().err
    assert any(part in err for part in sentence.split("|")), err
    assert service.sent < 16 * MIB
    left = {
        str(one.relative_to(work))
        for one in work.rglob("*")
        if one.is_file() and one.suffix != ".part"
    }
    # what a layout began is inside its own folder
    assert {one for one in left if not one.startswith(("birds-1/", "birds/"))} == {"batch.zip"}
    assert {one.name for one in work.parent.iterdir()} <= {"work", "home"}


def test_a_link_in_a_download_is_a_file_of_its_text(service: HostileService, work: Path) -> None:
    service.answer = replace_downloads(build_file_answer(_build_zip((LINK, b"/etc/passwd"))))
    assert run_command_line(FILES.split()) == 0
    assert not (work / "birds-1" / "link").is_symlink()
    assert (work / "birds-1" / "link").read_bytes() == b"/etc/passwd"


def test_only_what_was_compared_is_called_verified(
    service: HostileService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answer = replace_downloads(build_file_answer(build_onnx_zip()))
    assert run_command_line(ZIP.split()) == 0
    assert capsys.readouterr().out.rstrip().endswith(" verified.")
    service.answer = replace_downloads(build_file_answer(build_onnx_zip(), ETag='"some-tag"'))
    assert run_command_line(ZIP.split()) == 0
    assert capsys.readouterr().out.rstrip().endswith("not verified: the service sent no digest.")


def _build_upload_answer(
    location: str, *, offset: Callable[[int], str] = str, known: bool = True
) -> Answer:
    """Accept an upload of ten bytes with these headers."""
    counts = itertools.count()

    def answer_upload_request(request: Request) -> Reply:
        if request.method == "POST" and request.target == "/v1/uploads":
            return build_http_response(b"{}", "201 Created", Location=location)
        if request.method in ("HEAD", "PATCH") and not known:
            return build_http_response(b"", "404 Not Found")
        if request.method == "HEAD":
            return build_http_response(b"", "200 OK", Upload_Offset=offset(0))
        if request.method == "PATCH":
            return build_http_response(b"", "200 OK", Upload_Offset=offset(next(counts)))
        return answer_as_service(request)

    return answer_upload_request


PLACES = (
    "http://evil.test/v1/uploads/upl_1", "//evil.test/v1/uploads/upl_1", "https://127.0.0.1/v1/uploads/upl_1",
    "file:///v1/uploads/upl_1", "/v1/keys/key_1", "/v1/uploads/../keys", "/v1/uploads/a/b", "/v1/uploads/", "",
    "/v1/uploads/upl_1?x=y", "/v1/uploads/upl_1#x", "/v1/uploads/%2e%2e", "http://[", "/v1/uploads/\x9b2J",
    "javascript:alert(1)", "/v1/uploads/" + "a" * 5000,
)  # fmt: skip
UPLOADS: dict[str, Answer] = {
    **{f"to {place[:40]!r}": _build_upload_answer(place) for place in PLACES},
    "an offset that is text": _build_upload_answer("/v1/uploads/upl_1", offset=lambda _: "abc"),
    "an offset below zero": _build_upload_answer("/v1/uploads/upl_1", offset=lambda _: "-1"),
    "an offset without end": _build_upload_answer("/v1/uploads/upl_1", offset=lambda _: "9" * 40),
    "an offset beyond the file": _build_upload_answer("/v1/uploads/upl_1", offset=lambda _: "11"),
    "an offset that stays": _build_upload_answer("/v1/uploads/upl_1", offset=lambda _: "0"),
    "an upload that is lost again and again": _build_upload_answer(
        "/v1/uploads/upl_1", known=False
    ),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_an_upload_goes_nowhere_else_and_ends(
    service: HostileService, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answer = UPLOADS[name]
    assert run_command_line(["submit", "birds", "batch.zip", "--detach"]) != 0
    err = capsys.readouterr().err
    assert "Traceback" not in err and "The service" in err
    assert len(service.requests) < 40
    assert {one.target.partition("?")[0] for one in service.requests} <= {
        "/v1/models/birds", "/v1/uploads", "/v1/uploads/upl_1", "/v1/models/birds/tasks",
    }  # fmt: skip


def _stream_forever(piece: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    yield from itertools.repeat(piece)


STREAMS: dict[str, Answer] = {
    "a line without end": lambda _: _stream_forever(b"data: " + b"a" * 65536),
    "an event without end": lambda _: _stream_forever(b"data: " + b"a" * 60000 + b"\n"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_an_endless_event_is_not_read(
    service: HostileService, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = STREAMS[name]
    service.answer = lambda request: (
        stream(request) if "/events" in request.target else answer_as_service(request)
    )
    assert run_command_line(["jobs", "watch", "job_1", "--json"]) == 1
    assert "an event of more than" in capsys.readouterr().err
    assert service.sent < 16 * MIB


def test_events_that_came_before_are_not_told_again(
    service: HostileService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that repeats itself is read only up to a limit of bytes.

    Then the client checks whether the job has ended.
    """
    monkeypatch.setattr("perennial._sync.stream.MAX_STREAM_BYTES", MIB)
    event = (
        b'id: 5\ndata: {"id": 5, "type": "log", "at": "t", "data": {"level": "info", '
        b'"message": "m"}}\n\n'
    )
    odd = b'id: \xc2\xb2\xc2\xb3\ndata: {"id": 6, "type": "log", "at": "t"}\n\n'
    stream = [odd, *([event * 500] * 200)]
    head = next(_stream_forever(b""))
    service.answer = lambda request: (
        iter([head, *stream]) if "/events" in request.target else answer_as_service(request)
    )
    assert run_command_line(["jobs", "watch", "job_1", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum('"id":5' in line for line in lines) == 1
    assert service.sent < 16 * MIB


def _drip_spaces(first: bytes) -> Iterator[bytes]:
    yield first
    while True:
        time.sleep(0.01)
        yield b" "


DRIPS = (
    b"HTTP/1.1 200 OK\r\nX: ",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
)


@pytest.mark.parametrize("first", DRIPS)
def test_an_answer_that_drips_ends(service: HostileService, first: bytes) -> None:
    service.answer = lambda _: _drip_spaces(first)
    with (
        Perennial("k", base_url=service.url, timeout=0.2) as client,
        pytest.raises(Exception, match=r"slowly|within|timed out"),
    ):
        client.me()

    async def send_me_request() -> None:
        async with AsyncPerennial("k", base_url=service.url, timeout=0.2, max_retries=0) as found:
            await found.me()

    with pytest.raises(Exception, match=r"slowly|within|timed out"):
        asyncio.run(send_me_request())


PACKED = gzip.compress(bytes(64 * MIB), 9)
LARGE: dict[str, Answer] = {
    "a bomb": lambda _: build_http_response(PACKED, Content_Encoding="gzip"),
    "a body without end": lambda _: itertools.chain(
        [b"HTTP/1.1 200 OK\r\n\r\n"], itertools.repeat(bytes(65536))
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_too_large_is_never_held(
    service: HostileService, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perennial._sync.http.MAX_ANSWER_BYTES", 4 * MIB)
    service.answer = LARGE[name]
    with Perennial("k", base_url=service.url) as client:
        tracemalloc.start()
        with pytest.raises(BadAnswer, match=r"more than 4,194,304 bytes|times its size"):
            client.me()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 16 * MIB
    assert service.sent < 16 * MIB


def test_an_answer_may_grow_by_unpacking_only_so_far() -> None:
    meter = ResponseBodyLimitMeter(1 << 40, 60.0)
    meter.count_received_bytes(MIB, 10)  # small enough to be let through
    meter.count_received_bytes(MIB, 2 * MIB // MAX_RATIO + 1)
    with pytest.raises(BadAnswer, match="times its size"):
        meter.count_received_bytes(MIB, 3 * MIB // MAX_RATIO)


def test_an_address_that_moved_is_told_and_the_key_stays(service: HostileService) -> None:
    with (
        hostile_service.run_hostile_service() as other,
        Perennial("pk_secret", base_url=service.url) as client,
    ):
        service.answer = lambda _: build_http_response(
            b"", "302 Found", Location=f"{other.url}/v1/me"
        )
        with pytest.raises(Exception, match="follows no redirect"):
            client.me()
        assert other.requests == []
