"""Waiting commands: a missing base ends them, and a log without a terminal gets a line at
intervals.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stub
from sample_answers import find_sample_answer
from terminal import record_command

from perennial import BaseFailed, BaseUnavailable
from perennial.bars import compute_job_share_done, describe_job_progress, describe_job_time_left
from perennial.cli.batches import progress_lines
from perennial.cli.exits import ExitStatus
from perennial.cli.main import run_command_line
from perennial.shapes import convert_from_json
from perennial.types import Job

JOB, FETCH = "job_01m8gq24d2kh81qs3r0nq9ya1t", "job_01m8gq24d2kh81qs3r0nq9ya1f"
WHY = f"The Hub cannot be reached (ConnectError). Try again with POST /v1/jobs/{FETCH}/retry."
GOES_ON: dict[str, Any] = {
    "state": "running",
    "outcome": None,
    "is_terminal": False,
    "version": None,
    "warnings": [],
}
HALF: dict[str, Any] = {"phase": "train", "step": 3, "total_steps": 10, "done": 0.5, "left_s": 90.0}
LACKS: dict[str, Any] = {
    "state": "queued",
    "waiting_for": {
        "kind": "base",
        "version": None,
        "task": None,
        "detail": f"The weights of the model's base could not be brought. {WHY} This batch is "
        f"kept.",
        "job": FETCH,
        "failed": True,
        "done": None,
    },
}
FAILED = {
    "id": FETCH,
    "kind": "fetch",
    "task": None,
    "state": "failed",
    "is_terminal": True,
    "outcome": None,
    "version": None,
    "error": {"kind": "weights", "code": "job-weights", "detail": WHY},
}


def make_job(**values: Any) -> dict[str, Any]:
    found = find_sample_answer("GET", f"/v1/jobs/{JOB}")
    return {**found, "id": JOB, **GOES_ON, "progress": {**found["progress"], **HALF}, **values}


@pytest.fixture
def answers() -> dict[str, Any]:
    """Responses about the batch's job, and about the one that fetches its base."""
    return {JOB: make_job(), FETCH: {**make_job(), **FAILED}}


@pytest.fixture
def service(
    answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch, no_pauses: None
) -> Iterator[stub.Stub]:
    def answer_service_request(asked: stub.Asked) -> stub.Said:
        found = find_sample_answer(asked.method, asked.path)
        job = next((one for one in answers if asked.path.startswith(f"/v1/jobs/{one}")), None)
        if job is not None:
            found = answers[job]
        elif asked.path.partition("?")[0].count("/") in (2, 3) and asked.path.startswith(
            "/v1/models"
        ):
            found = {**found, **answers.get("model", {})}
        elif asked.method == "POST" and "/tasks" in asked.path:
            found = {**found, "job": answers[JOB], "repeats": None}
        return stub.Said(body=found)

    with stub.run_stub(answer_service_request) as found:
        monkeypatch.setenv("PERENNIAL_URL", found.url)
        monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
        yield found


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["words", "json"])
def test_a_job_whose_base_cannot_come_is_watched_no_longer(
    service: stub.Stub, answers: dict[str, Any], capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    answers[JOB] |= LACKS
    assert run_command_line(["jobs", "watch", JOB, *more]) == ExitStatus.NO_BASE
    said = capsys.readouterr().err
    assert "could not be brought. The Hub cannot be reached (ConnectError)." in said
    assert f"`perennial jobs retry {FETCH}" in said
    assert f"perennial jobs watch {JOB}" in said and f"perennial jobs cancel {JOB}" in said


def test_a_submit_whose_base_cannot_come_ends_and_its_json_is_the_job(
    service: stub.Stub,
    answers: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    archives: list[bytes],
) -> None:
    Path("week.zip").write_bytes(archives[0])
    answers[JOB] |= LACKS
    assert run_command_line(["submit", "birds", "week.zip", "--json"]) == ExitStatus.NO_BASE
    assert f'"id": "{JOB}"' in capsys.readouterr().out


def test_a_model_whose_base_cannot_come_is_made_and_told(
    service: stub.Stub, answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answers["model"] = {"name": "birds", "state": "fetching", "job": FETCH}
    assert run_command_line(["models", "create", "birds", "--wait"]) == ExitStatus.NO_BASE
    said = capsys.readouterr().err
    assert "The Hub cannot be reached" in said and "Model birds is made, without its base." in said
    assert run_command_line(["models", "create", "birds"]) == ExitStatus.DONE


def test_a_model_is_shown_once_its_base_is_there(
    service: stub.Stub, answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answers["model"] = {"name": "birds", "state": "fetching", "job": FETCH}
    answers[FETCH] |= {"state": "succeeded", "error": None}
    assert run_command_line(["models", "create", "birds", "--wait"]) == ExitStatus.DONE
    assert "state\tfetching" in capsys.readouterr().out
    assert service.asked[-1].method == "GET"


def test_python_gets_an_error_of_its_own(service: stub.Stub, answers: dict[str, Any]) -> None:
    from perennial import Perennial

    answers[JOB] |= LACKS
    with Perennial("pk_x", base_url=service.url) as client:
        with pytest.raises(BaseUnavailable, match="could not be brought"):
            client.job(JOB).wait(check=False)
        with pytest.raises(BaseFailed, match="cannot be reached"):
            client.job(FETCH).wait()


def test_without_a_terminal_the_same_line_comes_again_until_something_else_is_told(
    service: stub.Stub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_lines, "EVERY_S", 0.05)
    assert run_command_line(["jobs", "watch", JOB, "--timeout", "1"]) == ExitStatus.STILL_RUNNING
    lines = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{JOB} train")
    ]
    assert len(lines) > 2
    assert set(lines) == {f"{JOB} train 50%, about 90 s left"}


def test_a_transfer_without_a_terminal_tells_how_much_is_sent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_lines, "EVERY_S", 0.05)
    said = ""
    with progress_lines.TransferStatusLines() as lines:
        lines(3_000_000, 12_000_000)
        while "sent" not in said:
            said += capsys.readouterr().err
    assert said.splitlines()[-1] == "25% of 12.0 MB sent"


def test_a_service_that_is_away_is_told_in_the_next_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_lines, "EVERY_S", 0.05)
    said = ""
    with progress_lines.JobStatusLines() as lines:
        lines(convert_from_json(Job, make_job()))
        lines.show_service_outage(40)
        while "not answered" not in said:
            said += capsys.readouterr().err
    assert said.splitlines()[-1] == (
        f"{JOB} train 50%, about 90 s left; the service has not answered for 40 s"
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "train 50%, about 90 s left"),
        ({"state": "succeeded", "is_terminal": True}, "succeeded"),
        ({"state": "queued", "started_at": None, "progress": {**HALF, "left_s": None}}, "queued"),
        (
            {
                "state": "queued",
                "started_at": None,
                "waiting_for": {**LACKS["waiting_for"], "failed": False, "done": 0.43},
                "progress": {**HALF, "left_s": None},
            },
            "waiting (base 43%)",
        ),
    ],
    ids=["runs", "ended", "queued", "waits for its base"],
)
def test_a_job_is_told_in_a_few_words(values: dict[str, Any], words: str) -> None:
    found = make_job()
    progress = (
        {**found["progress"], **values.pop("progress", {})}
        if "progress" in values
        else found["progress"]
    )
    assert (
        describe_job_progress(convert_from_json(Job, {**found, **values, "progress": progress}))
        == words
    )


def test_a_job_of_an_older_service_has_the_share_of_its_phase() -> None:
    found = make_job()
    progress = {
        name: value for name, value in found["progress"].items() if name not in ("done", "left_s")
    }
    job = convert_from_json(Job, {**found, "progress": progress})
    assert (compute_job_share_done(job), describe_job_time_left(job)) == (0.3, "")


@pytest.mark.parametrize(
    ("aliases", "legend", "now"),
    [
        pytest.param(  # the legend of both is of one function
            {"production": 1, "latest": 2},
            "* in production: version 1.",
            "“now” is version 2, the newest published.",
            marks=pytest.mark.campaign,
        ),
        (
            {"production": 1, "latest": 1},
            "* in production: version 1.",
            "“now” is version 1, in production and the newest published.",
        ),
    ],
    ids=["another", "the newest"],
)
def test_a_table_marks_production_and_says_which_version_now_is(
    service: stub.Stub, answers: dict[str, Any], aliases: dict[str, int], legend: str, now: str
) -> None:
    answers["model"] = {"aliases": aliases}
    tasks = record_command(service.url, "pk_x", "tasks", "list", "birds")
    assert "1*" in tasks.words and tasks.last[-2:] == [legend, now]
    metrics = record_command(service.url, "pk_x", "metrics", "birds")
    assert "1*" in metrics.words and legend in metrics.last


def test_a_table_on_a_pipe_has_plain_numbers(
    service: stub.Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["tasks", "list", "birds"], ["metrics", "birds"]):
        assert run_command_line(command) == ExitStatus.DONE
        assert "*" not in capsys.readouterr().out


def test_a_watched_folder_keeps_a_batch_whose_base_cannot_come_and_says_why(
    service: stub.Stub,
    answers: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    archives: list[bytes],
    tmp_path: Path,
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "week.zip").write_bytes(archives[0])
    (inbox / "week.zip.done").touch()
    answers[JOB] |= LACKS
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once"]) == ExitStatus.NO_BASE
    assert "could not be brought" in capsys.readouterr().out
    assert (inbox / "week.zip").exists()
