"""`perennial serve --demo`: which directory it takes, and what it refuses."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tools import commands, serve_demo
from tools.serve_demo import MARKER, CannotServeDemo, DemoServingOptions
from worker import data_folder_lock, launcher


def run_serve(*arguments: str) -> Result:
    return CliRunner().invoke(commands.serve, arguments)


def make_demo_folder(folder: Path, text: str = '{"complete": true}') -> Path:
    """Make the directory of a demo with a file, a folder and a link in it."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (folder / "store").mkdir(parents=True)
    (folder / "store" / "blob").touch()
    (folder / "perennial.db").touch()
    (folder / "catalogue").symlink_to(elsewhere)
    (folder / MARKER).write_text(text)
    return elsewhere


def test_its_directory_is_beside_the_normal_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PERENNIAL_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert serve_demo.choose_demo_data_directory(None) == tmp_path / "perennial-demo"
    monkeypatch.setenv("PERENNIAL_DATA_DIR", "/srv/perennial")
    assert serve_demo.choose_demo_data_directory(None) == Path("/srv/perennial-demo")
    assert serve_demo.choose_demo_data_directory(Path("here")) == tmp_path / "here"


def test_a_directory_of_another_installation_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "perennial.db").write_text("models")
    outcome = run_serve("--demo", "--reset", "--no-browser", "--data-dir", str(tmp_path))
    assert outcome.exit_code == 1
    assert "is not a demo's directory: it holds 'perennial.db'" in outcome.output
    assert [path.name for path in tmp_path.iterdir()] == ["perennial.db"]
    assert (tmp_path / "perennial.db").read_text() == "models"


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "demo"
    file.touch()
    with pytest.raises(CannotServeDemo, match="is a file"):
        serve_demo.require_empty_or_demo_directory(file)


def test_what_a_killed_start_leaves_is_free_for_a_demo(tmp_path: Path) -> None:
    serve_demo.require_empty_or_demo_directory(tmp_path / "new")
    serve_demo.require_empty_or_demo_directory(tmp_path)
    (tmp_path / data_folder_lock.NAME).touch()
    serve_demo.require_empty_or_demo_directory(tmp_path)


@pytest.mark.parametrize("text", ['{"complete": false}', "", "[]", '{"complete"'])
def test_a_demo_that_was_not_completed_is_built_from_the_beginning(
    tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "demo"
    elsewhere = make_demo_folder(folder, text)
    assert serve_demo.empty_demo_directory_unless_kept(DemoServingOptions(folder))
    assert {path.name for path in folder.iterdir()} == {MARKER, data_folder_lock.NAME}
    assert json.loads((folder / MARKER).read_text()) == {"complete": False}
    assert (elsewhere / "kept").exists(), "a link is removed, not what it names"


def test_a_complete_demo_stays_unless_it_is_reset(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    make_demo_folder(folder)
    assert not serve_demo.empty_demo_directory_unless_kept(DemoServingOptions(folder))
    assert (folder / "store" / "blob").exists()
    assert serve_demo.empty_demo_directory_unless_kept(DemoServingOptions(folder, is_reset=True))
    assert not (folder / "store").exists()


def test_a_demo_that_runs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(data_folder_lock, "PATIENCE_S", 0.0)
    make_demo_folder(tmp_path / "demo")
    with data_folder_lock.lock_data_directory(tmp_path / "demo") as lock:
        assert lock is not None
        lock.store_service_address("http://127.0.0.1:8123")
        outcome = run_serve("--demo", "--reset", "--data-dir", str(tmp_path / "demo"))
    assert outcome.exit_code == 1
    assert "already serves http://127.0.0.1:8123" in outcome.output
    assert f"Use that one, or stop it: kill {os.getpid()}." in outcome.output
    assert (tmp_path / "demo" / "store" / "blob").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reset",), "--reset is an option of the demo"),
        (("--no-browser",), "--no-browser is an option of the demo"),
        (("--demo", "--host", "0.0.0.0"), "--host 0.0.0.0 cannot be served by the demo"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: tuple[str, ...], message: str) -> None:
    outcome = run_serve(*arguments)
    assert outcome.exit_code == 2
    assert message in outcome.output


def test_a_port_that_is_taken_is_replaced_unless_it_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launcher, "is_port_taken", lambda host, port: False)
    assert serve_demo.choose_default_or_free_demo_port(None) == launcher.DEFAULT_PORT
    monkeypatch.setattr(launcher, "is_port_taken", lambda host, port: True)
    assert serve_demo.choose_default_or_free_demo_port(None) not in (0, launcher.DEFAULT_PORT)
    assert serve_demo.choose_default_or_free_demo_port(8123) == 8123


def test_the_port_of_the_environment_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served: list[DemoServingOptions] = []
    monkeypatch.setattr(serve_demo, "serve_demo", lambda demo: served.append(demo) or 0)
    monkeypatch.setenv("PERENNIAL_PORT", "8123")
    run_serve("--demo", "--data-dir", str(tmp_path))
    run_serve("--demo", "--port", "8124", "--data-dir", str(tmp_path))
    assert [demo.port for demo in served] == [8123, 8124]
