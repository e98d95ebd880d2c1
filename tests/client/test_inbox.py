"""Batches in a folder: which are whole, where they go, and that one process has the folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perennial.cli.batches import inbox
from perennial.errors import ConfigError

LONG_AGO = 1_000_000_000


def write_image_file(folder: Path, name: str) -> Path:
    """Write an image file at a path below a folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"image")
    return path


def list_batch_names(folder: Path) -> list[str]:
    return [one.path.name for one in inbox.find_batches_in_folder(folder)]


def test_folders_and_archives_are_batches_and_all_else_is_left_alone(tmp_path: Path) -> None:
    for name in (
        "b.zip",
        "a/cat/1.png",
        "c.tar.gz",
        "notes.txt",
        ".hidden/x.png",
        "learned/x/1.png",
        "held/y",
        "failed/z",
    ):
        write_image_file(tmp_path, name)
    (tmp_path / "link.zip").symlink_to(tmp_path / "b.zip")
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    assert list_batch_names(tmp_path) == ["a", "b.zip", "c.tar.gz"]


def test_a_batch_is_whole_when_it_was_not_changed_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image_file(tmp_path, "a/cat/1.png")
    (batch,) = inbox.find_batches_in_folder(tmp_path)
    for later, is_whole in ((59, False), (60, True)):
        now = batch.changed_at + later
        monkeypatch.setattr("time.time", lambda now=now: now)
        assert batch.is_batch_complete(60) is is_whole


def test_a_file_that_is_copied_with_its_old_time_is_new(tmp_path: Path) -> None:
    os.utime(write_image_file(tmp_path, "a.zip"), (LONG_AGO, LONG_AGO))
    (batch,) = inbox.find_batches_in_folder(tmp_path)
    assert batch.changed_at > LONG_AGO and not batch.is_batch_complete(3600)


@pytest.mark.parametrize(("name", "mark"), [("a/cat/1.png", "a/.done"), ("a.zip", "a.zip.done")])
def test_a_batch_is_whole_once_it_is_marked(name: str, mark: str, tmp_path: Path) -> None:
    write_image_file(tmp_path, name)
    (before,) = inbox.find_batches_in_folder(tmp_path)
    write_image_file(tmp_path, mark)
    (after,) = inbox.find_batches_in_folder(tmp_path)
    assert (before.is_batch_complete(3600), after.is_batch_complete(3600)) == (False, True)


@pytest.mark.parametrize("change", ["a new file", "another size", "a file that went"])
def test_a_change_is_seen(change: str, tmp_path: Path) -> None:
    image = write_image_file(tmp_path, "a/cat/1.png")
    write_image_file(tmp_path, "a/cat/2.png")
    (before,) = inbox.find_batches_in_folder(tmp_path)
    if change == "a new file":
        write_image_file(tmp_path, "a/dog/1.png")
    elif change == "another size":
        image.write_bytes(b"another image")
    else:
        image.unlink()
    assert inbox.read_present_state_of_batch_files(before.path) != before


def test_a_link_in_a_batch_is_found_and_not_followed(tmp_path: Path) -> None:
    secret = write_image_file(tmp_path.parent, "secret/1.png")
    write_image_file(tmp_path, "a/cat/1.png")
    (tmp_path / "a" / "dog").symlink_to(secret.parent)
    (batch,) = inbox.find_batches_in_folder(tmp_path)
    assert batch.problem == "It holds a link, a/dog: links are not followed."
    assert not any("1.png" in name and "dog" in name for name, *_ in batch.state)


def test_a_batch_is_put_away_with_its_reason_and_never_over_another(tmp_path: Path) -> None:
    for expected in ("a", "2-a", "3-a"):
        batch = write_image_file(tmp_path, "a/cat/1.png").parent.parent
        assert (
            inbox.move_batch_to_outcome_folder(batch, inbox.HELD, "It forgot.")
            == tmp_path / "held" / expected
        )
        assert (tmp_path / "held" / f"{expected}.txt").read_text() == "It forgot.\n"
    assert list_batch_names(tmp_path) == []


def test_the_mark_of_an_archive_goes_with_it(tmp_path: Path) -> None:
    archive, mark = write_image_file(tmp_path, "a.zip"), write_image_file(tmp_path, "a.zip.done")
    inbox.move_batch_to_outcome_folder(archive, inbox.LEARNED)
    assert not mark.exists() and (tmp_path / "learned" / "a.zip").exists()


def test_a_file_named_like_the_mark_of_a_folder_stays(tmp_path: Path) -> None:
    batch, other = (
        write_image_file(tmp_path, "week/cat/1.png").parent.parent,
        write_image_file(tmp_path, "week.done"),
    )
    assert inbox.move_batch_to_outcome_folder(batch, inbox.LEARNED) == tmp_path / "learned" / "week"
    assert other.exists()


def test_a_batch_that_is_nested_too_deeply_blocks_no_other(tmp_path: Path) -> None:
    write_image_file(tmp_path, "good.zip")
    (tmp_path / "deep").mkdir()
    at = os.open(tmp_path / "deep", os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=at)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    deep, good = inbox.find_batches_in_folder(tmp_path)
    assert deep.problem is not None and "cannot be read" in deep.problem and good.problem is None


def test_nothing_is_put_behind_a_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    inside = tmp_path / "inbox"
    batch = write_image_file(inside, "a.zip")
    (inside / "learned").symlink_to(other)
    with pytest.raises(ConfigError, match="is no folder of its own"):
        inbox.move_batch_to_outcome_folder(batch, inbox.LEARNED)
    assert batch.exists() and not list(other.iterdir())


HOLD = (
    "import sys; from pathlib import Path; from perennial.cli.batches import inbox\n"
    "with inbox.lock_watched_folder(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def hold_folder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the folder."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_one_process_has_a_folder_and_a_dead_one_has_it_no_more(tmp_path: Path) -> None:
    with hold_folder(tmp_path) as process:
        with (
            pytest.raises(inbox.WatchedFolderInUseError, match=f"process {process.pid} of"),
            inbox.lock_watched_folder(tmp_path),
        ):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        with inbox.lock_watched_folder(tmp_path):
            pass


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    target = write_image_file(tmp_path, "precious")
    (tmp_path / inbox.LOCK).symlink_to(target)
    with pytest.raises(ConfigError), inbox.lock_watched_folder(tmp_path):
        pass
    assert target.read_bytes() == b"image"
