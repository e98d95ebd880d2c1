"""Files that programs write are what these programs write now; and types that a checker can use."""

import subprocess
import sys
from pathlib import Path

import pytest

from perennial import types
from perennial.shapes import convert_from_json
from tools import client_sync, client_types, command_line

ROOT = Path(__file__).parents[2]
SAMPLE = """from perennial import Perennial

client = Perennial("key")
job = client.submit("birds", "photos.zip", recipe={"epochs": 3}).wait()
version = client.versions.retrieve("birds", job.version or 0)
label: str = client.models.retrieve("birds").name
for check in version.gate.checks:
    print(check.name, check.value, label)
"""


def test_the_types_are_those_of_the_openapi_document() -> None:
    assert client_types.TARGET.read_text() == client_types.generate_types_source(
        client_types.build_openapi_document()
    ), "run: python -m tools.client_types"


def test_the_blocking_client_is_made_of_the_one_to_await() -> None:
    wanted = client_sync.generate_blocking_modules()
    found = {
        str(file.relative_to(client_sync.TARGET)): file.read_text()
        for file in client_sync.TARGET.rglob("*.py")
        if str(file.relative_to(client_sync.TARGET)) not in client_sync.BY_HAND
    }
    assert found == wanted, "run: python -m tools.client_sync"


def test_the_client_knows_the_formats_of_all_readers() -> None:
    assert client_sync.FORMATS_COPY.read_text() == client_sync.render_formats_module(), (
        "run: python -m tools.client_sync"
    )


def test_a_union_becomes_the_shape_that_fits() -> None:
    said = {"code": "image-invalid", "detail": "It is no image."}
    found = convert_from_json(
        types.Predict,
        {
            "version": 1,
            "task": None,
            "predictions": [
                {"name": "a", "label": "cat", "probability": 0.5, "probabilities": {"cat": 0.5}},
                {"name": "b", "error": said},
            ],
        },
    )
    assert isinstance(found.predictions[0], types.Prediction)
    assert isinstance(found.predictions[1], types.Unusable)
    assert found.to_dict()["predictions"][1] == {"name": "b", "error": said}


def test_names_that_python_keeps_for_itself_are_written_back() -> None:
    found = convert_from_json(types.UnmeasuredClass, {"task": 1, "class": "owl"})
    assert found.class_ == "owl"
    assert found.to_dict() == {"task": 1, "class": "owl"}


@pytest.mark.slow
def test_a_checker_finds_a_wrong_field(tmp_path: Path) -> None:
    programs = {
        "right": SAMPLE,
        "misspelt": SAMPLE.replace("check.value", "check.valeu"),
        "mistyped": SAMPLE.replace("label: str", "label: int"),
    }
    for name, program in programs.items():
        (tmp_path / f"{name}.py").write_text(program)
    # A checker is silent about installed packages, extras that they lack among it. Those that the
    # client uses are not read, which would take four times as long.
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nfollow_imports = skip\n"
        "[mypy-perennial.*]\nfollow_imports = normal\nignore_errors = True\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini"),
            *(
                "--cache-dir",
                str(ROOT / ".mypy_cache" / "client"),
                *(f"{name}.py" for name in programs),
            ),
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "client"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    complaints = sorted(line for line in done.stdout.splitlines() if ": error: " in line)
    assert [line.partition(".py:")[0] for line in complaints] == ["misspelt", "mistyped"], (
        done.stdout
    )
    assert 'has no attribute "valeu"' in complaints[0] and "Incompatible types" in complaints[1]


def test_the_reference_of_the_command_line_is_that_of_the_code() -> None:
    assert command_line.TARGET.read_text() == command_line.render_command_reference(), (
        "run: python -m tools.command_line"
    )
