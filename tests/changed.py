"""Print the test files that a change reaches by imports.

    python -m tests.changed [BASE]

The change is everything in the working tree that differs from the commit BASE (default: HEAD), including
files that git does not track yet. A test file is reached when it is changed itself, or when it or a
`conftest.py` above it imports a changed file, directly or through others. A changed file that is not Python
stands for the Python files that name it, and for its folder's. A test that speaks to a service in a process of
its own does not import the service: `make test-all` runs those.
"""

import argparse
import ast
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tools import house

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (*house.FOLDERS, "client", "tests")
REACHES_ALL = {"pyproject.toml", "constraints.txt", "tests/conftest.py"}


def main() -> None:
    """Print one file per line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", nargs="?", default="HEAD", help="a commit (default: HEAD)")
    for path in find_reached_tests(ROOT, find_changed_files(ROOT, parser.parse_args().base)):
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
    outputs = [subprocess.run(c, cwd=checkout, check=True, stdout=subprocess.PIPE).stdout for c in commands]
    return {name for output in outputs for name in output.decode().split("\0") if name}


def find_reached_tests(checkout: Path, changed: Iterable[str]) -> list[str]:
    """Return the test files that changed files reach, relative to the checkout and sorted."""
    modules = read_modules(checkout)
    tests = sorted(path for path in modules if Path(path).name.startswith("test_"))
    changed = set(changed)
    if changed & REACHES_ALL:
        return tests
    importers = find_importers(modules)
    reached: set[str] = set()
    waiting = {source for path in changed for source in _find_sources(path, modules)}
    while waiting:
        path = waiting.pop()
        reached.add(path)
        next_paths = importers.get(path, set())
        if Path(path).name == "conftest.py":
            folder = f"{Path(path).parent.as_posix()}/"
            next_paths = next_paths | {test for test in tests if test.startswith(folder)}
        waiting |= next_paths - reached
    return [test for test in tests if test in reached]


def read_modules(checkout: Path) -> dict[str, house.Module]:
    """Read all Python files, by path. Modules of the client are named as they are imported."""
    paths = sorted(path for folder in FOLDERS for path in (checkout / folder).rglob("*.py"))
    modules = [house.read_module(checkout, path) for path in paths]
    return {module.path: replace(module, name=module.name.removeprefix("client.")) for module in modules}


def find_importers(modules: dict[str, house.Module]) -> dict[str, set[str]]:
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
    importers: dict[str, set[str]] = {}
    for edge in house.imports(named):
        parts = edge.target.split(".")
        targets = {".".join(parts[: end + 1]) for end in range(len(parts))}
        for target in targets:
            for path in paths_of.get(target, ()):
                importers.setdefault(path, set()).update(paths_of[edge.source] - {path})
    return importers


def _find_sources(path: str, modules: dict[str, house.Module]) -> Iterator[str]:
    """Yield the Python files that a changed file stands for: itself, or those that read it."""
    if path in modules:
        yield path
    if path.endswith(".py"):
        return
    folder = f"{Path(path).parent.as_posix()}/"
    for name, module in modules.items():
        if Path(path).name in _find_texts(module.tree) or (folder != "./" and name.startswith(folder)):
            yield name


def _find_texts(tree: ast.Module) -> set[str]:
    """Return the last path components of all string constants."""
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {text.rpartition("/")[2] for text in constants if isinstance(text, str)}


if __name__ == "__main__":
    main()
