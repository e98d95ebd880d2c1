"""A hostile service against every command of the client: what it says stays inside, and ends as a
sentence.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import hostile_service
import pytest
from hostile_answers import HOSTILE, Hostile
from hostile_service import HostileService, Reply, Request
from sample_answers import answer_as_service, find_sample_answer

from perennial import Perennial
from perennial.cli.main import cli, run_command_line

MIB = 1 << 20
COMMANDS = (
    "whoami", "status", "open birds", "login --key pk_x", "models list", "models create "
        "birds", "models show birds",
    "models set birds --min-acc "
    "0.5", "models rm birds --yes", "models memory birds", "models memory birds --delete",
    "models rebase birds --base random", "models rebase birds --status", "models rebase birds "
        "--finish --yes",
    "models rebase birds --back --yes", "submit birds batch.zip --timeout "
        "0.02", "submit birds batch.zip --detach",
    "submit birds batch.zip "
    "--check", "uploads list", "uploads rm upl_1", "tasks list birds", "tasks show birds 1",
    "tasks continue birds 1", "tasks discard birds 1", "tasks relearn birds 1 --detach",
    "tasks delete-data birds 1 --yes", "jobs list", "jobs show job_1", "jobs watch job_1 --timeout "
        "0.02",
    "jobs logs job_1", "jobs logs job_1 -f", "jobs trials job_1", "jobs choose job_1 1",
    "jobs cancel job_1", "jobs pause job_1", "jobs resume job_1",
    "jobs retry job_1 --detach", "versions list birds", "versions show birds 1", "versions note "
        "birds 1 fine",
    "versions diff birds 1 1", "compare birds 1 1", "compare birds 1 1 --images "
        "negative", "download birds -v 1",
    "download birds -v 1 --layout files -o files", "download birds -v 1 --layout triton -o triton",
    "predict birds "
    "photo.png", "promote birds 1", "rollback birds --to "
        "1", "follow birds", "metrics birds", "methods",
    "methods der", "bases upload base.safetensors --architecture "
        "small-cnn", "bases list", "bases show bas_1",
    "bases rm bas_1", "bases architectures", "webhooks list", "webhooks create https://example.org/",
    "webhooks rotate whk_1", "webhooks show whk_1", "webhooks rm whk_1", "webhooks disable whk_1",
    "webhooks enable whk_1", "webhooks test whk_1", "webhooks deliveries whk_1", "webhooks "
        "redeliver whk_1 dlv_1",
    "keys list", "keys create ci", "keys revoke key_1", "issues birds 1", "evaluate birds "
        "labelled", "audit", "usage",
    "usage --by owner", "watch-folder inbox birds --once --quiet 0 --timeout 0.02",
    "classes list birds", "classes rename birds cat dog --yes --detach", "classes merge birds cat dog "
        "--into pet --yes --detach",
    "classes drop birds cat --yes --detach", "classes aliases birds", "classes aliases birds --remove "
        "cat",
    "images list birds 1", "images relabel birds 1 0 --to cat --yes --detach", "images remove birds 1 0 "
        "--yes --detach",
    "edits list birds", "edits show birds 1", "edits undo birds 1 --yes", "edits purge birds 1 --yes",
    "adopt birds base.safetensors --architecture resnet18 --classes classes.txt",
)  # fmt: skip
BODILESS = re.compile(
    r"(uploads|keys|bases|webhooks) (rm|revoke) |tasks delete-data |classes aliases \w+ --remove |open$"
)
"""Commands that read no body of an answer, and so may end with 0."""
WITHOUT_A_SERVICE = {"logout", "completion"}
ENDLESS_BYTES = 16 * MIB
"""Bytes that a client may take of an endless answer, those in buffers of the system included."""
SHARE = 20
"""Every run gives each hostile answer to one of so many commands; the campaign gives all to all."""
FILES = {
    "batch.zip",
    "labelled",
    "photo.png",
    "base.safetensors",
    "birds-1.zip",
    "files",
    "triton",
    "inbox",
    "classes.txt",
}


@pytest.fixture(scope="module")
def service() -> Iterator[HostileService]:
    with hostile_service.run_hostile_service() as found:
        yield found


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: HostileService) -> None:
    """A client that waits for nothing and has small bounds, in a folder with something to send."""
    for module in ("http", "upload", "download", "stream", "job"):
        monkeypatch.setattr(f"perennial._sync.{module}.sleep_seconds", lambda _: None)
    monkeypatch.setattr("perennial.cli.service.webhooks.ATTEMPT_S", 0.0)
    for defaults in (Perennial.__init__.__kwdefaults__,):
        monkeypatch.setitem(defaults, "max_retries", 1)
    monkeypatch.setattr("perennial._sync.http.MAX_ANSWER_BYTES", MIB)
    monkeypatch.setattr("perennial.responses.MAX_PAGES", 20)
    monkeypatch.setattr("perennial._sync.upload.send_batch.__defaults__", (MIB,))
    monkeypatch.setattr("webbrowser.open", lambda page: page.startswith(service.url))
    monkeypatch.setenv("PERENNIAL_URL", service.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", "pk_secret")
    client = _get_shared_client()
    monkeypatch.setattr("perennial._sync.http.create_http_client", lambda: client)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("batch.zip", "photo.png", "base.safetensors"):
        (work / name).write_bytes(b"some bytes")
    (work / "classes.txt").write_text("cat\ndog\n")
    (work / "labelled" / "birds").mkdir(parents=True)
    (work / "labelled" / "birds" / "1.png").write_bytes(b"some bytes")
    (work / "inbox").mkdir()
    (work / "inbox" / "batch.zip").write_bytes(b"some bytes")
    monkeypatch.chdir(work)


def _get_shared_client() -> Any:
    """Return one HTTP client for all commands, since its certificates take long to load."""
    from perennial._sync.waiting import create_http_client

    if not _CLIENT:
        _CLIENT.append(create_http_client())
        _CLIENT[0].close = lambda: None
    return _CLIENT[0]


_CLIENT: list[Any] = []


def build_hostile_answer(hostile: Hostile) -> Callable[[Request], Reply]:
    """Return a function that answers every request in a hostile way."""

    def answer_with_hostile_data(request: Request) -> Reply:
        bare = request.target.partition("?")[0]
        found = find_sample_answer(request.method, request.target)
        reply = hostile.reply({} if found is None else found)
        is_head = request.method == "HEAD" and isinstance(reply, bytes)
        if bare.endswith("/download") and not hostile.is_false:
            return answer_as_service(request)
        return bytes(reply).partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if is_head else reply  # type: ignore[arg-type]

    return answer_with_hostile_data


def assert_clean_output(told: str, command: str) -> None:
    """Check that output has no traceback and no control characters that a terminal obeys."""
    assert "Traceback" not in told, told
    for one in set(told) - {"\n", "\t", "\u200c", "\u200d"}:
        assert unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}, (
            command,
            one,
            told[:500],
        )


def list_outside_files(folder: Path) -> set[str]:
    """Return the files beside the working folder, which no command makes."""
    return {one.name for one in folder.iterdir()} - {"work", "home"}


def choose_commands(name: str, share: int) -> list[tuple[int, str]]:
    """Return one of `share` commands with their numbers, different ones for each hostile answer."""
    place = list(HOSTILE).index(name)
    return [
        (number, command)
        for number, command in enumerate(COMMANDS)
        if (number + place) % share == 0
    ]


@pytest.mark.slow
@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_answer_does_any_harm(
    service: HostileService,
    name: str,
    share: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hostile = HOSTILE[name]
    service.answer = build_hostile_answer(hostile)
    for number, command in choose_commands(name, share):
        service.forget()
        monkeypatch.setattr(
            "perennial.cli.output.is_stdout_terminal", lambda number=number: number % 2 == 0
        )
        more = ["--json"] if number % 3 == 0 else []
        status = run_command_line([*command.split(), *more])
        out, err = capsys.readouterr()
        assert_clean_output(out + err, command)
        assert service.sent < ENDLESS_BYTES, command
        assert len(service.requests) < hostile_service.MOST_REQUESTS, command
        if hostile.is_false and not BODILESS.match(command):
            assert status != 0, (command, out, err)
        if status != 0:
            assert (err + out).strip(), command
        work = {one.name for one in Path().iterdir()}
        assert {one for one in work if not one.endswith(".part")} <= FILES, command
    assert list_outside_files(tmp_path) == set()


def test_every_command_ends_with_0_where_the_service_is_honest(
    service: HostileService, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the others would show nothing."""
    service.answer = answer_as_service
    # The short time is for a service that never answers; a busy machine needs more for an honest one.
    patient = [command.replace("--timeout 0.02", "--timeout 10") for command in COMMANDS]
    ended = {
        command: (run_command_line(command.split()), capsys.readouterr().err) for command in patient
    }
    assert {command: end for command, end in ended.items() if end[0] != 0} == {}
    assert len(HOSTILE) >= 60
    assert all(one.headers["authorization"] == "Bearer pk_secret" for one in service.requests[-5:])


def test_every_command_meets_many_hostile_answers_in_every_run() -> None:
    met = [command for name in HOSTILE for _, command in choose_commands(name, SHARE)]
    assert {command for command in COMMANDS if met.count(command) >= 3} == set(COMMANDS)
    assert min(len(choose_commands(name, SHARE)) for name in HOSTILE) >= len(COMMANDS) // SHARE


def test_every_command_that_asks_a_service_is_in_the_table() -> None:
    tried = {" ".join(command.split()[:2]) for command in COMMANDS} | {
        one.split()[0] for one in COMMANDS
    }
    context = click.Context(cli)
    from perennial.cli.main import COMMANDS as NAMES

    for name in set(NAMES) - WITHOUT_A_SERVICE:
        found = cli.get_command(context, name)
        inner = (
            [f"{name} {one}" for one in found.commands]
            if isinstance(found, click.Group)
            else [name]
        )
        assert set(inner) <= tried, inner
