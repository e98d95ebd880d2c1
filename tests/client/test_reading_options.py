"""Options of reading a batch from the command line, against a real service: a check tells what a
submit would.
"""

import io
import json
import secrets
import zipfile
from pathlib import Path

import pytest
from PIL import Image
from small_batches import SMALL

from perennial import Perennial
from perennial.cli.main import run_command_line
from tools import service

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def logged_in(running: service.RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)


def make_png(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("L", (8, 8), 9 * number).save(out, "PNG")
    return out.getvalue()


def write_image_folder(at: Path, *folders: str, each: int = 4) -> Path:
    """Write images into folders of a folder, and a zip of it beside it."""
    with zipfile.ZipFile(f"{at}.zip", "w") as to:
        for place, folder in enumerate(folders):
            for number in range(each):
                file = at / folder / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(make_png(place * each + number))
                to.write(file, file.relative_to(at))
    return at


def run_command(capsys: Said, *arguments: str) -> tuple[int, str]:
    """Return the exit status of a command and its output, or its standard error if it fails."""
    status = run_command_line(list(arguments))
    found = capsys.readouterr()
    return status, found.err if status else found.out


@pytest.fixture
def model(running: service.RunningService) -> str:
    name = f"read-{secrets.token_hex(4)}"
    with Perennial(running.key, base_url=running.url) as client:
        client.models.create(name, **SMALL)
    return name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("as_zip", "folders", "option", "classes"),
    [
        (True, ("images",), "one_class=true", {"images": 4}),
        (False, ("train", "test"), "layout=folders", {"train": 4, "test": 4}),
        (
            False,
            ("cat/indoor", "cat/outdoor", "dog/indoor"),
            "classes=level:2",
            {"indoor": 8, "outdoor": 4},
        ),
    ],
)
def test_a_check_stops_as_the_submit_does_and_an_option_settles_both(
    capsys: Said,
    model: str,
    tmp_path: Path,
    as_zip: bool,
    folders: tuple[str, ...],
    option: str,
    classes: dict[str, int],
) -> None:
    source = str(write_image_folder(tmp_path / "batch", *folders)) + (".zip" if as_zip else "")
    checked, sent = (
        run_command(capsys, "submit", model, source, "--check"),
        run_command(capsys, "submit", model, source),
    )
    assert checked == sent and checked[0] != 0 and f"-o {option.partition(':')[0]}" in sent[1]
    status, text = run_command(capsys, "submit", model, source, "--check", "--json", "-o", option)
    assert status == 0 and json.loads(text)["classes"] == classes
    status, text = run_command(capsys, "submit", model, source, "--detach", "--json", "-o", option)
    assert status == 0 and json.loads(text)["task"]["classes"] == classes


@pytest.mark.slow
def test_the_classes_of_the_model_settle_how_a_folder_is_read(
    capsys: Said, model: str, tmp_path: Path
) -> None:
    levels = write_image_folder(tmp_path / "levels", "cat/indoor", "cat/outdoor", "dog/indoor")
    assert run_command(capsys, "submit", model, str(levels), "--check")[0] != 0
    plain = write_image_folder(tmp_path / "plain", "cat", "bird")
    assert run_command(capsys, "submit", model, str(plain), "--detach")[0] == 0
    status, text = run_command(capsys, "submit", model, str(levels), "--check", "--json")
    assert status == 0 and json.loads(text)["classes"] == {"cat": 8, "dog": 4}


def test_an_archive_has_no_options_of_other_kinds(capsys: Said, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "batch", "cat")
    for option, said in (
        ("whole=true", "has no option whole"),
        ("classes=upper", "possible are level:1"),
    ):
        status, text = run_command(capsys, "submit", "none", f"{source}.zip", "-o", option)
        assert status == 2 and said in text
