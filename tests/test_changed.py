"""Tests that a change reaches, found on a small planted checkout."""

import subprocess
from pathlib import Path

import pytest

from tests.changed import (
    ROOT,
    find_changed_files,
    find_importers,
    find_reached_tests,
    read_modules,
)

FILES = {
    "core/one.py": "",
    "core/two.py": "from core import one\n",
    "core/three.py": 'TEMPLATE = "pages/page.html"\n',
    "core/data/table.json": "{}",
    "core/data/__init__.py": "",
    "client/perennial/__init__.py": "from perennial.verbs import say\n",
    "client/perennial/verbs.py": "",
    "docs/guide.md": "",
    "migrations/versions/0001_tables.py": "",
    "core/migrate.py": 'FOLDER = ROOT / "migrations" / "versions"\n',
    "core/render.py": 'FOLDER = ROOT / "api" / "templates"\n',
    "tests/helpers/builder.py": "import core.two\n",
    "tests/helpers/test_one.py": "import core.migrate\n",
    "tests/core/conftest.py": "import builder\n",
    "tests/core/test_apart.py": "",
    "tests/test_one.py": "def test(): import core.one\n",
    "tests/test_three.py": "from core.three import TEMPLATE\n",
    "tests/test_data.py": "import core.data\n",
    "tests/test_client.py": "import perennial\n",
    "tests/test_guide.py": 'GUIDE = ROOT / "docs" / "guide.md"\n',
    "tests/test_gone.py": "from core.gone import what\n",
    "tests/test_program.py": 'COMMAND = ["-m", "core.program"]\n',
    "core/program.py": "",
    "client/perennial/cli/__init__.py": "",
    "client/perennial/cli/main.py": 'COMMANDS = {"submit": "batches.submit"}\n',
    "client/perennial/cli/batches/submit.py": "from perennial.cli import rows\n",
    "client/perennial/cli/rows.py": "",
    "tests/test_command_line.py": "from perennial.cli.main import COMMANDS\n",
    "core/start.py": 'COMMAND = ["-m", "core.child.run"]\n',
    "core/child/run.py": "",
    "tests/test_start.py": "import core.start\n",
    "core/cards/parts/head.py": "",
    "core/card.py": 'FOLDER = Path(__file__).parent / "cards"\n',
    "tests/test_card.py": "import core.card\n",
    "tests/test_render.py": "import core.render\n",
    "tests/ui/conftest.py": "",
    "tests/ui/test_pages.py": "",
    "tests/test_patterns.py": "",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A planted tree."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        pytest.param(
            "core/one.py",
            ["core/test_apart.py", "test_one.py"],
            id="through a helper and a conftest",
        ),
        pytest.param("tests/test_one.py", ["test_one.py"], id="a test itself"),
        pytest.param(
            "client/perennial/verbs.py", ["test_client.py", "test_command_line.py"], id="the client"
        ),
        pytest.param("other/page.html", ["test_three.py"], id="a file that code names"),
        pytest.param(
            "api/templates/base.html", ["test_render.py", "ui/test_pages.py"], id="a template"
        ),
        pytest.param(
            "migrations/versions/0001_tables.py", ["helpers/test_one.py"], id="a migration"
        ),
        pytest.param("core/program.py", ["test_program.py"], id="a program that a test runs"),
        pytest.param(
            "client/perennial/cli/rows.py",
            ["test_command_line.py"],
            id="a command that is loaded by its name",
        ),
        pytest.param("core/child/run.py", ["test_start.py"], id="a program that code runs"),
        pytest.param("core/cards/parts/head.py", ["test_card.py"], id="code that is read as text"),
        pytest.param("core/data/table.json", ["test_data.py"], id="data of a package"),
        pytest.param("docs/guide.md", ["test_guide.py"], id="a document that a test names"),
        pytest.param("core/gone.py", ["test_gone.py"], id="a file that is gone"),
        pytest.param("NOTES.txt", [], id="a file that nothing reads"),
    ],
)
def test_a_changed_file_reaches_the_tests_that_import_it(
    checkout: Path, changed: str, tests: list[str]
) -> None:
    reached = find_reached_tests(checkout, [changed])
    assert reached == sorted(f"tests/{name}" for name in {*tests, "test_patterns.py"})


@pytest.mark.slow
def test_every_source_of_this_checkout_reaches_a_test() -> None:
    modules = read_modules(ROOT)
    waiting = {path for path in modules if Path(path).name.startswith(("test_", "conftest"))}
    imports: dict[str, set[str]] = {}
    for path, importers in find_importers(modules).items():
        for importer in importers:
            imports.setdefault(importer, set()).add(path)
    reaching: set[str] = set()
    while waiting:
        reaching.add(path := waiting.pop())
        waiting |= imports.get(path, set()) - reaching
    sources = {path for path in modules if not path.startswith(("bench/", "tests/"))}
    # No test runs it: it needs libraries that are installed for it alone.
    assert sources - reaching == {"tools/picture_kinds.py"}


def test_no_change_reaches_no_test(checkout: Path) -> None:
    assert find_reached_tests(checkout, []) == []


def test_the_settings_of_all_tests_reach_every_test(checkout: Path) -> None:
    every = sorted(name for name in FILES if Path(name).name.startswith("test_"))
    assert find_reached_tests(checkout, ["tests/conftest.py"]) == every


def test_changed_files_are_those_that_differ_from_a_commit_and_the_untracked(
    checkout: Path,
) -> None:
    def run_git(*arguments: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=checkout, check=True, capture_output=True
        )

    run_git("init")
    run_git("add", ".")
    run_git("commit", "-m", "first")
    (checkout / "core/one.py").write_text("x = 1\n")
    run_git("commit", "-am", "second")
    (checkout / "core/two.py").unlink()
    (checkout / "core/new one.py").write_text("")
    assert find_changed_files(checkout, "HEAD") == {"core/two.py", "core/new one.py"}
    assert find_changed_files(checkout, "HEAD~1") == {
        "core/one.py",
        "core/two.py",
        "core/new one.py",
    }
