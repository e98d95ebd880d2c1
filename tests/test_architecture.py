"""The arrows between the parts, read from the imports; and what may never be imported or called."""

import ast
import gc
import graphlib
import itertools
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "client" / "perennial"
EXEMPT = {Path("core/bases/hub/imagenet.py"), Path("tools/import_torchvision.py")}
"""Read one checkpoint of a known digest, and torchvision's files: each in a process of its own,
with `weights_only`.
"""

ROOMS = {
    "core": "",
    "core.text": "",
    "core.contract": "",
    "core.statistics": "contract",
    "core.learning": "contract statistics text",
    "core.packaged": "contract",
    "core.files": "core",
    "core.database": "core contract text",
    "core.processes": "core database files",
    "core.storage": "core files",
    "core.ingest": "core contract files processes statistics",
    "core.export": "core contract files",
    "core.recipe": "core contract packaged processes text",
    "core.lineage": "core contract database packaged statistics text",
    "core.retention": "core database storage",
    "core.requests": "core contract database retention storage",
    "core.usage": "core contract database requests",
    "core.jobs": "core contract database export lineage requests retention storage usage",
    "core.uploads": "core contract database requests storage usage",
    "core.webhooks": "core contract database requests",
    "core.bases": (
        "core contract database files jobs lineage packaged processes recipe requests "
        "retention storage text usage"
    ),
    "core.bases.hub": "core contract files ingest learning packaged processes",
    "core.admission": "core bases contract database lineage recipe requests",
    "core.versions": (
        "core contract database export files jobs lineage requests retention statistics storage usage"
    ),
    "core.trials": "core contract database jobs recipe requests",
    "core.tasks": (
        "core admission bases contract database ingest jobs lineage recipe requests "
        "retention storage trials uploads usage versions"
    ),
    "core.models": (
        "core admission bases contract database files ingest lineage packaged recipe "
        "requests retention storage tasks trials usage versions"
    ),
    "core.comparisons": (
        "core contract database ingest requests retention statistics storage versions"
    ),
    "core.predictions": "core contract database lineage requests retention storage versions",
    "core.predictions.helper": "core contract ingest learning processes",
    "core.keys": "core contract database export ingest requests versions",
    "core.rebase": (
        "core admission bases comparisons contract database ingest jobs keys lineage "
        "models packaged recipe requests retention statistics storage usage"
    ),
    "core.edits": (
        "core admission contract database ingest jobs lineage requests retention storage usage"
    ),
    "core.execution": (
        "core bases bases.hub contract database edits export files ingest jobs lineage "
        "packaged processes recipe retention storage text trials usage versions"
    ),
    "core.publishing": (
        "core contract database edits execution files ingest jobs lineage packaged recipe retention "
        "statistics storage usage"
    ),
    "core.scheduling": "core contract database execution jobs lineage trials",
    "core.upkeep": (
        "core bases.hub contract database execution files retention scheduling storage "
        "uploads webhooks"
    ),
    "api": (
        "core admission bases comparisons contract database edits export files ingest jobs "
        "keys lineage models packaged predictions processes rebase recipe "
        "requests retention storage tasks text trials uploads usage versions webhooks"
    ),
    "worker": (
        "core contract database execution files ingest jobs keys learning processes "
        "publishing recipe scheduling storage trials upkeep uploads usage webhooks"
    ),
    "migrations": "core database files storage",
}
"""Each room, and the rooms that it may import beside itself, without their `core.`.

`core` stands for its own files (settings, errors, ids …). The rooms are in an order in which each
may only import earlier ones, but for `tools`, `bench`, `perennial_service` and tests, which import
what they like.
`docs/design/house.md` says what each is for.
"""
AREAS = (*sorted(ROOMS, key=len, reverse=True), "tools", "bench", "perennial_service")
TORCH = {"core.learning", "core.bases.hub", "core.predictions.helper", "worker"}
"""Rooms whose modules may import the learning code, and torch with it."""
WITHOUT_DATABASE = {"core.learning", "core.ingest", "core.export", "core.recipe", "core.contract"}
"""Rooms that know neither database nor store."""
SHARED = (
    "perennial.characters",
    "perennial.formats",
    "perennial.public_address",
    "perennial.reading_rules",
    "perennial.steps",
)
"""Modules of the client that the service imports too, so that both follow the same rules."""
SCHEDULER = {"celery", "kombu"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {("torch", "load"), ("*", "extractall"), ("*", "extract"), ("joblib", "load")}


def find_area(module: str) -> str | None:
    """Return the longest area that a module lies in."""
    return next((a for a in AREAS if module == a or module.startswith(f"{a}.")), None)


@pytest.fixture(scope="module", autouse=True)
def without_collection() -> Iterator[None]:
    """Collect no garbage: syntax trees are many objects and no garbage."""
    gc.disable()
    yield
    for kept in (list_nodes, parse_tree):
        kept.cache_clear()
    gc.enable()


@cache
def list_sources() -> tuple[Path, ...]:
    """Return all our Python files except tests."""
    folders = ("api", "core", "worker", "migrations", "tools", "bench", "perennial_service")
    return tuple(sorted(p for f in folders for p in (ROOT / f).rglob("*.py")))


@cache
def parse_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def list_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return the imports, calls and named arguments of a file, which are all that is checked here."""
    wanted = {ast.Import, ast.ImportFrom, ast.Call, ast.keyword}
    return tuple(node for node in ast.walk(parse_tree(path)) if type(node) in wanted)


@cache
def list_shared_sources() -> tuple[Path, ...]:
    """Return the files of the client that the service imports too."""
    return tuple(p for p in sorted(CLIENT.rglob("*.py")) if is_shared(get_module_name(p)))


def is_shared(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in SHARED)


def get_module_name(path: Path) -> str:
    root = CLIENT.parent if path.is_relative_to(CLIENT) else ROOT
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def list_imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Return (line, module) of every import in a file, including those inside functions."""
    return tuple(_walk_imports(path))


@cache
def is_module(name: str) -> bool:
    paths = [root / name.replace(".", "/") for root in (ROOT, CLIENT.parent)]
    return any(path.with_suffix(".py").exists() or path.is_dir() for path in paths)


def _walk_imports(path: Path) -> Iterator[tuple[int, str]]:
    package = (
        get_module_name(path)
        if path.name == "__init__.py"
        else get_module_name(path).rpartition(".")[0]
    )
    for node in list_nodes(path):
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


@cache
def list_arrows() -> dict[str, set[str]]:
    """Return each room with the rooms that it may import."""
    return {
        room: {name if name == "core" else f"core.{name}" for name in names.split()}
        for room, names in ROOMS.items()
    }


def test_every_import_follows_an_arrow() -> None:
    wrong = []
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in list_sources():
        here = find_area(get_module_name(path))
        if here is None or here not in ROOMS:
            continue
        for line, module in list_imports(path):
            there = find_area(module)
            if there is not None and there != here:
                used[here].add(there)
                if there not in list_arrows()[here]:
                    name = path.relative_to(ROOT)
                    wrong.append(f"{name}:{line}: {here} must not import {module}")
    assert not wrong, "\n".join(wrong)
    assert used == list_arrows(), "a room names one that it does not import"


def test_the_service_imports_only_the_shared_modules_of_the_client() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {module}"
        for path in list_sources()
        if path.relative_to(ROOT).parts[0] in ("api", "core", "worker", "migrations")
        for line, module in list_imports(path)
        if module.partition(".")[0] == "perennial" and not is_shared(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_shared_modules_import_only_the_standard_library_and_each_other() -> None:
    assert {name for name in SHARED if is_module(name)} == set(SHARED)
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: imports {module}"
        for file in list_shared_sources()
        for line, module in list_imports(file)
        if module.partition(".")[0] not in sys.stdlib_module_names and not is_shared(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_core_is_a_room() -> None:
    folders = {f"core.{path.parent.name}" for path in (ROOT / "core").glob("*/__init__.py")}
    assert folders <= set(ROOMS)


def test_rooms_import_only_rooms_before_them() -> None:
    names = list(ROOMS)
    later = [
        (room, other)
        for room, targets in list_arrows().items()
        for other in targets
        if names.index(other) > names.index(room)
    ]
    assert later == []


def test_no_folder_of_modules_has_more_than_twenty_files() -> None:
    folders = {
        folder
        for folder in (path.parent for path in (*list_sources(), *list_shared_sources()))
        if folder.relative_to(ROOT).parts[0] in ("api", "client", "core", "worker", "tools")
        and folder != CLIENT
    }
    counts = {str(folder.relative_to(ROOT)): len([*folder.glob("*.py")]) for folder in folders}
    full = {folder: count for folder, count in counts.items() if count > 20}
    assert full == {}, "use the file of the same noun, or move related files to a folder below"


def test_the_design_draws_these_rooms() -> None:
    design = (ROOT / "docs" / "design" / "house.md").read_text()
    rows = re.findall(r"^\| `([\w/]+)` \|[^|]*\| ([^|]*) \|$", design, re.MULTILINE)
    drawn = {name.replace("/", "."): rooms.replace("/", ".") for name, rooms in rows}
    expected = {room: rooms or "nothing" for room, rooms in ROOMS.items()}
    assert {room: drawn.get(room) for room in ROOMS} == expected


@cache
def build_import_graph() -> dict[str, set[str]]:
    """Return each module with the modules of ours that it imports anywhere.
    Imports inside functions and for types alone also count.

    To import a module runs the `__init__` of its packages first, so they are edges as well,
    except the packages that the importing module itself lies in: they are already being
    imported.
    """
    sources = (*list_sources(), *list_shared_sources())
    known = {get_module_name(path) for path in sources}
    graph: dict[str, set[str]] = {name: set() for name in known}
    for path in sources:
        here = get_module_name(path)
        for _, there in list_imports(path):
            if there in known and there != here:
                graph[here].add(there)
            packages = itertools.accumulate(there.split(".")[:-1], "{}.{}".format)
            graph[here] |= {
                p for p in packages if p in known and not f"{here}.".startswith(f"{p}.")
            }
    return graph


def test_no_import_goes_in_a_circle() -> None:
    graphlib.TopologicalSorter(build_import_graph()).prepare()  # the error names a circle


def test_only_the_worker_and_processes_with_torch_know_the_learning_code() -> None:
    knowing = {room for room, targets in list_arrows().items() if "core.learning" in targets}
    assert knowing | {"core.learning"} == TORCH


def test_the_api_reaches_no_learning_code() -> None:
    graph = build_import_graph()
    reached: set[str] = set()
    waiting = [module for module in graph if find_area(module) == "api"]
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting += new
    assert {module for module in reached if find_area(module) in TORCH} == set()


def test_learning_reading_and_documents_know_neither_database_nor_store() -> None:
    knowing = {
        room
        for room, targets in list_arrows().items()
        if targets & {"core.database", "core.storage"}
    }
    assert knowing & WITHOUT_DATABASE == set()


def test_only_the_doorbell_sends_to_celery_and_only_lazily() -> None:
    wrong = []
    for path in list_sources():
        name = path.relative_to(ROOT)
        if name.parts[0] == "worker":
            continue
        for line, module in list_imports(path):
            if module.partition(".")[0] in SCHEDULER and name.parts[0] in ("api", "core"):
                top = {node.lineno for node in parse_tree(path).body}
                if name != Path("core/jobs/worker_notification.py") or line in top:
                    wrong.append(f"{name}:{line}: imports {module}")
    assert not wrong, "\n".join(wrong)


def test_nothing_reads_a_pickle_or_extracts_an_archive() -> None:
    wrong = []
    for path in (*list_sources(), *CLIENT.rglob("*.py")):
        name = path.relative_to(ROOT)
        if name in EXEMPT:
            continue
        for line, module in list_imports(path):
            if module.partition(".")[0] in FORBIDDEN_MODULES:
                wrong.append(f"{name}:{line}: imports {module}")
        for node in list_nodes(path):
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
            for node in list_nodes(ROOT / name)
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
        ("core.bases.hub.download", "core.bases.hub"),
        ("api", "api"),
        ("apix", None),
    ],
)
def test_a_module_lies_in_its_longest_area(module: str, area: str | None) -> None:
    assert find_area(module) == area
