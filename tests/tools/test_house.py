"""The figures of the house, counted on small trees that were planted for it."""

from pathlib import Path

import pytest

from tools import house

FILES = {
    "pyproject.toml": "[tool.ruff]\nline-length = 60\n",
    "core/__init__.py": '"""A package."""\n',
    "core/one.py": '''"""Imports two, which imports three, which imports this for types only."""

from typing import Any

from core import two

Json = dict[str, Any]


def documented(content: Json) -> dict[str, Any]:
    """It is."""
    text = "Json and dict[str, Any] in a text are no types"
    return {"text": text, "two": two, "of": content, "this is": "a line of more than sixty"}
''',
    "core/two.py": '''"""Two."""


def bare():
    from . import three

    return three


class Bare:
    def method(self):
        def inner(): ...

    def _private(self): ...


class _Private:
    def method(self): ...
''',
    "core/three.py": '''"""Three."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.one import documented
else:
    import core.alone
''',
    "core/alone.py": "import core.four\n",
    "core/four.py": '"""Four."""\nfrom core.alone import x\n',
    "api/__init__.py": "",
}
LONG_FUNCTION = "def f():\n" + '    """It is long."""\n' + "    x = 1\n" * 38
LONG_FILE = '"""Long."""\n' + "x = 1\n" * 399


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A planted tree."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def get_module(checkout: Path, name: str) -> house.ParsedModule:
    return next(found for found in house.parse_checkout_modules(checkout) if found.name == name)


def test_lines_that_name_an_untyped_dict_are_those_of_types_and_not_of_texts(
    checkout: Path,
) -> None:
    assert house.find_untyped_json_lines(get_module(checkout, "core.one")) == [7, 10]


def test_a_circle_may_go_through_functions_and_through_imports_for_types(checkout: Path) -> None:
    edges = house.find_imports_among_modules(house.parse_checkout_modules(checkout))
    assert house.find_import_cycles(edges) == [
        ["core.one", "core.three", "core.two"],
        ["core.alone", "core.four"],
    ]


def test_without_type_only_imports_a_circle_that_needs_one_is_open(checkout: Path) -> None:
    edges = house.find_imports_among_modules(house.parse_checkout_modules(checkout))
    assert house.find_import_cycles(edge for edge in edges if not edge.for_types) == [
        ["core.alone", "core.four"]
    ]


def test_a_chain_of_imports_is_no_circle() -> None:
    chain = [
        house.ModuleImport("a", "b", False),
        house.ModuleImport("b", "c", False),
        house.ModuleImport("a", "c", False),
    ]
    assert house.find_import_cycles(chain) == []


def test_only_the_imports_where_type_checking_holds_are_for_types(checkout: Path) -> None:
    assert house.find_type_only_imports(get_module(checkout, "core.three")) == [6]


def test_a_public_name_without_a_docstring_is_found_and_a_private_one_is_not(
    checkout: Path,
) -> None:
    assert house.find_names_without_docstring(get_module(checkout, "core.two")) == [
        "core/two.py: bare",
        "core/two.py: Bare",
        "core/two.py: Bare.method",
    ]
    assert house.find_names_without_docstring(get_module(checkout, "core.alone")) == [
        "core/alone.py"
    ]
    assert house.find_names_without_docstring(get_module(checkout, "api")) == []  # it is empty


def test_the_signatures_of_an_overloaded_function_need_no_docstring(checkout: Path) -> None:
    (checkout / "core" / "three.py").write_text(
        '"""Three."""\n\n@overload\ndef f(a: int) -> int: ...\n@other\ndef g(): ...\n'
    )
    assert house.find_names_without_docstring(get_module(checkout, "core.three")) == [
        "core/three.py: g"
    ]


def test_the_limits_of_files_and_functions_are_no_faults_themselves(checkout: Path) -> None:
    (checkout / "core" / "long.py").write_text(LONG_FILE)
    (checkout / "core" / "longer.py").write_text(LONG_FILE + "x = 1\n")
    (checkout / "worker").mkdir()
    longer = LONG_FUNCTION.replace("def f", "def g") + "    x = 2\n"
    (checkout / "worker" / "f.py").write_text(LONG_FUNCTION + longer)
    figures = house.count_house_rule_violations(checkout)
    assert figures["files of more than 400 lines"] == 1
    assert figures["functions of more than 40 lines"] == 1
    assert house.find_long_functions(get_module(checkout, "worker.f")) == [("g", 41)]


def test_the_length_of_a_line_is_the_one_that_the_checkout_configures(checkout: Path) -> None:
    assert house.count_house_rule_violations(checkout)["lines of more than 60 characters"] == 2
    (checkout / "pyproject.toml").write_text("[tool.ruff]\nline-length = 92\n")
    assert house.count_house_rule_violations(checkout)["lines of more than 92 characters"] == 0


def test_every_figure_of_a_checkout_is_printed(checkout: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["house", str(checkout)])
    house.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "     2  lines that name dict[str, Any] or Json (api, core, worker)"
    assert [line[8:] for line in printed] == list(house.count_house_rule_violations(checkout))
