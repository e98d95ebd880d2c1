"""Uploads by foreign clients and by hand, cut in the middle: what came stays, and a batch has the
file's digest.
"""

import hashlib
import random
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fault_proxy import FaultProxy
from running_site import API, Site
from tusclient.client import TusClient
from upload_sites import (
    MB,
    build_large_archive,
    check_stored_pieces,
    open_admin_client,
    submit_upload,
    wait_until_true,
    write_large_archive,
)

from core.uploads.uploads import LEAST_BYTES

PIECE = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}


def create_upload(client: httpx2.Client, data: bytes) -> str:
    answer = client.post("/v1/uploads", headers={"Upload-Length": str(len(data))})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


def read_offset(client: httpx2.Client, where: str) -> int:
    answer = client.head(where)
    assert answer.status_code == 200
    return int(answer.headers["upload-offset"])


def send_piece(
    client: httpx2.Client, where: str, data: bytes, at: int, size: int
) -> httpx2.Response:
    piece = data[at : at + size]
    return client.patch(where, content=piece, headers={**PIECE, "Upload-Offset": str(at)})


def compute_sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_what_came_before_a_cut_is_kept_and_the_upload_goes_on_there(api: Site) -> None:
    data, spool = build_large_archive(3 * MB), api.data(API) / "spool"
    with open_admin_client(api) as client:
        where, sent = create_upload(client, data), 2 * MB + 12_345
        head = [f"PATCH {where} HTTP/1.1", "Host: x", f"Authorization: "
            f"{client.headers['Authorization']}",
                f"Content-Type: {PIECE['Content-Type']}", "Upload-Offset: 0",
                f"Content-Length: {len(data)}"]  # fmt: skip
        with socket.create_connection(("127.0.0.1", api.port)) as connection:
            connection.sendall(("\r\n".join(head) + "\r\n\r\n").encode() + data[:sent])
            least = sent - (128 << 10)  # the server's own buffer may be lost
            wait_until_true(
                lambda: sum(one.stat().st_size for one in spool.iterdir()) >= least, api
            )
        wait_until_true(lambda: read_offset(client, where) >= least, api)
        assert (at := read_offset(client, where)) <= sent
        assert check_stored_pieces(api) == 0
        assert send_piece(client, where, data, at, len(data)).status_code == 204
        submit_upload(client, where, compute_sha256(data))
    assert check_stored_pieces(api) == 0
    assert list(spool.iterdir()) == []


def upload_with_tuspy(client: httpx2.Client, port: int, file: Path, **options: Any) -> str:
    """Upload a file by tuspy with the key of a client, and return the address of the upload."""
    headers = {"Authorization": client.headers["Authorization"]}
    tus = TusClient(f"http://127.0.0.1:{port}/v1/uploads", headers=headers)
    uploader = tus.uploader(str(file), **options)
    uploader.upload()
    return "/v1/uploads/" + str(uploader.url).rpartition("/")[2]


def check_upload_through_cuts(
    running: Site, file: Path, size: int, chunk: int, cuts: list[int], least: int
) -> None:
    """Send a file by tuspy, cut it `least` times or more, and make a batch of it."""
    digest = write_large_archive(file, size)
    with closing(FaultProxy(running.port)) as proxy, open_admin_client(running) as client:
        proxy.fault("cut", cuts)
        more = {
            "chunk_size": chunk,
            "retries": 50,
            "retry_delay": 0.2,
            "metadata": {"filename": file.name},
        }
        where = upload_with_tuspy(client, proxy.port, file, **more)
        assert read_offset(client, where) == file.stat().st_size
        assert proxy.cuts >= least
        submit_upload(client, where, digest)
    assert check_stored_pieces(running) == 0


@pytest.mark.slow
def test_a_foreign_client_gets_a_file_through_a_connection_that_is_cut_again_and_again(
    api: Site, tmp_path: Path
) -> None:
    cuts = [3 * MB, 2 * MB, 3 * MB, 2 * MB, 20 * MB]
    check_upload_through_cuts(api, tmp_path / "week.zip", 12 * MB, LEAST_BYTES, cuts, least=3)


@pytest.mark.campaign
def test_a_foreign_client_gets_a_gigabyte_through_twenty_cuts(api: Site, tmp_path: Path) -> None:
    size, draw = 1024 * MB, random.Random(0)
    cuts = [draw.randrange(1, size // 20) for _ in range(20)]
    check_upload_through_cuts(
        api, tmp_path / "week.zip", size, 64 * MB, [*cuts, 2 * size], least=20
    )


def test_a_foreign_clients_checksums_are_verified(api: Site, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(data := build_large_archive(MB))
    with open_admin_client(api) as client:
        where = upload_with_tuspy(client, api.port, tmp_path / "a.zip", upload_checksum=True)
        submit_upload(client, where, compute_sha256(data))
