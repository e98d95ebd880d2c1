"""Figures about the readability of the code.

    python -m tools.house [DIR]

DIR is a checkout (default: this one). Every figure is counted on the syntax tree.
`docs/design/house.md` explains each one.
"""

import argparse
import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("api", "core", "worker", "tools", "bench", "migrations", "perennial_service")
LAYERS = ("api", "core", "worker")
FILE_LINES, FUNCTION_LINES = 400, 40
LINE_LENGTH = 88
"""ruff's own default, for projects that configure none."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ParsedModule:
    """A parsed Python file: dotted name, path in the checkout, lines and syntax tree."""

    name: str
    path: str
    source_lines: list[str]
    tree: ast.Module


@dataclass(frozen=True)
class ModuleImport:
    """An import of one module by another; `for_types` if it is only under `TYPE_CHECKING`."""

    source: str
    target: str
    for_types: bool


def parse_checkout_modules(checkout: Path) -> list[ParsedModule]:
    """Parse all Python modules of a checkout except tests, ordered by path."""
    paths = sorted(path for folder in FOLDERS for path in (checkout / folder).rglob("*.py"))
    return [parse_module(checkout, path) for path in paths]


def parse_module(checkout: Path, path: Path) -> ParsedModule:
    """Parse one Python file of a checkout."""
    relative = path.relative_to(checkout)
    parts = relative.with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text(encoding="utf-8")
    return ParsedModule(name, relative.as_posix(), text.splitlines(), ast.parse(text))


def find_untyped_json_lines(module: ParsedModule) -> list[int]:
    """Return the line numbers that use `dict[str, Any]` or its alias `Json` as a type."""
    line_numbers = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name | ast.Subscript) and ast.unparse(node) in (
            "Json",
            "dict[str, Any]",
        ):
            line_numbers.add(node.lineno)
    return sorted(line_numbers)


def find_type_only_imports(module: ParsedModule) -> list[int]:
    """Return the line numbers of imports under `if TYPE_CHECKING:`."""
    return sorted(
        node.lineno for node, for_types in _iterate_import_nodes(module.tree) if for_types
    )


def find_imports_among_modules(checkout: list[ParsedModule]) -> set[ModuleImport]:
    """Return the imports among modules, including those inside functions.

    `from package import name` imports the submodule `package.name` if it exists, else the package.
    """
    # Imports from other packages are no edges of this graph.
    modules_by_name = {module.name: module for module in checkout}
    return {
        ModuleImport(module.name, target, for_types)
        for module in checkout
        for node, for_types in _iterate_import_nodes(module.tree)
        for target in _find_imported_modules(module, node, modules_by_name)
        if target != module.name
    }


def _iterate_import_nodes(
    tree: ast.AST, for_types: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, for_types
        # By its end, because modules also write `typing.TYPE_CHECKING`.
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for inner in node.body:
                yield from _iterate_import_nodes(ast.Module([inner], []), True)
            # The else branch runs, so its imports are not for types.
            yield from _iterate_import_nodes(ast.Module(node.orelse, []), for_types)
        else:
            yield from _iterate_import_nodes(node, for_types)


def _find_imported_modules(
    module: ParsedModule,
    node: ast.Import | ast.ImportFrom,
    modules_by_name: Mapping[str, ParsedModule],
) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules_by_name)
        return
    base = _resolve_import_base(module, node)
    for alias in node.names:
        qualified_name = f"{base}.{alias.name}"
        yield from (
            name
            for name in [qualified_name if qualified_name in modules_by_name else base]
            if name in modules_by_name
        )


def _resolve_import_base(module: ParsedModule, node: ast.ImportFrom) -> str:
    """Resolve the module of a `from … import` statement to an absolute name."""
    # A package is its own `.`: with `__init__` appended, it resolves like a module.
    package = module.name.split(".") + ["__init__"] * module.path.endswith("/__init__.py")
    within = package[: len(package) - node.level] if node.level else []
    return ".".join([*within, *filter(None, [node.module])])


def find_import_cycles(edges: Iterable[ModuleImport]) -> list[list[str]]:
    """Return strongly connected components of at least two modules, largest first.

    Each module of a component reaches all others of it.
    """
    following: dict[str, set[str]] = {}
    for edge in edges:
        following.setdefault(edge.source, set()).add(edge.target)
    reached = {module: _find_reachable_modules(module, following) for module in following}
    components = {
        frozenset(candidate for candidate in targets if module in reached.get(candidate, ()))
        for module, targets in reached.items()
        if module in targets
    }
    return sorted(
        (sorted(component) for component in components),
        key=lambda component: (-len(component), component),
    )


def _find_reachable_modules(start: str, following: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that `start` imports directly or indirectly, itself only if among them."""
    reachable: set[str] = set()
    waiting = [start]
    while waiting:
        new = following.get(waiting.pop(), set()) - reachable
        reachable |= new
        waiting += new
    return reachable


def find_long_functions(module: ParsedModule) -> list[tuple[str, int]]:
    """Return (name, lines) of functions longer than `FUNCTION_LINES`, including the docstring."""
    lengths = [
        (node.name, _count_node_lines(node))
        for node in ast.walk(module.tree)
        if isinstance(node, Function)
    ]
    return [(name, line_count) for name, line_count in lengths if line_count > FUNCTION_LINES]


def _count_node_lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def find_names_without_docstring(module: ParsedModule) -> list[str]:
    """Return public modules, classes, functions and methods without a docstring.

    Names with a leading underscore are not public, nor are names inside a function or a private
    class. Signatures before an overloaded function are described by the function itself.
    """
    names = (
        [] if ast.get_docstring(module.tree) is not None or not module.tree.body else [module.path]
    )
    return names + [
        f"{module.path}: {name}" for name in _find_names_without_docstring_within(module.tree, "")
    ]


def _find_names_without_docstring_within(
    parent: ast.Module | ast.ClassDef, within: str
) -> Iterator[str]:
    for node in parent.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        overload = any(
            isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list
        )
        if ast.get_docstring(node) is None and not overload:
            yield within + node.name
        if isinstance(node, ast.ClassDef):
            yield from _find_names_without_docstring_within(node, f"{within}{node.name}.")


def read_maximum_line_length(checkout: Path) -> int:
    """Return the maximum line length that `pyproject.toml` sets for ruff, or the default."""
    with (checkout / "pyproject.toml").open("rb") as file:
        content = tomllib.load(file)
    return int(content.get("tool", {}).get("ruff", {}).get("line-length", LINE_LENGTH))


def count_house_rule_violations(checkout: Path) -> dict[str, int]:
    """Count the violations of each rule for source code, by name."""
    all_modules = parse_checkout_modules(checkout)
    layered = [module for module in all_modules if module.name.split(".")[0] in LAYERS]
    edges = find_imports_among_modules(all_modules)
    every, at_run = (
        find_import_cycles(edges),
        find_import_cycles(edge for edge in edges if not edge.for_types),
    )
    longest = read_maximum_line_length(checkout)
    return {
        f"lines that name dict[str, Any] or Json ({', '.join(LAYERS)})": sum(
            len(find_untyped_json_lines(module)) for module in layered
        ),
        "import circles": len(every),
        "modules in them": sum(map(len, every)),
        "import circles without type-only imports": len(at_run),
        "modules in these": sum(map(len, at_run)),
        "type-only imports": sum(len(find_type_only_imports(module)) for module in all_modules),
        f"files of more than {FILE_LINES} lines": sum(
            len(module.source_lines) > FILE_LINES for module in all_modules
        ),
        f"functions of more than {FUNCTION_LINES} lines": sum(
            len(find_long_functions(module)) for module in all_modules
        ),
        f"lines of more than {longest} characters": sum(
            len(source_line) > longest
            for module in all_modules
            for source_line in module.source_lines
        ),
        "public names without a docstring": sum(
            len(find_names_without_docstring(module)) for module in all_modules
        ),
    }


def main() -> None:
    """Print the number of violations of each source-code rule in a checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "checkout", type=Path, nargs="?", default=Path(__file__).resolve().parent.parent
    )
    for name, number in count_house_rule_violations(parser.parse_args().checkout).items():
        print(f"{number:6,}  {name}")


if __name__ == "__main__":
    main()
