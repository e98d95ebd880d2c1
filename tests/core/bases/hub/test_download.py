"""A download from the Hub, by the process that does it: what comes, what goes on, and what is said
when nothing comes."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import hub_server
import pytest
from hub_server import COMMIT, TOKEN, Hub

from core.bases.hub import unfinished
from core.bases.hub.downloader import download_hub_file_in_separate_process
from core.contract.jobs.hub import HubDownloadRequest
from core.errors import PretrainedWeightsUnavailable
from core.ingest.ingest import IngestStopped

REPOSITORY = "timm/net"
DATA = bytes(range(256)) * 4096
"""1 MiB."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server.run_hub() as found:
        found.put(REPOSITORY, DATA)
        for name, value in found.environment().items():
            monkeypatch.setenv(name, value)
        yield found


def fetch_bytes(folder: Path, **asked: int) -> bytes:
    """Return the bytes that a download brings."""
    question = HubDownloadRequest(
        repository=REPOSITORY,
        file="model.safetensors",
        folder=folder,
        **{"max_bytes": 1 << 21, **asked},
    )
    found = download_hub_file_in_separate_process(
        question, lambda: False, lambda _done, _all: None, 20.0
    )
    assert found.revision == COMMIT
    return found.path.read_bytes()


def fetch_refused_detail(folder: Path, **asked: int) -> str:
    with pytest.raises(PretrainedWeightsUnavailable) as error:
        fetch_bytes(folder, **asked)
    return error.value.detail


def test_a_file_comes_whole_with_its_commit_and_the_token_goes_to_the_hub_alone(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetch_bytes(tmp_path) == DATA
    assert hub.gets == [(REPOSITORY, 0)]
    assert {token for path, token in hub.tokens if "/cdn/" not in path} == {f"Bearer {TOKEN}"}
    assert {token for path, token in hub.tokens if "/cdn/" in path} == {None}
    assert all(REPOSITORY in path for path, _ in hub.tokens)


def test_what_an_earlier_attempt_left_is_gone_on_with_and_a_cut_connection_too(
    hub: Hub, tmp_path: Path
) -> None:
    path = (
        unfinished.get_hub_repository_download_folder(tmp_path, REPOSITORY)
        / COMMIT
        / "model.safetensors.part"
    )
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA[:300_000])
    hub.cut_at = 700_000
    assert fetch_bytes(tmp_path) == DATA
    assert hub.gets[0][1] == 300_000 < hub.gets[1][1] <= 700_000


def test_other_bytes_than_the_hub_names_are_refused_and_not_kept(hub: Hub, tmp_path: Path) -> None:
    hub.digests[REPOSITORY, "model.safetensors"] = hashlib.sha256(b"other").hexdigest()
    assert "the digest of model.safetensors is another one" in fetch_refused_detail(tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    hub.digests.clear()
    assert fetch_bytes(tmp_path) == DATA


def test_a_small_file_is_compared_by_the_digest_that_git_gives_it(hub: Hub, tmp_path: Path) -> None:
    named = hashlib.sha1(b"blob %d\0" % len(DATA) + DATA, usedforsecurity=False).hexdigest()
    hub.digests[REPOSITORY, "model.safetensors"] = named
    assert fetch_bytes(tmp_path) == DATA


def test_a_repository_without_safetensors_is_refused_before_any_file_is_read(
    hub: Hub, tmp_path: Path
) -> None:
    hub.files = {(REPOSITORY, "pytorch_model.bin"): b"pickle"}
    assert fetch_refused_detail(tmp_path).startswith(
        "The repository timm/net has no model.safetensors"
    )
    assert hub.gets == []


def test_a_file_beyond_the_limit_is_refused_by_the_size_that_the_hub_names(
    hub: Hub, tmp_path: Path
) -> None:
    assert "1048576 bytes; 1000 are taken here (PERENNIAL_MAX_FETCH_BYTES)" in fetch_refused_detail(
        tmp_path, max_bytes=1000
    )
    assert hub.gets == []


def test_a_private_repository_asks_for_a_token_and_no_token_is_repeated(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.private.add(REPOSITORY)
    said = fetch_refused_detail(tmp_path)
    assert "only with a token (HF_TOKEN)" in said and TOKEN not in said


def test_offline_mode_and_a_hub_that_is_away_are_told_apart(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert fetch_refused_detail(tmp_path).startswith("The Hub cannot be reached (Connect")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch_refused_detail(tmp_path).startswith("HF_HUB_OFFLINE is set")


@pytest.mark.slow
def test_a_download_is_stopped_in_its_middle_and_one_that_does_not_grow_is_ended(
    hub: Hub, tmp_path: Path
) -> None:
    hub.stall_at = 500_000
    seen: list[int] = []
    asked = HubDownloadRequest(
        repository=REPOSITORY, file="model.safetensors", folder=tmp_path, max_bytes=1 << 21
    )
    with pytest.raises(IngestStopped):
        download_hub_file_in_separate_process(
            asked, lambda: sum(seen) > 0, lambda done, _all: seen.append(done), 20.0
        )
    assert 0 < sum(seen) <= 500_000
    with pytest.raises(PretrainedWeightsUnavailable, match=r"Nothing came from the Hub for 1 s"):
        download_hub_file_in_separate_process(asked, lambda: False, lambda _done, _all: None, 1.0)
