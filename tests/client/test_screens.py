"""Commands on a terminal of 80 columns: what its screen shows in the end."""

from collections.abc import Iterator

import pytest
import stub
from sample_answers import find_sample_answer
from terminal import record_command

from perennial.cli.exits import ExitStatus
from perennial.cli.main import run_command_line

JOB = "job_01m8gq24d2kh81qs3r0nq9ya1t"
WAITING = {
    "id": JOB,
    "model": "birds",
    "task": 1,
    "state": "running",
    "outcome": None,
    "is_terminal": False,
    "version": None,
    "warnings": [],
    "created_at": "2026-11-28T09:16:00Z",
}


@pytest.fixture
def service() -> Iterator[stub.Stub]:
    """A service with a job that does not end, and whose events are not streamed."""

    def answer_with_waiting_job(asked: stub.Asked) -> stub.Said:
        found = find_sample_answer(asked.method, asked.path)
        if asked.path.startswith(f"/v1/jobs/{JOB}"):
            found = {
                **found,
                **WAITING,
                "progress": {**found["progress"], "phase": "train", "step": 1},
            }
        elif asked.path.startswith("/v1/jobs"):
            found = {"items": [{**found["items"][0], **WAITING}], "next_cursor": None}
        return stub.Said(body=found)

    with stub.run_stub(answer_with_waiting_job) as found:
        yield found


def record_last_screen(
    service: stub.Stub, *arguments: str, typed: tuple[str, bytes] | None = None
) -> tuple[int, list[str]]:
    """Return the exit status of a command on a terminal, and the lines of its last screen."""
    found = record_command(service.url, "pk_x", *arguments, typed=typed)
    return found.status, found.last


def test_ctrl_c_leaves_one_bar_and_a_command_that_can_be_copied(service: stub.Stub) -> None:
    status, lines = record_last_screen(service, "jobs", "watch", JOB, typed=("%", b"\x03"))
    assert status == 130
    assert len([line for line in lines if "%" in line]) == 1
    assert lines[-3:] == [
        f"Job {JOB} goes on. Come back with:",
        f"  perennial jobs watch {JOB}",
        f"End it with: perennial jobs cancel {JOB}",
    ]


def test_names_and_headings_of_a_table_are_not_broken(service: stub.Stub) -> None:
    status, lines = record_last_screen(service, "jobs", "list")
    assert status == 0
    assert [name.strip() for name in lines[0].split("  ") if name] == [
        "job", "kind", "task", "state", "version", "created UTC",
    ]  # fmt: skip
    assert lines[2].split() == [JOB, "birds", "1", "birds", "–", "11-28", "09:16"]
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("typed", "status", "last"),
    [
        (b"n\n", 1, "Nothing was done."),
        (b"\x04", 2, "Nothing was done: nobody answered. Say --yes where nobody can be asked."),
        (b"\x03", 130, "[y/N]: ^C"),
    ],
    ids=["no", "end of input", "Ctrl-C"],
)
def test_a_question_ends_with_what_became_of_it(
    service: stub.Stub, typed: bytes, status: int, last: str
) -> None:
    ended, lines = record_last_screen(service, "models", "rm", "birds", typed=("[y/N]", typed))
    assert ended == status
    assert lines[-1].endswith(last)
    assert {one.method for one in service.asked} == {"GET"}


def test_without_a_terminal_there_are_neither_bars_nor_codes(
    service: stub.Stub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_URL", service.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
    assert run_command_line(["jobs", "watch", JOB, "--timeout", "0.01"]) == ExitStatus.STILL_RUNNING
    out, told = capsys.readouterr()
    assert out == "" and "━" not in told and "\x1b" not in told
    assert told.startswith(f"{JOB} train")
