"""Every command against a real service: its JSON, its words, its exit status."""

import io
import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from small_batches import QUICK, SMALL

from perennial import Perennial
from perennial.cli.main import COMMANDS, run_command_line
from tools import service

ROOT = Path(__file__).parents[2]
MODEL = ["--architecture", "small-cnn", "--image", '{"size": 8, "channels": 1}', "--base", "random"]
RECIPE = ["--recipe", json.dumps(QUICK), "--checks", "off"]


@pytest.fixture(autouse=True)
def logged_in(running: service.RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)


@pytest.fixture(scope="module")
def weeks(archives: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The batches as files."""
    folder = tmp_path_factory.mktemp("weeks")
    for number, archive in enumerate(archives, start=31):
        (folder / f"week-{number}.zip").write_bytes(archive)
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def birds(running: service.RunningService, weeks: list[Path]) -> str:
    """A model with a published version and a held one, whose next batch waits."""
    with Perennial(running.key, base_url=running.url) as client:
        client.models.create("birds", **SMALL)
        client.submit("birds", weeks[0], name="week-31").wait(120)
        client.models.update("birds", gate={"min_acc": 1.0})
        client.submit("birds", weeks[1], name="week-32").wait(120, check=False)
        client.submit("birds", weeks[2], name="week-33")
    return "birds"


Said = pytest.CaptureFixture[str]


def read_printed_documents(capsys: Said, *arguments: str, status: int = 0) -> list[Any]:
    """Return the JSON documents that a command prints, one on each line."""
    assert run_command_line([*arguments, "--json"]) == status, capsys.readouterr()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def read_printed_document(capsys: Said, *arguments: str, status: int = 0) -> Any:
    """Return the only JSON document that a command prints."""
    (document,) = read_printed_documents(capsys, *arguments, status=status)
    return document


def create_slow_model(capsys: Said, name: str, *more: str) -> Any:
    """Create a model whose jobs take a second."""
    return read_printed_document(capsys, "models", "create", name, *MODEL, *RECIPE, *more)


def run_on_terminal(arguments: Sequence[str], **environment: str) -> tuple[int, str]:
    """Return the exit status of Python with these arguments, and what a terminal of 80 columns
    shows of it.
    """
    ours, theirs = pty.openpty()
    own = {
        "PYTHONPATH": str(ROOT / "client"),
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        **environment,
    }
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **own},
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            shown += os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    return process.wait(60), shown.decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_a_held_version_ends_with_10_and_says_why_and_how_to_go_on(
    capsys: Said, weeks: list[Path]
) -> None:
    assert create_slow_model(capsys, "strict", "--min-acc", "1")["gate"]["min_acc"] == 1
    status = run_command_line(["submit", "strict", str(weeks[1])])
    out, told = capsys.readouterr()
    assert (status, out) == (10, "")
    assert "Version 1 of strict is held by the gate; production stays at version 0." in told
    assert "its mean accuracy is below what the gate asks: 0." in told
    assert 'perennial promote strict 1 --reason "WHY"' in told
    assert "Later batches wait until you choose one of:" in told
    assert "perennial jobs retry job_" in told
    job = read_printed_document(capsys, "jobs", "list", "--model", "strict")[0]["id"]
    assert run_command_line(["jobs", "watch", job]) == 10
    assert run_command_line(["promote", "strict", "1"]) == 1, "without a reason the service refuses"
    capsys.readouterr()
    assert (
        read_printed_document(capsys, "promote", "strict", "1", "--reason", "good enough")[
            "version"
        ]
        == 1
    )
    assert run_command_line(["jobs", "watch", job]) == 0
    assert "Version 1 of strict is published, and in production." in capsys.readouterr().out


@pytest.mark.slow
def test_a_batch_that_is_learned_ends_with_0_and_can_be_checked_before_and_come_on_standard_input(
    capsys: Said, weeks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_slow_model(capsys, "piped")
    assert (
        read_printed_document(capsys, "submit", "piped", str(weeks[0]), "--check")["valid"] is True
    )
    assert read_printed_document(capsys, "tasks", "list", "piped") == []
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(weeks[0].read_bytes())))
    job = read_printed_document(capsys, "submit", "piped", "-", "--name", "from a pipe")
    assert (job["state"], job["outcome"], job["version"]) == ("succeeded", "published", 1)
    assert read_printed_document(capsys, "tasks", "show", "piped", "1")["name"] == "from a pipe"
    events = read_printed_documents(capsys, "jobs", "watch", job["id"])
    assert {"state", "log"} <= {event["type"] for event in events}
    logs = read_printed_documents(capsys, "jobs", "logs", job["id"])
    assert {line["level"] for line in logs} <= {"info", "warning"}


def test_rejected_failed_and_cancelled_jobs_have_exit_statuses_of_their_own(
    capsys: Said, tmp_path: Path, weeks: list[Path]
) -> None:
    create_slow_model(capsys, "endings")
    (tmp_path / "none.zip").write_bytes(b"this is no archive")
    assert run_command_line(["submit", "endings", "none.zip"]) == 11
    with zipfile.ZipFile(tmp_path / "broken.zip", "w") as archive:
        for label in "ab":
            archive.writestr(f"{label}/1.png", b"no image")
    assert run_command_line(["submit", "endings", "broken.zip"]) == 11
    long = json.dumps({**QUICK, "epochs": 500})
    capsys.readouterr()
    job = read_printed_document(
        capsys, "submit", "endings", str(weeks[0]), "--recipe", long, "--detach"
    )["job"]["id"]
    read_printed_document(capsys, "jobs", "pause", job)
    read_printed_document(capsys, "jobs", "show", job)
    assert run_command_line(["jobs", "cancel", job]) == 0
    assert run_command_line(["jobs", "watch", job]) == 13


@pytest.mark.slow
def test_exit_statuses_of_errors(capsys: Said, monkeypatch: pytest.MonkeyPatch, birds: str) -> None:
    assert run_command_line(["models", "show", "nobody"]) == 3
    assert run_command_line(["models", "show"]) == 2
    assert run_command_line(["submit", birds, "no-such.zip"]) == 2
    assert run_command_line(["models", "set", birds]) == 2
    assert run_command_line(["promote", birds, "99"]) == 3
    assert run_command_line(["rollback", birds, "--to", "99"]) == 3
    assert "has no version or alias '99'" in capsys.readouterr().err
    monkeypatch.setenv("PERENNIAL_API_KEY", "pk_wrong")
    assert run_command_line(["models", "list"]) == 4
    monkeypatch.delenv("PERENNIAL_API_KEY")
    assert run_command_line(["models", "list"]) == 4
    assert "perennial login" in capsys.readouterr().err


def test_a_service_that_is_not_there_ends_with_5(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perennial._sync.http.sleep_seconds", lambda _: None)
    assert run_command_line(["models", "list", "--url", "http://127.0.0.1:9"]) == 5
    assert "does not answer" in capsys.readouterr().err


READS = (
    "models list", "models list bird", "models show birds", "models memory birds",
    "models set birds --max-forgetting 0.5", "tasks list birds", "tasks show birds 1", "jobs list",
    "versions list birds", "versions show birds", "versions show birds 2", "versions diff birds 1 "
        "2",
    "versions note birds 1 'the first "
    "one'", "compare birds 1 2", "metrics birds", "methods", "methods der++",
    "bases architectures", "keys list", "usage", "usage --by owner", "status", "whoami", "completion bash",
)  # fmt: skip


@pytest.mark.parametrize("command", READS)
def test_a_command_answers_one_json_document_or_lines_with_tabs(
    capsys: Said, birds: str, command: str
) -> None:
    assert read_printed_document(capsys, *shlex.split(command)) is not None
    assert run_command_line(shlex.split(command)) == 0
    out = capsys.readouterr().out
    assert out and "\x1b" not in out


def test_flipped_images_are_a_line_each(capsys: Said, birds: str) -> None:
    totals = read_printed_document(capsys, "compare", "birds", "1", "2")["totals"]
    for kind in ("negative", "positive", "both_wrong"):
        arguments = ["compare", "birds", "1", "2", "--images", kind]
        assert run_command_line(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == totals[kind]
        told = read_printed_documents(capsys, *arguments)
        assert [one["image"] for one in told] == [line.split("\t")[-1] for line in lines]
    assert run_command_line(["compare", "birds", "1", "2", "--class", "a"]) == 2


def test_a_gate_takes_a_limit_of_negative_flips(capsys: Said) -> None:
    made = read_printed_document(
        capsys, "models", "create", "careful", *MODEL, "--max-negative-flips", "0.02"
    )
    assert made["gate"]["max_negative_flips"] == 0.02
    changed = read_printed_document(
        capsys, "models", "set", "careful", "--max-negative-flips", "0.1"
    )
    assert changed["gate"]["max_negative_flips"] == 0.1


def test_keys_are_made_shown_once_and_revoked(capsys: Said) -> None:
    made = read_printed_document(
        capsys, "keys", "create", "ci", "--scope", "read", "--owner", "team"
    )
    assert made["secret"].startswith("pk_") and made["owner"] == "team"
    assert run_command_line(["keys", "create", "ci-2", "--scope", "read"]) == 0
    out, told = capsys.readouterr()
    assert out.startswith("pk_") and len(out.splitlines()) == 1 and "shown this once" in told
    assert read_printed_document(capsys, "keys", "revoke", made["id"]) == {"revoked": made["id"]}
    assert run_command_line(["keys", "list"]) == 0
    assert "revoked" in capsys.readouterr().out


def test_a_key_for_a_web_page_ends_so_many_days_from_now(capsys: Said, birds: str) -> None:
    page = [
        "page",
        "--scope",
        "predict",
        "--model",
        birds,
        "--alias",
        "production",
        "--images-per-day",
        "9",
    ]
    made = read_printed_document(capsys, "keys", "create", *page, "--expires", "30d")
    assert (made["bound"]["model"], made["bound"]["images_per_day"]) == (birds, 9)
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29.9) < left <= timedelta(days=30)
    assert run_command_line(["keys", "list"]) == 0
    assert f"predict {birds}/production" in capsys.readouterr().out
    assert run_command_line(["keys", "create", *page]) != 0
    assert "must expire" in capsys.readouterr().err


def test_changes_are_told_a_line_each(capsys: Said, birds: str) -> None:
    changes = read_printed_documents(capsys, "audit", "--limit", "5")
    assert len(changes) == 5 and {"at", "action", "object"} <= changes[0].keys()


@pytest.mark.slow
def test_production_goes_back_and_forth(capsys: Said, weeks: list[Path]) -> None:
    create_slow_model(capsys, "moves")
    for week in weeks[:2]:
        read_printed_document(capsys, "submit", "moves", str(week))
    assert run_command_line(["rollback", "moves", "--to", "1", "--reason", "worse"]) == 0
    out = capsys.readouterr().out
    assert "production of moves is at version 1." in out
    assert "Version 1 was not taught task 2 (“week-32”, classes 2 and 3)." in out
    assert "`perennial tasks relearn moves 2`" in out and "`perennial follow moves`" in out
    assert "/v1/" not in out, "who types commands is told commands"
    assert read_printed_document(capsys, "status")["attention"]
    job = read_printed_document(capsys, "tasks", "relearn", "moves", "2")
    assert job["state"] == "succeeded"
    assert read_printed_document(capsys, "follow", "moves")["follows"] is True
    assert (
        read_printed_document(capsys, "tasks", "delete-data", "moves", "1", "--yes")["deleted"]
        is True
    )
    assert read_printed_document(capsys, "models", "rm", "moves", "--yes")["name"] == "moves"


@pytest.mark.slow
def test_a_held_task_is_discarded_or_gone_on_without(capsys: Said, weeks: list[Path]) -> None:
    create_slow_model(capsys, "given-up", "--min-acc", "1")
    read_printed_document(capsys, "submit", "given-up", str(weeks[1]), status=10)
    for verb, standing in (("continue", "skipped"), ("discard", "discarded")):
        settled = read_printed_document(
            capsys, "tasks", verb, "given-up", "1", "--reason", "blurred"
        )
        assert settled["standing"] == standing


@pytest.mark.slow
def test_a_held_version_is_retried_by_the_command_that_was_told(
    capsys: Said, weeks: list[Path]
) -> None:
    create_slow_model(capsys, "as-told", "--min-acc", "1")
    job = read_printed_document(capsys, "submit", "as-told", str(weeks[1]), status=10)
    read_printed_document(capsys, "models", "set", "as-told", "--min-acc", "0")
    assert (
        read_printed_document(capsys, "jobs", "retry", job["id"], "--recipe", "{}")["outcome"]
        == "published"
    )


def test_a_version_is_downloaded_whole_or_unpacked(
    capsys: Said, birds: str, tmp_path: Path
) -> None:
    found = read_printed_document(capsys, "download", birds, "1")
    assert Path(found["path"]).stat().st_size == found["bytes"]
    assert found["path"] == "birds-1.zip" and len(found["sha256"]) == 64
    unpacked = read_printed_document(
        capsys, "download", birds, "-v", "1", "--layout", "files", "-o", "out"
    )
    names = sorted(file.name for file in Path(unpacked["path"]).iterdir())
    assert "image_file.py" in names  # the service's reader, and the modules beside it
    others = [name for name in names if not name.startswith("image_file")]
    assert others == ["README.md", "config.json", "model.safetensors"]


def test_a_download_of_two_versions_at_once_is_wrong_usage(capsys: Said, birds: str) -> None:
    assert run_command_line(["download", birds, "1", "--version", "2"]) == 2
    assert "Name one." in capsys.readouterr().err


@pytest.mark.campaign  # tests/client/test_triton.py shows the files
@pytest.mark.slow
def test_triton_reads_what_is_downloaded(capsys: Said, birds: str) -> None:
    found = read_printed_document(
        capsys, "download", birds, "--version", "1", "--layout", "triton", "-o", "repository"
    )
    root = Path("repository") / birds
    assert found["path"] == str(root)
    assert (root / "1" / "model.onnx").stat().st_size > 1_000
    assert (root / "probabilities.txt").read_text() == "0\n1\n"
    assert "dims: [ 1, 8, 8 ]" in (root / "config.pbtxt").read_text()


@pytest.mark.slow
def test_files_and_folders_are_predicted(
    capsys: Said, birds: str, archives: list[bytes], tmp_path: Path
) -> None:
    photos = tmp_path / "photos" / "inner"
    photos.mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(archives[0])) as archive:
        for number, name in enumerate(archive.namelist()[:3]):
            (photos / f"{number}.png").write_bytes(archive.read(name))
    answers = read_printed_documents(
        capsys, "predict", birds, "photos", "--version", "1", "-k", "2"
    )
    assert [Path(one["path"]).name for one in answers] == ["0.png", "1.png", "2.png"]
    assert all(set(one["probabilities"]) == {"0", "1"} for one in answers)
    (photos / "3.png").write_bytes(b"no image")
    assert run_command_line(["predict", birds, "photos", "--version", "1"]) == 1
    out, told = capsys.readouterr()
    assert len(out.splitlines()) == 3 and "3.png" in told


def test_a_folder_of_photos_is_told_of_sent_and_learned(
    capsys: Said, weeks: list[Path], tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    with zipfile.ZipFile(weeks[0]) as archive:
        for name in archive.namelist():
            file = photos / name.partition("/")[2]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(archive.read(name))
    create_slow_model(capsys, "photos")
    assert run_command_line(["submit", "photos", "photos"]) == 0
    out, told = capsys.readouterr()
    assert "64 images of 2 classes (“0” 32, “1” 32)" in told
    assert "Version 1 of photos is published, and in production." in out
    assert read_printed_document(capsys, "tasks", "show", "photos", "1")["name"] == "photos"
    (tmp_path / "empty").mkdir()
    assert run_command_line(["submit", "photos", "empty"]) == 2
    assert run_command_line(["submit", "photos", "photos", "-o", "colour=red"]) == 2


@pytest.mark.slow
def test_a_base_is_uploaded(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "base.safetensors").write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{}")
    assert (
        run_command_line(["bases", "upload", "base.safetensors", "--architecture", "small-cnn"])
        == 1
    )
    assert capsys.readouterr().err == "The file holds no tensors.\n"
    assert run_command_line(["bases", "show", "bas_none"]) == 3
    assert run_command_line(["bases", "rm", "bas_none"]) == 3
    capsys.readouterr()
    assert read_printed_document(capsys, "bases", "list") == []


def test_log_in_keeps_a_key_that_was_tried(
    capsys: Said, running: service.RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERENNIAL_URL")
    monkeypatch.delenv("PERENNIAL_API_KEY")
    assert run_command_line(["login", "--url", running.url, "--key", "pk_wrong"]) == 4
    assert (
        read_printed_document(capsys, "login", "--url", running.url, "--key", running.key)[
            "profile"
        ]
        == "default"
    )
    assert isinstance(read_printed_document(capsys, "models", "list"), list)
    assert read_printed_document(capsys, "logout") == {"profile": "default", "forgotten": True}
    assert run_command_line(["models", "list"]) in (4, 5)


ON_A_TERMINAL = (
    "models list", "models show "
        "birds", "compare birds 1 2", "metrics birds", "tasks list birds", "--help",
    "submit --help", "jobs list", "versions diff birds 1 "
        "2", "versions show birds 2", "tasks show birds 1", "status",
)  # fmt: skip
ONE_AFTER_THE_OTHER = """
from perennial.cli.main import run_command_line
for command in {}:
    print(">>>", command, "ends with", run_command_line(command.split()), flush=True)
"""


@pytest.mark.slow
def test_on_a_terminal_of_80_columns_nothing_is_wider(birds: str) -> None:
    status, shown = run_on_terminal(["-c", ONE_AFTER_THE_OTHER.format(ON_A_TERMINAL)], NO_COLOR="1")
    assert status == 0, shown
    ended = re.findall("^>>> (.*)", shown, re.MULTILINE)
    assert ended == [f"{command} ends with 0" for command in ON_A_TERMINAL]
    assert "\x1b[3" not in shown, "no colour"
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    lines = [
        line for line in shown.splitlines() if not re.search(r"^ *perennial |[0-9a-f]{64}", line)
    ]
    assert max(len(line) for line in lines) <= 80


def test_on_a_terminal_a_new_model_is_summed_up_with_the_next_command(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perennial.cli.models.models.is_stdout_terminal", lambda: True)
    assert run_command_line(["models", "create", "terns", *MODEL]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert "network small-cnn" in first and "images of 8 × 8 pixels, method" in first
    assert last == "Send a batch: perennial submit terns FOLDER"


def test_a_batch_for_a_model_that_is_not_there_names_the_command_that_creates_it(
    capsys: Said, weeks: list[Path]
) -> None:
    assert run_command_line(["submit", "zebras", str(weeks[0])]) == 3
    told = capsys.readouterr().err
    assert "There is no model 'zebras'." in told and "perennial models create zebras" in told


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_come_back(
    capsys: Said, birds: str, weeks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_keyboard_interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perennial._sync.job.JobHandle.wait", raise_keyboard_interrupt)
    assert run_command_line(["submit", birds, str(weeks[3])]) == 130
    told = capsys.readouterr().err
    assert "Come back with: perennial jobs watch job_" in told


def test_the_page_of_the_service_or_of_a_model_is_opened_and_its_address_told(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, birds: str, running: service.RunningService
) -> None:
    assert read_printed_document(capsys, "open")["url"] == f"{running.url}/ui"
    opened: list[str] = []
    monkeypatch.setattr(
        "webbrowser.open", lambda page: bool(opened.append(page))
    )  # there is no browser
    assert run_command_line(["open"]) == 0
    out, told = capsys.readouterr()
    assert out == f"{running.url}/ui\n" and "There is no browser here" in told
    assert run_command_line(["open", birds]) == 0
    assert opened == [f"{running.url}/ui", f"{running.url}/ui/models/{birds}"]
    assert run_command_line(["open", "no-such-model"]) == 3


@pytest.mark.slow
def test_on_a_terminal_a_batch_that_waits_says_why(birds: str, weeks: list[Path]) -> None:
    status, shown = run_on_terminal(
        ["-m", "perennial", "submit", birds, str(weeks[4]), "--timeout", "1"]
    )
    assert status == 14, shown
    assert "version 2 of task 2 is held by its gate" in " ".join(shown.split()), shown
    assert "`perennial status` tells what settles it." in " ".join(shown.split()), shown


def test_every_command_that_is_listed_exists() -> None:
    for name in COMMANDS:
        assert run_command_line([name, "--help"]) == 0


def test_the_help_lists_the_commands_under_a_heading() -> None:
    # In a process of its own: it imports the service's commands, which set PYTHONPATH.
    command = [sys.executable, "-m", "perennial", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client")}
    shown = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"^([A-Z]\w*):$", shown, re.MULTILINE)[:2] == ["Options", "Commands"]


def test_on_a_terminal_a_batch_is_followed_by_a_bar(capsys: Said, weeks: list[Path]) -> None:
    create_slow_model(capsys, "bar")
    status, shown = run_on_terminal(["-m", "perennial", "submit", "bar", str(weeks[0])])
    assert status == 0, shown
    assert "100%" in shown
    assert "Version 1 of bar is published, and in production." in shown
