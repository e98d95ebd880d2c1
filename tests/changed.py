"""Print the test files that a change reaches by imports.

    python -m tests.changed [BASE]

The change is everything in the working tree that differs from the commit BASE (default: HEAD),
including files that git does not track yet. A test file is reached when it is changed itself, or
when it or a `conftest.py` above it imports a changed file, directly or through others. A test that
names a module in a string, as for `python -m`, imports it too. A Python file that no other imports
(a program, a command that is loaded by its name, code that is read as text) counts as imported by
the files that name it or, if none does, its folder. A changed file that is not Python, or a
migration, stands for the Python files that name it or its folder, and for its folder's. Tests of
`READS_THE_TREE` are reached by every change.

A test that speaks to a service in a process of its own does not import the service: `make test-all`
runs those. Only changes of pages reach the tests that look at them so.
"""

import argparse
import ast
import gc
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from tools import house

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (*house.FOLDERS, "client", "tests")
REACHES_ALL = {"pyproject.toml", "constraints.txt", "tests/conftest.py"}
READS_THE_TREE = {
    "tests/docs/test_links.py",
    "tests/test_architecture.py",
    "tests/test_oracles.py",
    "tests/test_patterns.py",
    "tests/test_walks.py",
}
"""Test files that read the whole checkout without importing it; together they take seconds."""
PAGES = ("api/pages/", "api/static/", "api/templates/")
TESTS_OF_PAGES = "tests/ui/conftest.py"
"""The file that stands for the tests of pages in a browser when a file below `PAGES` changes."""


def main() -> None:
    """Print one file per line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", nargs="?", default="HEAD", help="a commit (default: HEAD)")
    base = parser.parse_args().base
    gc.disable()  # the syntax trees are many objects and no garbage
    try:
        changed = find_changed_files(ROOT, base)
    except subprocess.CalledProcessError:
        parser.exit(2, f"git does not know the commit {base!r}\n")
    for path in find_reached_tests(ROOT, changed):
        print(path)


def find_changed_files(checkout: Path, base: str) -> set[str]:
    """Return the files that differ from a commit, relative to the checkout.

    Raises:
        subprocess.CalledProcessError: git does not know the commit.
    """
    commands = [
        ["git", "diff", "--name-only", "--no-renames", "-z", base],
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
    ]
    outputs = [
        subprocess.run(c, cwd=checkout, check=True, stdout=subprocess.PIPE).stdout for c in commands
    ]
    return {name for output in outputs for name in output.decode().split("\0") if name}


def find_reached_tests(checkout: Path, changed: Iterable[str]) -> list[str]:
    """Return the test files that changed files reach, relative to the checkout and sorted."""
    modules = read_modules(checkout)
    changed = set(changed)
    if changed & REACHES_ALL:
        return list_tests(modules)
    modules |= {
        path: _build_empty_module(path) for path in changed - modules.keys() if path.endswith(".py")
    }
    starts = {source for path in changed for source in _find_sources(path, modules)}
    starts |= READS_THE_TREE if changed else set()
    return find_tests_of(starts, find_importers(modules), list_tests(modules))


def list_tests(modules: dict[str, house.ParsedModule]) -> list[str]:
    """Return the paths of test files, sorted."""
    return sorted(path for path in modules if _is_test(path))


def find_tests_of(starts: set[str], importers: dict[str, set[str]], tests: list[str]) -> list[str]:
    """Return those of the test files that import one of `starts`, directly or through others."""
    waiting = set(starts)
    reached: set[str] = set()
    while waiting:
        path = waiting.pop()
        reached.add(path)
        next_paths = importers.get(path, set())
        if Path(path).name == "conftest.py":
            folder = f"{Path(path).parent.as_posix()}/"
            next_paths = next_paths | {test for test in tests if test.startswith(folder)}
        waiting |= next_paths - reached
    return [test for test in tests if test in reached]


def read_modules(checkout: Path) -> dict[str, house.ParsedModule]:
    """Read all Python files, by path. Modules of the client are named as they are imported."""
    paths = sorted(path for folder in FOLDERS for path in (checkout / folder).rglob("*.py"))
    modules = [house.parse_module(checkout, path) for path in paths]
    return {
        module.path: replace(module, name=module.name.removeprefix("client.")) for module in modules
    }


def _build_empty_module(path: str) -> house.ParsedModule:
    """Return an empty module for a deleted one, which others may still import."""
    name = (
        path.removeprefix("client/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    return house.ParsedModule(name, path, [], ast.Module([], []))


def find_importers(modules: dict[str, house.ParsedModule]) -> dict[str, set[str]]:
    """Map each path to the paths that import it, the `__init__.py` of its packages included."""
    # Helpers of tests are imported by their last name too: their folders are on `sys.path`.
    helpers = [
        replace(module, name=module.name.rpartition(".")[2])
        for path, module in modules.items()
        if path.startswith("tests/") and Path(path).name not in ("__init__.py", "conftest.py")
    ]
    named = [*modules.values(), *helpers]
    paths_of: dict[str, set[str]] = {}
    for module in named:
        paths_of.setdefault(module.name, set()).add(module.path)
    path_of = {module.name: module.path for module in modules.values()}
    edges = {
        (edge.source, edge.target)
        for edge in house.find_imports_among_modules(named)
        if edge.source in path_of
    }
    edges |= {
        (module.name, name)
        for path, module in modules.items()
        if _is_test(path) or path == "tests/conftest.py"
        for name in _find_texts(module.tree) & path_of.keys()
        if "." in name
    }
    importers: dict[str, set[str]] = {}
    for source, target in edges:
        parts = target.split(".")
        targets = {".".join(parts[: end + 1]) for end in range(len(parts))}
        for path in {path for name in targets for path in paths_of.get(name, ())} - {
            path_of[source]
        }:
            importers.setdefault(path, set()).add(path_of[source])
    naming = _map_names_to_naming_paths(modules)
    for path, module in modules.items():
        if path not in importers and not _is_test(path) and Path(path).name != "conftest.py":
            named = naming.get(module.name, set()) | naming.get(Path(path).name, set())
            importers[path] = (named or _find_paths_naming_folder(path, naming)) - {path}
    return importers


def _find_paths_naming_folder(path: str, naming: dict[str, set[str]]) -> set[str]:
    """Return the files that name the folder of a file, or else the nearest one above it."""
    folders = (f"/{folder.name}" for folder in Path(path).parents)
    return next((naming[folder] for folder in folders if folder in naming), set())


def _map_names_to_naming_paths(modules: dict[str, house.ParsedModule]) -> dict[str, set[str]]:
    """Map names in strings to the files that have them: names of modules, also relative to the
    package of the file, names of files, and names of folders after `/`.
    """
    naming: dict[str, set[str]] = {}
    for path, module in modules.items():
        package = module.name.rpartition(".")[0]
        texts = _find_texts(module.tree)
        relative = {f"{package}.{text}" for text in texts if "." in text}
        for name in texts | relative | {f"/{folder}" for folder in _find_folders(module.tree)}:
            naming.setdefault(name, set()).add(path)
    return naming


def _is_test(path: str) -> bool:
    return Path(path).name.startswith("test_")


def _find_sources(path: str, modules: dict[str, house.ParsedModule]) -> Iterator[str]:
    """Yield the Python files that a changed file stands for: itself, or those that read it."""
    if path in modules:
        yield path
    if path.startswith(PAGES):
        yield TESTS_OF_PAGES
    if path.endswith(".py") and not path.startswith("migrations/"):
        return
    folder = Path(path).parent
    for name, module in modules.items():
        is_beside = Path(name).parent == folder != Path()
        is_named = Path(path).name in _find_texts(module.tree) or folder.name in _find_folders(
            module.tree
        )
        if is_beside or is_named:
            yield name


@cache
def _find_texts(tree: ast.Module) -> set[str]:
    """Return the last path components of all string constants, without the attribute of
    `module:attribute`.
    """
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {
        text.rpartition("/")[2].partition(":")[0] for text in constants if isinstance(text, str)
    }


@cache
def _find_folders(tree: ast.Module) -> set[str]:
    """Return the last components of the paths that are put together, as in
    `ROOT / "docs" / "reference"`.
    """
    divisions = (
        n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)
    )
    return {str(node.right.value) for node in divisions if isinstance(node.right, ast.Constant)} - {
        "tests"
    }


if __name__ == "__main__":
    main()
