"""Commands on a terminal of 80 columns: what its screen shows in the end."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
import stub
from sample_answers import sample_answer

from perennial.cli.exits import Exit
from perennial.cli.main import run

ROOT = Path(__file__).parents[2]
COLUMNS, ROWS = 80, 40
LIMIT_S = 60
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

    def answer(asked: stub.Asked) -> stub.Said:
        found = sample_answer(asked.method, asked.path)
        if asked.path.startswith(f"/v1/jobs/{JOB}"):
            found = {**found, **WAITING, "progress": {**found["progress"], "phase": "train", "step": 1}}
        elif asked.path.startswith("/v1/jobs"):
            found = {"items": [{**found["items"][0], **WAITING}], "next_cursor": None}
        return stub.Said(body=found)

    with stub.answering(answer) as found:
        yield found


def screen_of(
    service: stub.Stub, *arguments: str, typed: tuple[str, bytes] | None = None
) -> tuple[int, list[str]]:
    """Run a command on a terminal; return its exit status and the lines of the screen.

    Args:
        typed: what must be on the screen before these bytes are typed.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    own = {"PYTHONPATH": str(ROOT / "client"), "TERM": "xterm-256color", "NO_COLOR": "1"}
    own |= {"PERENNIAL_URL": service.url, "PERENNIAL_API_KEY": "pk_x"}
    environment: dict[str, Any] = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**environment, **own},
    )
    os.close(theirs)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    while select.select([ours], [], [], LIMIT_S)[0]:
        try:
            stream.feed(os.read(ours, 1 << 16))
        except OSError:  # the other end is closed
            break
        if typed is not None and typed[0] in "\n".join(screen.display):
            os.write(ours, typed[1])
            typed = None
    os.close(ours)
    return process.wait(LIMIT_S), [line.rstrip() for line in screen.display if line.strip()]


LEADER = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that ^C reaches this process
from perennial.cli.main import main
main()
"""


def test_ctrl_c_leaves_one_bar_and_a_command_that_can_be_copied(service: stub.Stub) -> None:
    status, lines = screen_of(service, "jobs", "watch", JOB, typed=("%", b"\x03"))
    assert status == 130
    assert len([line for line in lines if "%" in line]) == 1
    assert lines[-3:] == [
        f"Job {JOB} goes on. Come back with:",
        f"  perennial jobs watch {JOB}",
        f"End it with: perennial jobs cancel {JOB}",
    ]


def test_names_and_headings_of_a_table_are_not_broken(service: stub.Stub) -> None:
    status, lines = screen_of(service, "jobs", "list")
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
    ended, lines = screen_of(service, "models", "rm", "birds", typed=("[y/N]", typed))
    assert ended == status
    assert lines[-1].endswith(last)
    assert {one.method for one in service.asked} == {"GET"}


def test_without_a_terminal_there_are_neither_bars_nor_codes(
    service: stub.Stub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_URL", service.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
    assert run(["jobs", "watch", JOB, "--timeout", "0.01"]) == Exit.STILL_RUNNING
    out, told = capsys.readouterr()
    assert out == "" and "━" not in told and "\x1b" not in told
    assert told.startswith(f"{JOB} train")
