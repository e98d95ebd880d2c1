"""Every measurement is a program that tells how it is used."""

import ast
import runpy
import sys
from pathlib import Path

import pytest

from bench.experiment import program
from bench.service import million

ROOT = Path(__file__).parents[2]
STARTED_BY_OTHERS = {"sleeping_worker.py", "sleeping_zygote.py"}
"""`bench.service.workers` starts these."""


def find_programs() -> list[Path]:
    found = [
        path
        for path in (ROOT / "bench").rglob("*.py")
        if 'if __name__ == "__main__":' in path.read_text()
    ]
    return sorted(path for path in found if path.name not in STARTED_BY_OTHERS)


def name_module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")


@pytest.mark.parametrize("path", find_programs(), ids=name_module)
def test_a_program_says_its_own_command_and_reads_its_arguments(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert f"python -m {name_module(path)}" in (ast.get_docstring(tree) or "")
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert any(isinstance(call, ast.Attribute) and call.attr == "ArgumentParser" for call in calls)


@pytest.mark.parametrize(
    "name", ["bench.methods.training", "bench.service.soak", "bench.experiment"]
)
def test_help_tells_how_a_program_is_used(name: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, f"{name}.__main__", raising=False)
    monkeypatch.setattr(program, "ENVIRONMENT", {})  # or the process would start again with its own
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_every_get_route_is_measured_or_left_out_for_a_reason() -> None:
    assert million.list_get_routes() == {ask.route for ask in million.ASKS} | set(million.LEFT_OUT)
