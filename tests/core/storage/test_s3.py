"""Behaviour of the S3 store alone: retries, resumed downloads, signed URLs, and outages that end in
time.
"""

import logging
import os
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from minio.error import S3Error

from core.errors import StoredObjectDamaged, Unavailable
from core.storage import ObjectStorage, open_object_store
from core.storage.address import S3Address
from core.storage.s3 import CHECK_LIMITS, REQUEST_LIMITS, S3Store, S3TimeLimits
from tools import service

HASTE = S3TimeLimits(connect_s=0.5, read_s=60.0, retries=1, pause_s=0.05)


@pytest.fixture
def address(s3: Any, request: pytest.FixtureRequest) -> S3Address:
    return S3Address.parse(s3.url(s3.bucket, f"s3/{abs(hash(request.node.nodeid))}"))


@pytest.fixture
def store(s3: Any, address: S3Address) -> S3Store:
    return S3Store(address, s3.access_key, s3.secret_key)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    return service.find_free_port()


def _list_calls(store: ObjectStorage, source: Path) -> list[Callable[[], object]]:
    return [
        lambda: store.put_bytes("a/x", b"x"),
        lambda: store.put_file("a/x", source, move=True),
        lambda: b"".join(store.read("a/x")),
        lambda: store.stat("a/x"),
        lambda: store.delete("a/x"),
        lambda: list(store.list("a/")),
        lambda: store.check_store_usable(),
        lambda: store.create_folder_or_bucket(),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["silent", "closed"])
def test_an_outage_ends_every_call(
    kind: str, silent_port: int, closed_port: int, tmp_path: Path
) -> None:
    port = silent_port if kind == "silent" else closed_port
    address = S3Address(f"127.0.0.1:{port}", "bucket", "", False, "us-east-1")
    store = S3Store(address, "access", "secret", limits=replace(HASTE, read_s=0.2))
    source = tmp_path / "source"
    source.write_bytes(os.urandom(20 << 20))
    for call in _list_calls(store, source):
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
            call()
    assert source.exists()


@pytest.mark.slow
def test_the_health_check_of_a_silent_server_ends_after_one_short_wait(silent_port: int) -> None:
    store = S3Store(
        S3Address(f"127.0.0.1:{silent_port}", "bucket", "", False, "us-east-1"), "a", "s"
    )
    with pytest.raises(Unavailable, match="ReadTimeout"):
        store.check_store_usable()
    assert CHECK_LIMITS.connect_s + CHECK_LIMITS.read_s <= 3 and CHECK_LIMITS.retries == 0


@pytest.mark.slow
def test_data_survive_an_outage_and_a_call_outlasts_a_short_one(store: S3Store, s3: Any) -> None:
    store.put_bytes("a/x", b"1")
    s3.stop()
    try:
        with pytest.raises(Unavailable):
            store.check_store_usable()
    finally:
        s3.start()
    assert b"".join(store.read("a/x")) == b"1"


def test_a_download_that_breaks_off_goes_on_where_it_stopped(
    store: S3Store, s3: Any, address: S3Address, cutter: Callable[[int], Any]
) -> None:
    data = os.urandom(5_000_000)
    store.put_bytes("a/x", data)
    relay = cutter(s3.port)
    relay.cuts = [1_200_000, 1_300_000]
    through = S3Store(
        replace(address, endpoint=f"127.0.0.1:{relay.port}"),
        s3.access_key,
        s3.secret_key,
        limits=HASTE,
    )
    assert b"".join(through.read("a/x")) == data
    relay.cuts = [1_000_000]
    assert b"".join(through.read("a/x", 7, 4_000_000)) == data[7:4_000_007]


def test_a_download_that_breaks_off_again_and_again_is_an_outage(
    store: S3Store, s3: Any, address: S3Address, cutter: Callable[[int], Any]
) -> None:
    store.put_bytes("a/x", os.urandom(5_000_000))
    relay = cutter(s3.port)
    relay.cuts = [2000] * 50  # enough for the headers, never for a chunk
    through = S3Store(
        replace(address, endpoint=f"127.0.0.1:{relay.port}"),
        s3.access_key,
        s3.secret_key,
        limits=HASTE,
    )
    with pytest.raises(Unavailable):
        b"".join(through.read("a/x"))


def test_an_object_replaced_during_a_broken_download_is_not_mixed(
    store: S3Store, s3: Any, address: S3Address, cutter: Callable[[int], Any]
) -> None:
    store.put_bytes("a/x", b"1" * 5_000_000)
    relay = cutter(s3.port)
    relay.cuts = [2_500_000]
    through = S3Store(
        replace(address, endpoint=f"127.0.0.1:{relay.port}"),
        s3.access_key,
        s3.secret_key,
        limits=HASTE,
    )
    chunks = through.read("a/x")
    next(chunks)
    store.put_bytes("a/x", b"2" * 5_000_000)
    with pytest.raises(StoredObjectDamaged, match="changed while it was read"):
        b"".join(chunks)


@pytest.mark.slow
def test_an_upload_whose_end_was_answered_too_late_is_sent_again(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(9 << 20))
    client = store._client
    complete = client._complete_multipart_upload
    calls: list[int] = []

    def lost_answer(*arguments: object) -> object:
        calls.append(1)
        result = complete(*arguments)
        if len(calls) == 1:  # the retry of a completed upload: the server knows it no more
            raise S3Error(None, "NoSuchUpload", "gone", "", "", "")  # type: ignore[arg-type]
        return result

    monkeypatch.setattr(client, "_complete_multipart_upload", lost_answer)
    monkeypatch.setattr(client, "_abort_multipart_upload", lambda *arguments: None)
    store.put_file("a/x", source)
    assert len(calls) == 2
    assert b"".join(store.read("a/x")) == source.read_bytes()


def test_an_upload_in_parts_that_was_never_finished_is_aborted_when_it_is_old(
    store: S3Store,
) -> None:
    client, bucket = store._client, store.address.bucket

    def list_unfinished_uploads() -> list[str]:
        found = client._list_multipart_uploads(bucket, delimiter="|", prefix=store.address.prefix)
        return [upload.object_name.removeprefix(store.address.prefix) for upload in found.uploads]

    upload = client._create_multipart_upload(bucket, f"{store.address.prefix}blobs/x", {})
    client._upload_part(bucket, f"{store.address.prefix}blobs/x", b"x" * (5 << 20), None, upload, 1)
    store.remove_incomplete_objects()
    assert list_unfinished_uploads() == ["blobs/x"]
    store.remove_incomplete_objects(-60.0)  # the server's clock counts whole seconds
    store.remove_incomplete_objects(-60.0)
    assert list_unfinished_uploads() == []


def test_a_signed_url_gives_the_object_with_the_asked_headers(store: S3Store) -> None:
    store.put_bytes("a/x", b"signed")
    url = store.make_download_url(
        "a/x", 60, {"Content-Disposition": 'attachment; filename="v1.zip"'}
    )
    assert url is not None
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.read() == b"signed"
        assert answer.headers["Content-Disposition"] == 'attachment; filename="v1.zip"'


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
def test_a_signed_url_only_reads(store: S3Store, method: str) -> None:
    store.put_bytes("a/x", b"signed")
    url = store.make_download_url("a/x", 60, {})
    assert url is not None
    request = urllib.request.Request(url, data=b"evil", method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code in (403, 501)
    assert b"".join(store.read("a/x")) == b"signed"


def test_a_signed_url_opens_no_other_object(store: S3Store) -> None:
    store.put_bytes("a/x", b"1")
    store.put_bytes("a/y", b"2")
    url = store.make_download_url("a/x", 60, {})
    assert url is not None
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url.replace("/a/x?", "/a/y?"), timeout=60)
    assert refused.value.code == 403


@pytest.mark.parametrize("seconds", [0, -5, 901])
def test_a_signed_url_of_another_lifetime_is_refused(store: S3Store, seconds: int) -> None:
    with pytest.raises(ValueError, match="900"):
        store.make_download_url("a/x", seconds, {})


def test_a_signed_url_sets_no_other_header(store: S3Store) -> None:
    with pytest.raises(ValueError, match="Set-Cookie"):
        store.make_download_url("a/x", 60, {"Set-Cookie": "a=b"})


def test_wrong_keys_are_an_outage_that_names_the_reason(address: S3Address, s3: Any) -> None:
    store = S3Store(address, s3.access_key, "not-the-secret")
    with pytest.raises(Unavailable, match="SignatureDoesNotMatch"):
        store.put_bytes("a/x", b"1")


def test_a_missing_bucket_says_what_to_run(s3: Any, tmp_path: Path) -> None:
    store = open_object_store(s3.settings(tmp_path, bucket="never-made"))
    with pytest.raises(Unavailable, match="perennial migrate"):
        store.check_store_usable()
    for call in (lambda: store.put_bytes("a/x", b"1"), lambda: store.read("a/x")):
        with pytest.raises(Unavailable, match="never-made"):
            call()


def test_prepare_makes_the_bucket(s3: Any, tmp_path: Path) -> None:
    store = open_object_store(s3.settings(tmp_path, bucket="made-by-prepare"))
    store.create_folder_or_bucket()
    store.create_folder_or_bucket()
    store.check_store_usable()


@pytest.mark.slow
def test_a_listing_longer_than_a_page_is_whole(
    store: S3Store, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {f"l/{n:03}" for n in range(25)}
    for key in keys:
        store.put_bytes(key, b"x")
    listed = store._client._list_objects

    def small_pages(*arguments: Any, **options: Any) -> Any:
        return listed(*arguments, **{**options, "max_keys": 10})

    monkeypatch.setattr(store._client, "_list_objects", small_pages)
    assert {info.key for info in store.list("l/")} == keys


def test_the_secret_is_in_no_representation_log_or_error(
    s3: Any, address: S3Address, caplog: pytest.LogCaptureFixture, closed_port: int
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "hunter2-hunter2-hunter2"
    texts = []
    for endpoint in (address.endpoint, f"127.0.0.1:{closed_port}"):
        store = S3Store(replace(address, endpoint=endpoint), s3.access_key, secret, limits=HASTE)
        texts += [repr(store), str(store)]
        with pytest.raises(Unavailable) as raised:
            store.put_bytes("a/x", b"1")
        error: BaseException | None = raised.value
        while error is not None:
            texts += [repr(error), str(error)]
            error = error.__cause__ or error.__context__
    texts.append(caplog.text)
    assert len(caplog.records) > 0
    for text in texts:
        assert secret not in text
        assert urllib.parse.quote(secret) not in text
        assert "Signature=" not in text


def test_while_a_client_waits_a_silent_server_is_asked_once(
    address: S3Address, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        silent = replace(address, endpoint=f"127.0.0.1:{listener.getsockname()[1]}")
        store = S3Store(silent, "k", "s", limits=replace(REQUEST_LIMITS, read_s=0.3))
        with pytest.raises(Unavailable, match="ReadTimeout"):
            store.stat("a/x")
        listener.setblocking(False)
        listener.accept()[0].close()
        with pytest.raises(BlockingIOError):
            listener.accept()
