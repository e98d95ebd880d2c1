"""Following jobs: to their end, through broken streams, and what is raised when they end in another
way.
"""

import asyncio
import io
import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_batches import QUICK, SMALL, create_taught_model
from stub import Asked, Said, run_stub_with_client

from perennial import (
    ArchiveRejected,
    AsyncPerennial,
    GateHeld,
    JobCancelled,
    JobRejected,
    Perennial,
    ServiceUnreachable,
    WaitTimeout,
    types,
)
from tools import service


@pytest.fixture
def model(client: Perennial, archives: list[bytes]) -> str:
    """A model with one version."""
    return create_taught_model(client, "jobs", archives[0])


def test_a_batch_becomes_a_version_and_its_events_and_logs_are_told(
    client: Perennial, model: str
) -> None:
    job = next(iter(client.jobs.list(model=model)))
    events = list(client.job(job.id).events())
    assert [one.id for one in events] == sorted({one.id for one in events})
    last = [one.data for one in events if isinstance(one.data, types.StateData)][-1]
    assert last.state == "succeeded" and last.version == job.version
    said = list(client.job(job.id).logs())
    assert any("version 1" in line.message.lower() for line in said)
    assert list(client.job(job.id).logs(follow=True)) == said  # to the end of the job


def test_a_held_version_is_raised_with_why_and_what_to_do(
    client: Perennial, archives: list[bytes]
) -> None:
    client.models.create("gated", **{**SMALL, "gate": {"min_acc": 1.0, "checks": "off"}})
    handle = client.submit("gated", archives[1], name="week-31")
    with pytest.raises(GateHeld) as caught:
        handle.wait(120)
    said = str(caught.value)
    assert "Version 1 of gated is held by the gate; production stays at version 0." in said
    assert "its mean accuracy is below what the gate asks: " in said and "the limit is 1" in said
    assert f"perennial jobs retry {handle.id}" in said
    assert 'perennial promote gated 1 --reason "WHY"' in said
    assert 'perennial tasks continue gated 1 --reason "WHY"' in said
    assert caught.value.attention is not None and caught.value.attention.kind == "held"
    assert handle.wait(60, check=False).outcome == "held"
    moved = client.aliases.promote("gated", 1, reason="good enough")
    assert moved.version == 1


def test_a_cancelled_job_is_raised(client: Perennial, model: str, archives: list[bytes]) -> None:
    handle = client.submit(model, archives[1], recipe={**QUICK, "epochs": 500})
    handle.cancel()
    with pytest.raises(JobCancelled):
        handle.wait(60)


def test_a_time_that_is_over_says_that_the_job_goes_on(
    client: Perennial, model: str, archives: list[bytes]
) -> None:
    handle = client.submit(model, archives[2], recipe={**QUICK, "epochs": 500})
    with pytest.raises(WaitTimeout, match="it goes on"):
        handle.wait(0.3)
    handle.cancel()
    handle.wait(60, check=False)


def test_an_archive_that_is_none_is_rejected_at_once(client: Perennial, model: str) -> None:
    with pytest.raises(ArchiveRejected):
        client.submit(model, b"this is no archive at all")


def test_damaged_images_reject_the_job(client: Perennial, model: str) -> None:
    out, damaged = io.BytesIO(), io.BytesIO()
    Image.effect_noise((32, 32), 50).save(
        damaged, "PNG"
    )  # its head is right, and it ends too early
    with zipfile.ZipFile(out, "w") as archive:
        for label, number in itertools.product("ab", range(4)):
            archive.writestr(f"{label}/{number}.png", damaged.getvalue()[:200])
    handle = client.submit(model, out.getvalue())
    with pytest.raises(JobRejected) as caught:
        handle.wait(60)
    assert caught.value.job.state == "rejected"


@pytest.mark.slow
def test_the_same_verbs_can_be_awaited(
    running: service.RunningService, model: str, archives: list[bytes], tmp_path: Path
) -> None:
    async def use_async_client() -> tuple[str | None, list[int], int]:
        async with AsyncPerennial(running.key, base_url=running.url) as client:
            job = await (await client.submit(model, archives[3], name="awaited")).wait(120)
            versions = [one.number async for one in client.versions.list(model)]
            kinds = [event.type async for event in client.job(job.id).events()]
            assert "state" in kinds
            size = (await client.download(model, job.version, tmp_path / "a.zip")).bytes
            return job.outcome, versions, size

    outcome, versions, size = asyncio.run(use_async_client())
    assert (
        outcome == "published" and versions[-1] >= 2 and size == (tmp_path / "a.zip").stat().st_size
    )


def test_a_stream_that_breaks_is_taken_up_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perennial._sync.stream.sleep_seconds", lambda _: None)
    data = {"level": "info", "message": "m"}
    events = [{"id": number, "type": "log", "at": "t", "data": data} for number in range(1, 8)]

    def answer_with_cut_stream(asked: Asked) -> Said:
        if not asked.path.endswith("/events"):
            return Said(body={"id": "job_1", "is_terminal": True, "state": "succeeded"})
        after = int(asked.headers.get("last-event-id", 0))
        lines = [
            f"id: {one['id']}\nevent: log\ndata: {json.dumps(one)}\n\n" for one in events[after:]
        ]
        body = ("retry: 1000\n\n: alive\n\n" + "".join(lines)).encode()
        cut = (
            None if len(lines) < 3 else len(body) - len(lines[-1]) - 5
        )  # in the middle of the last but one
        return Said(
            200, body, {"Content-Type": "text/event-stream", "Content-Length": str(len(body))}, cut
        )

    with run_stub_with_client(answer_with_cut_stream) as (stub, client):
        found: list[Any] = list(client.job("job_1").events())
    assert [one.id for one in found] == [1, 2, 3, 4, 5, 6, 7]
    assert len(stub.asked) > 3


def test_a_service_that_is_away_for_a_while_does_not_end_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("job", "http"):
        monkeypatch.setattr(f"perennial._sync.{module}.sleep_seconds", lambda _: None)
    asked = itertools.count(1)
    job = {"id": "job_1", "is_terminal": False, "state": "running"}

    def answer_with_outage(_: Asked) -> Said:
        number = next(asked)
        if 2 <= number <= 12:
            return Said(503)
        return Said(body=job if number == 1 else {**job, "is_terminal": True, "state": "succeeded"})

    with run_stub_with_client(answer_with_outage, max_retries=1) as (_, client):
        assert client.job("job_1").wait(60).state == "succeeded"
    assert next(asked) == 14  # the first answer, eleven times none, the end


def test_a_service_that_was_never_there_ends_the_wait_at_once() -> None:
    client = Perennial("k", base_url="http://127.0.0.1:9", max_retries=1)
    with client, pytest.raises(ServiceUnreachable):
        client.job("job_1").wait()


def test_a_batch_is_checked_without_a_task(
    client: Perennial, model: str, archives: list[bytes]
) -> None:
    before = len(list(client.tasks.list(model)))
    report = client.tasks.check(model, archives[4])
    assert report.valid and set(report.classes) == {"8", "9"}
    assert len(list(client.tasks.list(model))) == before


def test_images_are_answered_each_for_itself(
    client: Perennial, model: str, archives: list[bytes]
) -> None:
    with zipfile.ZipFile(io.BytesIO(archives[0])) as archive:
        image = archive.read(archive.namelist()[0])
    found = client.predict(model, [image, b"no image"], version=1, top_k=2)
    first, second = found.predictions
    assert isinstance(first, types.Prediction) and set(first.probabilities) == {"0", "1"}
    assert isinstance(second, types.Unusable) and second.error.code == "image-invalid"
    arrays = client.predict(model, [[[0] * 8] * 8], version=1)
    assert isinstance(arrays.predictions[0], types.Prediction)
