"""watch-folder before a service that is away, is full or fails, and before batches that cannot be
read.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stub
from sample_answers import find_sample_answer

from perennial.cli.main import run_command_line

pytestmark = pytest.mark.usefixtures("no_pauses")
Answers = dict[str, list[stub.Said | Callable[[], stub.Said]]]
PNG = b"\x89PNG\r\n\x1a\n"


def make_job_sample(name: str, state: str) -> dict[str, Any]:
    ended = state != "running"
    found = find_sample_answer("GET", "/v1/jobs/x")
    outcome = "published" if state == "succeeded" else None
    return {**found, "id": f"job_{name}", "state": state, "is_terminal": ended, "outcome": outcome}


def build_accepted_answer(name: str) -> stub.Said:
    found = find_sample_answer("POST", "/v1/models/birds/tasks")
    return stub.Said(202, {**found, "repeats": None, "job": make_job_sample(name, "running")})


def build_job_answer(name: str, state: str = "succeeded") -> stub.Said:
    return stub.Said(body=make_job_sample(name, state))


FULL = stub.build_problem(429, "too-many-open-jobs", "Too many open jobs.", Retry_After="0")
BROKEN = stub.build_problem(500, "internal", "Something is wrong here.")
IN_FLIGHT = stub.build_problem(409, "idempotency-in-flight", "The first request is still answered.")
TOO_SLOW = stub.build_problem(408, "request-timeout", "The body came too slowly.")
AWAY = stub.build_problem(503, "unavailable", "The database does not answer.", Retry_After="0")


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("perennial.cli.batches.watch_folder.time.sleep", lambda _: None)
    found = tmp_path / "inbox"
    for name in "ab":
        for label in ("cat", "dog"):
            folder = found / name / label
            folder.mkdir(parents=True)
            (folder / "1.png").write_bytes(PNG + name.encode() + label.encode())
        (found / name / ".done").touch()
    return found


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """Responses to a batch (`a`) and about its job (`job_a`), in order; the last one repeats."""
    given: Answers = {}

    def answer_service_request(asked: stub.Asked) -> stub.Said:
        sent = (
            re.search(r"/tasks\?(?:.*&)?name=(\w+)", asked.path) if asked.method == "POST" else None
        )
        followed = re.search(r"/jobs/(job_\w+)", asked.path)
        key = sent[1] if sent else followed[1] if followed else None
        if key is None:
            return stub.Said(body=find_sample_answer(asked.method, asked.path))
        found = given.get(key) or [
            build_accepted_answer(key) if sent else build_job_answer(key.removeprefix("job_"))
        ]
        one = found.pop(0) if len(found) > 1 else found[0]
        return one if isinstance(one, stub.Said) else one()

    with stub.run_stub(answer_service_request) as service:
        monkeypatch.setenv("PERENNIAL_URL", service.url)
        monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
        yield given


def list_visible_names(inbox: Path, place: str = "") -> list[str]:
    """Return the names in a place of the folder, without hidden ones and those of places."""
    folder = inbox / place
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(
        name for name in names if name[0] != "." and name not in ("learned", "held", "failed")
    )


STORIES: dict[str, tuple[Answers, int, list[str]]] = {
    "no trouble": ({}, 0, ["a", "b"]),
    "a restart while a job runs": ({"job_a": [*[AWAY] * 30, build_job_answer("a")]}, 0, ["a", "b"]),
    "room as soon as the first job has ended": (
        {"b": [*[FULL] * 7, build_accepted_answer("b")]},
        0,
        ["a", "b"],
    ),
    "an error of the service with one batch": ({"a": [BROKEN]}, 5, ["b"]),
    "a first attempt that is still answered": (
        {"a": [*[IN_FLIGHT] * 5, build_accepted_answer("a")]},
        0,
        ["a", "b"],
    ),
    "a body that came too slowly": (
        {"b": [*[TOO_SLOW] * 5, build_accepted_answer("b")]},
        0,
        ["a", "b"],
    ),
    "an error of the service with one job": (
        {"job_a": [BROKEN, build_job_answer("a")]},
        0,
        ["a", "b"],
    ),
    "a service that is away at the first batch": ({"a": [AWAY]}, 5, []),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_batch_stops_no_other(story: str, inbox: Path, answers: Answers) -> None:
    given, status, learned = STORIES[story]
    answers.update({key: list(one) for key, one in given.items()})
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once"]) == status
    assert list_visible_names(inbox, "learned") == learned
    assert list_visible_names(inbox) == [name for name in ("a", "b") if name not in learned]


def test_a_service_that_stays_away_while_a_job_runs_ends_the_command(
    inbox: Path, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perennial.cli.batches.watch_folder.PATIENCE_S", 0.0)
    answers["job_a"] = [AWAY]
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once"]) == 5
    assert "a" in list_visible_names(inbox)


def test_after_ctrl_c_the_next_run_goes_on(
    inbox: Path, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_keyboard_interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(
            "perennial.cli.batches.watch_folder.time.sleep", raise_keyboard_interrupt
        )
        assert run_command_line(["watch-folder", str(inbox), "birds"]) == 130
    assert (list_visible_names(inbox), list_visible_names(inbox, "learned")) == (["a", "b"], [])
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once"]) == 0
    assert list_visible_names(inbox, "learned") == ["a", "b"]


def test_a_batch_that_is_taken_away_is_let_go_and_one_that_is_changed_is_sent_again(
    inbox: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    def take_away() -> stub.Said:
        (inbox / "a").rename(inbox.parent / "a")
        (inbox / "b" / "cat" / "2.png").write_bytes(PNG)
        return build_job_answer("a")

    answers["job_a"] = [take_away, build_job_answer("a")]
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once"]) == 0
    out = capsys.readouterr().out
    assert "a: gone" in out and "b: changed" in out
    assert out.count("b: sent") == 2
    assert (list_visible_names(inbox), list_visible_names(inbox, "learned")) == ([], ["b"])


def add_pipe(batch: Path) -> None:
    os.mkfifo(batch / "cat" / "2.png")


def add_odd_name(batch: Path) -> None:
    (batch / "cat" / os.fsdecode(b"\xff\x1b[31m.png")).write_bytes(PNG)


def add_link_with_odd_name(batch: Path) -> None:
    (batch / os.fsdecode(b"\xff\n")).symlink_to(batch / "cat")


def remove_all_images(batch: Path) -> None:
    for label in ("cat", "dog"):
        (batch / label / "1.png").unlink()


@pytest.mark.parametrize("spoil", [add_pipe, add_link_with_odd_name, remove_all_images])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_batch_that_cannot_be_sent_stops_no_other(
    spoil: Callable[[Path], None], options: list[str], inbox: Path, answers: Answers
) -> None:
    spoil(inbox / "a")
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once", *options]) == 12
    assert (list_visible_names(inbox, "failed"), list_visible_names(inbox, "learned")) == (
        ["a", "a.txt"],
        ["b"],
    )
    assert (inbox / "failed" / "a.txt").read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_names_that_are_no_utf_8_end_nothing(
    options: list[str], inbox: Path, answers: Answers
) -> None:
    add_odd_name(inbox / "a")
    (inbox / "b").rename(inbox / os.fsdecode(b"b\xff"))
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once", *options]) in (0, 12)
    assert list_visible_names(inbox) == []


def test_once_says_how_good_a_batch_was_learned_and_why_others_are_left(
    inbox: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    (inbox / "b" / ".done").unlink()
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a: sent: job job_a",
        "a: learned: version 1, accuracy 0.500 (1 image)",
        "b: left: changed less than 60 s ago",
    ]


def test_a_batch_that_was_not_sent_is_left_for_the_service(
    inbox: Path, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    answers["a"] = [BROKEN]
    assert run_command_line(["watch-folder", str(inbox), "birds", "--once"]) == 5
    assert (
        "a: left: it was not sent: the service does not answer, or is full\n"
        in capsys.readouterr().out
    )


def test_an_accuracy_that_cannot_be_read_keeps_no_batch_from_its_place(
    inbox: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer_without_accuracy(asked: stub.Asked) -> stub.Said:
        if re.search(r"/tasks/\d", asked.path):
            return AWAY
        found = find_sample_answer(asked.method, asked.path)
        return stub.Said(body=found) if asked.method == "GET" else build_accepted_answer("a")

    with stub.run_stub(answer_without_accuracy) as service:
        monkeypatch.setenv("PERENNIAL_URL", service.url)
        monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
        assert run_command_line(["watch-folder", str(inbox), "birds", "--once"]) == 0
    assert list_visible_names(inbox, "learned") == ["a", "b"]
    assert "a: learned: version 1\n" in capsys.readouterr().out
