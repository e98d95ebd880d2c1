"""The client's own up- and downloads: through cuts, deaths of the API, and its own death. Digests
are those of the files."""

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import postgresql
import pytest
from fault_proxy import FaultProxy
from running_site import API, ROOT, Site
from safetensors.numpy import save_file
from upload_sites import (
    KILLED_AT,
    MB,
    check_nothing_left,
    check_stored_pieces,
    make_s3_settings,
    read_admin_key,
    revive_api,
    run_apis,
    wait_until_true,
    write_large_archive,
)

from core.uploads.uploads import LEAST_BYTES
from perennial import Perennial
from perennial.transfer import CHUNK_BYTES

FEW, MANY = 4, 20
"""Cuts of a transfer, in every run and in a campaign."""
NEVER = 1 << 60
STORES = ["folder", "s3"]
FOLDER_OR_CAMPAIGN = ["folder", pytest.param("s3", marks=pytest.mark.campaign)]
"""A store of S3 takes an API process and a server more: `tests/core/uploads/test_uploads.py` and
`tests/e2e/test_large_size.py` show uploads by pieces and downloads of ranges with it."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home: what is remembered of uploads is this test's."""
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second between attempts, at most."""
    for module in ("http", "upload", "download"):
        monkeypatch.setattr(
            f"perennial._sync.{module}.sleep_seconds", lambda s: time.sleep(min(s, 0.1))
        )


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a piece are large ones; pieces are as short as the service takes them."""
    monkeypatch.setattr("perennial._sync.upload.CHUNK_BYTES", LEAST_BYTES)
    monkeypatch.setattr("perennial._sync.upload.send_batch.__defaults__", (LEAST_BYTES,))


def make_store_settings(store: str, prefix: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the settings of a service over one of `STORES`."""
    return {} if store == "folder" else make_s3_settings(request.getfixturevalue("s3"), prefix)


@pytest.fixture(scope="module", params=FOLDER_OR_CAMPAIGN)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """One API process over SQLite and each of the stores."""
    if request.param == "folder":
        yield request.getfixturevalue("api")
        return
    environment = make_store_settings(request.param, "transfers", request)
    with run_apis(tmp_path_factory.mktemp("transfers"), "small", environment) as (found,):
        yield found


class Requests:
    """An HTTP client that remembers what it asked for: method, and where a piece or range begins.

    Args:
        ports: of the service's processes, which get the requests in turn; none: as they are
            addressed.
    """

    def __init__(self, *ports: int) -> None:
        self.pieces: list[int] = []
        self.ranges: list[int] = []
        self.asked: list[int | None] = []
        self._ports = itertools.cycle(ports or (None,))
        self.http = httpx2.Client(event_hooks={"request": [self._record_run_duration]})

    def _record_run_duration(self, request: httpx2.Request) -> None:
        port = next(self._ports)
        if port is not None:
            request.url = request.url.copy_with(port=port)
        if request.method == "PATCH":
            self.pieces.append(int(request.headers["Upload-Offset"]))
            self.asked.append(port)
        if request.method == "GET" and "/download" in request.url.path:
            self.ranges.append(int(request.headers.get("Range", "bytes=0-")[6:-1]))


def open_client(
    port: int, running: Site, http: httpx2.Client | None = None, **options: Any
) -> Perennial:
    return Perennial(
        read_admin_key(running), base_url=f"http://127.0.0.1:{port}", http_client=http, **options
    )


def upload_through_cuts(
    running: Site, file: Path, size: int, chunk: int, longest: int, most: int = FEW
) -> str:
    """Submit a file of `size` bytes, cut `most` times after at most `longest` bytes of a
    connection, and return figures in words."""
    digest, draw = write_large_archive(file, size), random.Random(size)
    seen = Requests()
    with closing(FaultProxy(running.port)) as proxy:
        proxy.fault("cut", [*(draw.randrange(1, longest) for _ in range(most)), NEVER])
        with open_client(proxy.port, running, seen.http, max_retries=most) as client:
            task = client.submit("birds", file).task
        cuts, sent = proxy.cuts, proxy.up
    assert task is not None and task.sha256 == digest
    assert cuts == most
    again = len(seen.pieces) - len(set(seen.pieces))
    assert sorted(set(seen.pieces)) == list(range(0, file.stat().st_size, chunk))
    assert again <= most, "after a cut, at most one piece is sent twice"
    assert sent <= file.stat().st_size + again * (chunk + 1000) + len(seen.pieces) * 1000
    assert check_stored_pieces(running) == 0
    return (
        f"{cuts} cuts, {again} of {len(set(seen.pieces))} pieces begun again, "
        f"{sent / file.stat().st_size:.2f} × its bytes sent"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses", "small_pieces")
def test_a_batch_comes_through_four_cuts(running: Site, tmp_path: Path) -> None:
    upload_through_cuts(
        running, tmp_path / "week.zip", 2 * LEAST_BYTES, LEAST_BYTES, LEAST_BYTES * 5 // 4
    )


def create_model_from_weights(client: Perennial, folder: Path, width: int) -> str:
    """Create a model whose version 0 has a little more than 4 × width² bytes: an uploaded base."""
    shapes = {"fc1": (width, 192), "fc2": (width, width)}
    draw, tensors = np.random.default_rng(0), {}
    for layer, shape in shapes.items():
        tensors[f"{layer}.weight"] = draw.random(shape, np.float32)
        tensors[f"{layer}.bias"] = draw.random(width, np.float32)
    save_file(tensors, folder / "base.safetensors")
    network: dict[str, Any] = {"name": "mlp", "hidden": [width, width]}
    base = client.bases.create(folder / "base.safetensors", network, image_size=8, channels=3)
    name, image = f"mlp-{width}", {"size": 8, "channels": 3}
    client.models.create(name, scenario="class", architecture=network, image=image, base=base.id)
    return name


def download_through_cuts(running: Site, folder: Path, width: int, most: int = FEW) -> str:
    """Fetch version 0 of a model, cut `most` times on its way, and return figures in words."""
    with open_client(running.port, running, timeout=600) as client:
        model = create_model_from_weights(client, folder, width)
        wanted = client.download(model, 0, folder / "direct.zip")
    seen, draw = Requests(), random.Random(width)
    with closing(FaultProxy(running.port)) as proxy:
        proxy.fault("cut", [*(draw.randrange(1, wanted.bytes // most) for _ in range(most)), NEVER])
        with open_client(proxy.port, running, seen.http, max_retries=most) as client:
            found = client.download(model, 0, folder / "cut.zip")
        cuts, came = proxy.cuts, proxy.down
    assert found.sha256 == wanted.sha256 and found.bytes == wanted.bytes
    assert cuts == most
    assert seen.ranges == sorted(seen.ranges) and len(set(seen.ranges)) > most // 2, (
        "it goes on where it was"
    )
    assert came <= wanted.bytes + most * CHUNK_BYTES
    return f"{cuts} cuts, {len(seen.ranges)} requests, {came / wanted.bytes:.3f} × its bytes came"


@pytest.mark.campaign  # tests/client/test_transfer.py cuts a smaller one twenty times
@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses")
def test_a_version_comes_through_four_cuts(running: Site, tmp_path: Path) -> None:
    download_through_cuts(running, tmp_path, 600)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("short_pauses")
def test_a_gigabyte_comes_through_twenty_cuts_up_and_down(running: Site, tmp_path: Path) -> None:
    size = 1024 * MB
    file = tmp_path / "week.zip"
    print("up:", upload_through_cuts(running, file, size, CHUNK_BYTES, 2 * size // MANY, MANY))
    file.unlink()
    print("down:", download_through_cuts(running, tmp_path, 16_000, MANY))


@pytest.mark.campaign
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("store", STORES)
def test_an_api_that_is_killed_at_any_point_of_an_upload_loses_and_doubles_nothing(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    assert len(KILLED_AT) == 5
    with run_apis(tmp_path, "small", make_store_settings(store, "killed", request)) as (site,):
        for number, point in enumerate(KILLED_AT):
            digest = write_large_archive(file := tmp_path / f"{point}.zip", 12 * MB + number)
            (site.points / point).touch()
            with revive_api(site), open_client(site.port, site, max_retries=10) as client:
                task = client.submit("birds", file).task
            assert task is not None and task.sha256 == digest
            assert not (site.points / point).exists(), f"nobody came by {point}"
            print(f"{point}: API processes killed so far: {site.restarts[API]}")
        with open_client(site.port, site) as client:
            assert len(list(client.tasks.list("birds"))) == len(KILLED_AT)
        assert site.restarts[API] == len(KILLED_AT)
        check_nothing_left(site)


@pytest.fixture
def own_postgres(postgres_url: str) -> Iterator[str]:
    """An empty database of one test."""
    url = postgresql.create_database(postgresql.get_database_name(postgres_url))
    yield url
    postgresql.drop_database(url)


@pytest.mark.campaign
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("store", STORES)
def test_two_api_processes_take_turns_piece_by_piece(
    tmp_path: Path, store: str, own_postgres: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    environment = {
        "PERENNIAL_STORE_URL": f"file://{tmp_path / 'store'}",
        **make_store_settings(store, "turns", request),
        "PERENNIAL_DATABASE_URL": own_postgres,
        "PERENNIAL_BROKER_URL": redis_url,
    }
    digest = write_large_archive(file := tmp_path / "week.zip", 5 * LEAST_BYTES)
    with run_apis(tmp_path / "sites", "large", environment, count=2) as (one, two):
        seen = Requests(one.port, two.port)
        with open_client(one.port, one, seen.http) as client:
            task = client.submit("birds", file).task
        assert task is not None and task.sha256 == digest
        assert seen.pieces == list(range(0, file.stat().st_size, LEAST_BYTES))
        assert len(seen.pieces) == 6 and all(a != b for a, b in itertools.pairwise(seen.asked))
        check_nothing_left(one)


@pytest.mark.slow
def test_a_client_that_is_killed_goes_on_where_it_was_when_it_is_run_again(
    api: Site, tmp_path: Path, home: Path
) -> None:
    digest = write_large_archive(file := tmp_path / "week.zip", 2 * LEAST_BYTES)
    with closing(FaultProxy(api.port)) as proxy:
        proxy.fault("cut", [LEAST_BYTES + MB, *[1] * 100])  # one piece, then nothing comes through
        killed = start_submit_command(api, proxy.port, file)
        wait_until_true(lambda: proxy.cuts > 1, api)
        killed.kill()
        assert killed.wait() != 0
        with open_client(api.port, api) as client:
            (left,) = client.uploads.list()
        assert (left.offset, left.filename) == (LEAST_BYTES, "week.zip")
        assert len(list(home.rglob("*.json"))) == 1
        proxy.heal()
        before = proxy.up
        again = start_submit_command(api, proxy.port, file)
        out, _ = again.communicate(timeout=120)
    assert again.returncode == 0 and json.loads(out)["task"]["sha256"] == digest
    assert proxy.up - before < file.stat().st_size - left.offset + MB, "no piece was sent twice"
    assert list(home.rglob("*.json")) == []
    check_nothing_left(api)


SUBMIT = f"""
import sys
from perennial._sync import upload
from perennial.cli.main import run_command_line
upload.CHUNK_BYTES = {LEAST_BYTES}
upload.send_batch.__defaults__ = ({LEAST_BYTES},)
sys.exit(run_command_line(sys.argv[1:]))
"""
"""The command `perennial` with short pieces."""


def start_submit_command(site: Site, port: int, file: Path) -> "subprocess.Popen[bytes]":
    """Start `perennial submit` in a process of its own."""
    own = {"PERENNIAL_URL": f"http://127.0.0.1:{port}", "PERENNIAL_API_KEY": read_admin_key(site)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client"), **own}
    words = [sys.executable, "-c", SUBMIT, "submit", "birds", str(file), "--detach", "--json"]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE)
