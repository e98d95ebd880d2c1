"""The arrows between the parts, read from the imports; and what may never be imported or called."""

import ast
import graphlib
import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXEMPT = {Path("core/bases/hub/imagenet.py"), Path("tools/import_torchvision.py")}
"""Read one checkpoint of a known digest, and torchvision's files: each in a process of its own,
with `weights_only`.
"""

AREAS = (
    "core.statistics.near",
    "core.contract",
    "core.database",
    "core.storage",
    "core.ingest",
    "core.recipe",
    "core.export",
    "core.requests",
    "core.execution",
    "core.learning",
    "core",
    "api",
    "worker",
    "migrations",
    "tools",
    "bench",
)
SMALL = {
    "core.statistics.near",
    "core.contract",
    "core.database",
    "core.storage",
    "core.ingest",
    "core.recipe",
    "core",
}
"""`core` alone stands for its own files (settings, errors, ids, doorbell, catalogue …)."""
ARROWS = {
    "core.statistics.near": {"core.statistics.near"},
    "core.contract": {"core.contract"},
    "core": {"core", "core.contract", "core.database"},
    "core.database": {"core", "core.contract", "core.database"},
    "core.storage": {"core", "core.storage"},
    "core.ingest": {"core", "core.statistics.near", "core.contract", "core.ingest"},
    "core.recipe": {"core", "core.contract", "core.recipe"},
    "core.export": {"core", "core.contract", "core.export"},
    "core.requests": SMALL | {"core.export", "core.requests"},
    "core.execution": SMALL | {"core.export", "core.execution", "core.learning"},
    "core.learning": {"core.statistics.near", "core.contract", "core.learning"},
    "api": SMALL | {"core.export", "core.requests", "api"},
    "worker": SMALL | {"core.requests", "core.execution", "core.learning", "worker"},
    "migrations": {
        "core",
        "core.database",
        "core.storage",
        "migrations",
    },  # a first upgrade also makes the bucket
}
SCHEDULER = {"celery", "kombu"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {("torch", "load"), ("*", "extractall"), ("*", "extract"), ("joblib", "load")}


def area_of(module: str) -> str | None:
    """The longest area that a module lies in."""
    return next((a for a in AREAS if module == a or module.startswith(f"{a}.")), None)


@cache
def sources() -> tuple[Path, ...]:
    """Every Python file of ours except tests."""
    folders = ("api", "core", "worker", "migrations", "tools", "bench")
    return tuple(sorted(p for f in folders for p in (ROOT / f).rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The imports, calls and named arguments of a file: all that is looked at here."""
    wanted = ast.Import | ast.ImportFrom | ast.Call | ast.keyword
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, wanted))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import in a file, those inside functions too."""
    return tuple(_imports(path))


@cache
def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or path.is_dir()


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, base]).rstrip(".")
            for name in node.names:
                whole = f"{base}.{name.name}"
                yield node.lineno, whole if is_module(whole) else base


def test_every_import_follows_an_arrow() -> None:
    wrong = []
    for path in sources():
        here = area_of(module_of(path))
        if here not in ARROWS:
            continue
        for line, module in imports(path):
            there = area_of(module)
            if there is not None and there not in ARROWS[here]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {here} must not import {module}")
    assert not wrong, "\n".join(wrong)


def import_graph() -> dict[str, set[str]]:
    """Module → modules of ours that it imports: anywhere, so those inside functions and for types
    alone count too.

    To import a module runs the `__init__` of its packages first, so they are edges as well, except
    the packages that the importing module itself lies in: they are already being imported.
    """
    known = {module_of(path) for path in sources()}
    graph: dict[str, set[str]] = {name: set() for name in known}
    for path in sources():
        here = module_of(path)
        for _, there in imports(path):
            if there in known - {here}:
                graph[here].add(there)
            packages = itertools.accumulate(there.split(".")[:-1], "{}.{}".format)
            graph[here] |= {
                p for p in packages if p in known and not f"{here}.".startswith(f"{p}.")
            }
    return graph


def test_no_import_goes_in_a_circle() -> None:
    graphlib.TopologicalSorter(import_graph()).prepare()  # the error names a circle


def test_only_worker_and_work_know_the_learning_code() -> None:
    knowing = {area for area, targets in ARROWS.items() if "core.learning" in targets}
    assert knowing == {"core.learning", "core.execution", "worker"}


def test_only_the_doorbell_sends_to_celery_and_only_lazily() -> None:
    wrong = []
    for path in sources():
        name = path.relative_to(ROOT)
        if name.parts[0] == "worker":
            continue
        for line, module in imports(path):
            if module.partition(".")[0] in SCHEDULER and name.parts[0] in ("api", "core"):
                top = {
                    n.lineno for n in tree(path).body if isinstance(n, ast.Import | ast.ImportFrom)
                }
                if name != Path("core/jobs/doorbell.py") or line in top:
                    wrong.append(f"{name}:{line}: imports {module}")
    assert not wrong, "\n".join(wrong)


def test_nothing_reads_a_pickle_or_extracts_an_archive() -> None:
    wrong = []
    for path in sources():
        name = path.relative_to(ROOT)
        if name in EXEMPT:
            continue
        for line, module in imports(path):
            if module.partition(".")[0] in FORBIDDEN_MODULES:
                wrong.append(f"{name}:{line}: imports {module}")
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
                call = node.func.attr
                if (owner, call) in FORBIDDEN_CALLS or ("*", call) in FORBIDDEN_CALLS:
                    wrong.append(f"{name}:{node.lineno}: calls {owner}.{call}")
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                value = node.value
                if not (isinstance(value, ast.Constant) and value.value is False):
                    wrong.append(f"{name}:{node.value.lineno}: allow_pickle is not False")
    assert not wrong, "\n".join(wrong)


def test_exempted_files_load_weights_only() -> None:
    for name in EXEMPT:
        calls = [
            node
            for node in nodes(ROOT / name)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "load"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "torch"
        ]
        assert len(calls) == 1
        given = {k.arg: k.value for k in calls[0].keywords}
        safe = given.get("weights_only")
        assert isinstance(safe, ast.Constant) and safe.value is True


@pytest.mark.parametrize(
    ("module", "area"),
    [
        ("core.errors", "core"),
        ("core.database.tables", "core.database"),
        ("api", "api"),
        ("apix", None),
    ],
)
def test_a_module_lies_in_its_longest_area(module: str, area: str | None) -> None:
    assert area_of(module) == area
