"""A batch that is sent again, as a person at a command line meets it; and batches that lie in a
folder.
"""

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from small_batches import QUICK, SMALL

from perennial import GateHeld, Perennial
from perennial.cli.main import run_command_line
from tools import service

pytestmark = pytest.mark.slow

Said = pytest.CaptureFixture[str]
HOLDING: dict[str, Any] = {
    **SMALL,
    "gate": {"checks": "off", "min_acc": 1.0, "min_new_task": 1.0},
}


@pytest.fixture(autouse=True)
def logged_in(running: service.RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)


def convert_to_tar(archive: bytes) -> bytes:
    """Pack the same files, last first, as a tar.gz."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as source,
        tarfile.open(fileobj=out, mode="w:gz") as to,
    ):
        for name in reversed(source.namelist()):
            data = source.read(name)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            to.addfile(info, io.BytesIO(data))
    return out.getvalue()


def unpack_archive(archive: bytes, folder: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        source.extractall(folder)
    return folder


@pytest.fixture
def week(archives: list[bytes], tmp_path: Path) -> Path:
    (tmp_path / "week.zip").write_bytes(archives[0])
    return tmp_path / "week.zip"


@pytest.fixture
def contrary(archives: list[bytes], tmp_path: Path) -> Path:
    """A batch whose held-out images have the other label each: a version that learns it is held."""
    path = tmp_path / "contrary.zip"
    with zipfile.ZipFile(io.BytesIO(archives[0])) as source, zipfile.ZipFile(path, "w") as to:
        for name in source.namelist():
            part, label, file = name.split("/")
            to.writestr(
                f"{part}/{label if part == 'train' else 1 - int(label)}/{file}", source.read(name)
            )
    return path


def run_for_json(capsys: Said, *arguments: str) -> Any:
    """Return the JSON document that a command prints."""
    capsys.readouterr()
    assert run_command_line([*arguments, "--json"]) == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def test_a_learned_batch_is_learned_again_only_when_asked(
    capsys: Said, client: Perennial, week: Path, archives: list[bytes], tmp_path: Path
) -> None:
    client.models.create("sent-again", **SMALL)
    assert run_command_line(["submit", "sent-again", str(week)]) == 0
    (tmp_path / "other.tar.gz").write_bytes(convert_to_tar(archives[0]))
    folder = unpack_archive(archives[0], tmp_path / "unpacked")
    for batch in (week, tmp_path / "other.tar.gz", folder):
        capsys.readouterr()
        assert run_command_line(["submit", "sent-again", str(batch)]) == 0
        out, told = capsys.readouterr()
        assert (
            "sent-again has this batch: it is task 1 (learned, version 1), and is not learned again"
            in told
        )
        assert "Version 1 of sent-again is published, and in production." in out
        assert (
            run_for_json(capsys, "submit", "sent-again", str(batch), "--check")["repeats"]["task"]
            == 1
        )
        assert run_for_json(capsys, "submit", "sent-again", str(batch), "--detach")["version"] == 1
    assert len(list(client.tasks.list("sent-again"))) == 1
    assert run_command_line(["submit", "sent-again", str(week), "--again"]) == 0
    assert "is learned once more as asked" in capsys.readouterr().err
    assert [task.standing for task in client.tasks.list("sent-again")] == ["learned", "learned"]


def test_a_held_batch_ends_with_10_and_the_commands_that_settle_it(
    capsys: Said, client: Perennial, contrary: Path
) -> None:
    client.models.create("sent-held", **HOLDING)
    for detached in ([], [], ["--detach"]):
        capsys.readouterr()
        assert run_command_line(["submit", "sent-held", str(contrary), *detached]) == 10
        told = capsys.readouterr().err
        assert "perennial jobs retry job_" in told
    with pytest.raises(GateHeld):
        client.submit("sent-held", contrary).wait(120)
    other = client.submit("sent-held", contrary, recipe={**QUICK, "epochs": 2})
    assert other.repeats is not None and other.repeats.standing == "held"
    assert other.wait(120, check=False).retry_of is not None
    assert [task.number for task in client.tasks.list("sent-held")] == [1]


GIVEN_UP = {
    "rolled back": ("rollback sent-NAME --to 1 --reason worse", ["rolled_back", "held"]),
    "discarded": ("tasks discard sent-NAME 2 --reason blurred", ["discarded", "learned"]),
    "without its data": ("tasks delete-data sent-NAME 2 --yes", ["learned", "learned"]),
}
"""The command that gives the second task of a model up, and where that and the third task stand in
the end.

The gate holds a version that lacks a task that was rolled back, whatever its batch is: a warning
says so beforehand.
"""


@pytest.mark.campaign  # tests/core/tasks/test_repeated_batches.py shows it
@pytest.mark.parametrize("what", GIVEN_UP)
def test_a_batch_is_learned_where_its_task_was_given_up(
    what: str, capsys: Said, client: Perennial, archives: list[bytes], week: Path
) -> None:
    command, standings = GIVEN_UP[what]
    name = what.replace(" ", "-")
    model = f"sent-{name}"
    client.models.create(model, **SMALL)
    client.submit(model, archives[1]).wait(120)
    if what == "discarded":
        client.models.update(model, gate={"min_acc": 1.0, "min_new_task": 1.0})
    assert run_command_line(["submit", model, str(week)]) == (10 if what == "discarded" else 0)
    client.models.update(model, gate={"min_acc": 0.0, "min_new_task": 0.0})
    assert run_command_line(command.replace("NAME", name).split()) == 0
    assert "repeats" not in run_for_json(capsys, "submit", model, str(week), "--check")
    assert run_command_line(["submit", model, str(week)]) == (10 if standings[-1] == "held" else 0)
    assert [task.standing for task in client.tasks.list(model)] == ["learned", *standings]
    if standings[-1] == "learned":
        right = client.tasks.retrieve(model, 3).accuracy_when_learned
        assert f"task 3 {right:.3f}" in capsys.readouterr().out


@pytest.mark.campaign  # tests/core/tasks/test_repeated_batches.py shows it
def test_a_held_batch_that_is_promoted_counts_as_learned(
    capsys: Said, client: Perennial, contrary: Path
) -> None:
    client.models.create("sent-promoted", **HOLDING)
    assert run_command_line(["submit", "sent-promoted", str(contrary)]) == 10
    assert run_command_line(["promote", "sent-promoted", "1", "--reason", "seen"]) == 0
    assert run_command_line(["submit", "sent-promoted", str(contrary)]) == 0
    assert client.submit("sent-promoted", contrary).wait(120).version == 1


def test_a_job_beyond_its_timeout_ends_with_14_and_the_next_submit_follows_it(
    capsys: Said, client: Perennial, week: Path
) -> None:
    client.models.create("sent-slow", **SMALL)
    first = client.submit("sent-slow", week, recipe={**QUICK, "epochs": 2000})
    first.pause()
    assert run_command_line(["submit", "sent-slow", str(week), "--timeout", "0.2"]) == 14
    assert f"perennial jobs watch {first.id}" in capsys.readouterr().err
    assert client.submit("sent-slow", week).id == first.id
    first.cancel()
    assert run_command_line(["jobs", "watch", first.id]) == 13
    again = client.submit("sent-slow", week)  # of one that was cancelled nothing is left
    assert again.repeats is None and again.task is not None and again.task.number == 2
    again.wait(120)


def test_batches_in_a_folder_are_moved_by_outcome(
    capsys: Said, client: Perennial, archives: list[bytes], tmp_path: Path
) -> None:
    client.models.create("sent-inbox", **{**SMALL, "on_held": "continue"})
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.zip").write_bytes(archives[0])
    unpack_archive(archives[1], inbox / "b")
    (inbox / "c.zip").write_bytes(b"this is no archive")
    unpack_archive(archives[2], inbox / "d")
    (inbox / "d" / "train" / "link").symlink_to(tmp_path)
    (inbox / "young.zip").write_bytes(archives[3])
    for whole in ("a.zip.done", "b/.done", "c.zip.done", "d/.done"):
        (inbox / whole).touch()
    assert run_command_line(["watch-folder", str(inbox), "sent-inbox", "--once"]) in (11, 12)
    found = {
        place: sorted(path.name for path in (inbox / place).iterdir())
        for place in ("learned", "failed")
    }
    assert found == {"learned": ["a.zip", "b"], "failed": ["c.zip", "c.zip.txt", "d", "d.txt"]}
    assert "links are not followed" in (inbox / "failed" / "d.txt").read_text()
    assert sorted(
        path.name for path in inbox.iterdir() if path.is_file() and path.name[0] != "."
    ) == ["young.zip"]
    assert [task.name for task in client.tasks.list("sent-inbox")] == ["a", "b"]
    client.models.update("sent-inbox", gate={"min_acc": 1.0, "min_new_task": 1.0})
    (inbox / "a.zip").write_bytes(convert_to_tar(archives[0]))  # known, in another container
    assert (
        run_command_line(["watch-folder", str(inbox), "sent-inbox", "--once", "--quiet", "0"]) == 10
    )
    assert sorted(path.name for path in (inbox / "held").iterdir()) == [
        "young.zip",
        "young.zip.txt",
    ]
    assert "perennial jobs retry job_" in (inbox / "held" / "young.zip.txt").read_text()
    unpack_archive(archives[3], inbox / "again")
    assert (
        run_command_line(["watch-folder", str(inbox), "sent-inbox", "--once", "--quiet", "0"]) == 10
    )  # still held, and not learned
    assert (inbox / "held" / "again.txt").exists()
    assert (inbox / "learned" / "2-a.zip").exists()
    assert len(list(client.tasks.list("sent-inbox"))) == 3
    capsys.readouterr()
    assert (
        run_command_line(["watch-folder", str(inbox), "sent-inbox", "--once"]) == 0
    )  # nothing is left
    assert capsys.readouterr().out == ""
