"""Large batches go in pieces that survive cuts, deaths and absences; here of the client, against a
service that answers as told."""

import base64
import contextlib
import json
import random
from pathlib import Path
from typing import Any

import httpx2
import pytest
from stub import Asked, Said, build_problem, run_stub, run_stub_with_client
from tus_stub import Tus

from perennial import ConfigError, Invalid, NotFound, Perennial, Unavailable
from perennial.cli.main import run_command_line
from perennial.transfer import UploadLocationCache
from tools import service

PIECE = 1 << 20
pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a mebibyte are large ones."""
    monkeypatch.setattr("perennial._sync.upload.CHUNK_BYTES", PIECE)
    monkeypatch.setattr("perennial._sync.upload.send_batch.__defaults__", (PIECE,))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """An archive of five mebibytes and a half."""
    file = tmp_path / "batch.zip"
    file.write_bytes(random.Random(0).randbytes(5 * PIECE + PIECE // 2))
    return file


def test_a_large_batch_goes_in_pieces_and_comes_whole_through_cuts(large: Path, home: Path) -> None:
    cuts = random.Random(1)
    tus = Tus(lose=[cuts.randrange(PIECE) for _ in range(20)])
    with run_stub_with_client(tus) as (stub, client):
        handle = client.submit("birds", large, name="week-31", recipe={"epochs": 2})
    assert handle.id == "job_1"
    assert bytes(tus.kept) == large.read_bytes()
    assert tus.made == 1
    name = stub.asked[1].headers["upload-metadata"].removeprefix("filename ")
    assert base64.b64decode(name) == b"batch.zip"
    (submit,) = tus.submits
    assert submit.body == b'{"upload": "upl_1", "recipe": {"epochs": 2}, "name": "week-31"}'
    assert list(home.rglob("*.json")) == [], "nothing is remembered of it"


def test_a_run_that_was_killed_is_gone_on_with_by_the_next(large: Path) -> None:
    tus = Tus()
    with run_stub(tus) as stub:
        with Perennial("k", base_url=stub.url) as client, pytest.raises(KeyboardInterrupt):
            client.submit("birds", large, progress=_build_interrupting_progress(3 * PIECE))
        had = tus.received
        with Perennial("k", base_url=stub.url) as client:
            client.submit("birds", large)
    assert bytes(tus.kept) == large.read_bytes()
    assert tus.made == 1 and had >= 3 * PIECE
    assert tus.received <= large.stat().st_size + PIECE, "at most one piece is sent twice"


def _build_interrupting_progress(most: int) -> Any:
    def interrupt_at_limit(done: int, total: int) -> None:
        if done >= most:
            raise KeyboardInterrupt

    return interrupt_at_limit


def test_a_run_that_was_killed_after_the_submit_makes_no_second_task(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_keyboard_interrupt(_: UploadLocationCache) -> None:
        raise KeyboardInterrupt

    tus = Tus()
    with run_stub_with_client(tus) as (_, client):
        with monkeypatch.context() as patched:
            patched.setattr(
                "perennial.transfer.UploadLocationCache.remove_upload_location",
                raise_keyboard_interrupt,
            )
            with pytest.raises(KeyboardInterrupt):
                client.submit("birds", large)
        assert client.submit("birds", large).id == "job_1"
    assert len(tus.keys) == 1 and tus.made == 1
    assert tus.received == large.stat().st_size, "nothing was sent twice"


def test_an_upload_that_expired_is_begun_again(large: Path) -> None:
    tus = Tus()
    with run_stub_with_client(tus) as (_, client):
        with pytest.raises(KeyboardInterrupt):
            client.submit("birds", large, progress=_build_interrupting_progress(PIECE))
        tus.is_gone = True
        client.submit("birds", large)
    assert tus.made == 2 and bytes(tus.kept) == large.read_bytes()


def test_a_file_that_is_changed_while_it_is_sent_is_not_submitted(large: Path) -> None:
    def overwrite_file(done: int, total: int) -> None:
        large.write_bytes(bytes(large.stat().st_size))

    tus, told = Tus(), "was changed while it was sent"
    with run_stub_with_client(tus) as (_, client), pytest.raises(ConfigError, match=told):
        client.submit("birds", large, progress=overwrite_file)
    assert tus.submits == []


def test_an_upload_goes_on_after_minutes_without_a_connection(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, tus, away = list[float](), Tus(), list[int]()
    monkeypatch.setattr("perennial._sync.upload.sleep_seconds", waited.append)

    def answer_with_outage(asked: Asked) -> Said:
        if tus.received >= 2 * PIECE and len(away) < 15:  # whether it is asked or sent to
            away.append(1)
            return build_problem(503, "unavailable")
        return tus(asked)

    with run_stub_with_client(answer_with_outage) as (_, client):
        client.submit("birds", large)
    assert bytes(tus.kept) == large.read_bytes() and len(waited) == 15


@pytest.mark.parametrize("stop", [KeyboardInterrupt, None])
def test_a_person_whose_upload_ends_early_is_told_that_it_goes_on(
    large: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stop: Any
) -> None:
    tus = Tus()

    def answer_with_late_outage(asked: Asked) -> Said:
        if asked.method == "PATCH" and tus.received > 2 * PIECE and stop is None:
            return build_problem(503, "unavailable", "The store does not answer.")
        return tus(asked)

    def open_interrupting_progress(*_: object) -> Any:
        return contextlib.nullcontext(
            None if stop is None else _build_interrupting_progress(2 * PIECE)
        )

    monkeypatch.setattr(
        "perennial._sync.resources.tasks.open_transfer_bar", open_interrupting_progress
    )
    monkeypatch.setenv("PERENNIAL_API_KEY", "k")
    with run_stub(tus if stop else answer_with_late_outage) as stub:
        status = run_command_line(["submit", "birds", str(large), "--url", stub.url])
    assert status == (130 if stop else 5)
    assert "submit the same batch again, and it goes on there" in capsys.readouterr().err


def test_who_asks_for_no_second_attempt_gets_none_for_an_upload_either(large: Path) -> None:
    tus = Tus(lose=[0])
    with run_stub_with_client(tus, max_retries=0) as (_, client), pytest.raises(Unavailable):
        client.submit("birds", large)
    assert tus.received == PIECE


def test_another_batch_is_another_upload(large: Path, tmp_path: Path) -> None:
    tus, other = Tus(), tmp_path / "other.zip"
    other.write_bytes(large.read_bytes())
    with run_stub_with_client(tus) as (_, client):
        for file in (large, other):
            with pytest.raises(KeyboardInterrupt):
                client.submit("birds", file, progress=_build_interrupting_progress(PIECE))
    assert tus.made == 2


def test_a_batch_that_was_checked_is_submitted_without_sending_it_again(large: Path) -> None:
    tus = Tus()
    with run_stub_with_client(tus) as (_, client):
        client.tasks.check("birds", large)
        client.submit("birds", large, name="week-31", recipe={"epochs": 2})
    assert (tus.made, tus.received) == (1, large.stat().st_size)
    assert len({asked.headers["idempotency-key"] for asked in tus.submits}) == 2


@pytest.mark.parametrize(
    ("code", "is_kept"), [("archive-invalid", False), ("invalid-recipe", True)]
)
def test_an_upload_stays_at_the_service_only_if_another_submit_can_use_it(
    large: Path, home: Path, code: str, is_kept: bool
) -> None:
    tus = Tus()

    def refuse_task_submit(asked: Asked) -> Said:
        return build_problem(422, code) if "/tasks" in asked.path else tus(asked)

    with run_stub_with_client(refuse_task_submit) as (_, client), pytest.raises(Invalid):
        client.submit("birds", large)
    assert (not tus.is_gone, len(list(home.rglob("*.json")))) == (is_kept, int(is_kept))


def test_a_wrong_name_of_a_model_is_told_before_a_large_batch_is_sent(large: Path) -> None:
    tus = Tus()
    with run_stub_with_client(tus) as (_, client), pytest.raises(NotFound):
        client.submit("brids", large)
    assert tus.received == 0


def test_an_older_service_gets_a_large_batch_in_one_request(large: Path) -> None:
    def answer_as_older_service(asked: Asked) -> Said:
        return build_problem(404, "not-found") if asked.path == "/v1/uploads" else Tus()(asked)

    with run_stub_with_client(answer_as_older_service) as (stub, client):
        client.submit("birds", large)
    assert stub.asked[-1].body == large.read_bytes()


def test_an_open_upload_is_found_and_removed(
    running: service.RunningService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)
    key = {"Authorization": f"Bearer {running.key}"}
    metadata = {"Upload-Length": "2500000", "Upload-Metadata": "filename d2Vlay0zMS56aXA="}
    upload = httpx2.post(
        f"{running.url}/v1/uploads", headers={**key, **metadata}, timeout=60
    ).json()["id"]
    assert run_command_line(["uploads", "list"]) == 0
    cells = capsys.readouterr().out.strip().split("\t")
    assert cells[:4] == [upload, "week-31.zip", "0 B", "2.5 MB"]
    assert run_command_line(["uploads", "rm", upload]) == 0
    assert capsys.readouterr().out == f"Upload {upload} is removed.\n"
    assert (
        run_command_line(["uploads", "list", "--json"]) == 0
        and json.loads(capsys.readouterr().out) == []
    )
    assert run_command_line(["uploads", "rm", upload]) == 3
