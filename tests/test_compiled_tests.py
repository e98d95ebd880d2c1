"""The compiled files of tests are those that pytest reads, and are written once."""

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from hypothesis.internal import constants_ast

from tests.plugins import compiled_tests
from tests.plugins.compiled_tests import compile_test

constants_from_source = constants_ast._constants_from_source


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "test_one.py"
    path.write_text("def test_one():\n    assert 1 == 2\n")
    return path


def test_pytest_reads_what_is_compiled(
    file: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_test(file, pytestconfig)
    monkeypatch.setattr(rewrite, "_rewrite_test", _fail_if_called)
    hook = rewrite.AssertionRewritingHook(pytestconfig)
    module = _load_test(hook, file)
    with pytest.raises(AssertionError, match="assert 1 == 2"):
        module.test_one()


def _fail_if_called(*_: object) -> None:
    raise AssertionError("it is compiled again")


def _load_test(hook: rewrite.AssertionRewritingHook, path: Path) -> object:
    spec = spec_from_file_location("test_one", path, loader=hook)  # type: ignore[arg-type]
    assert spec is not None
    module = module_from_spec(spec)
    hook.exec_module(module)
    return module


def test_a_file_is_compiled_again_only_when_it_has_changed(
    file: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_test(file, pytestconfig)
    with monkeypatch.context() as patch:
        patch.setattr(rewrite, "_rewrite_test", _fail_if_called)
        compile_test(file, pytestconfig)
    file.write_text("def test_one():\n    assert 3 == 4\n")
    os.utime(file, (1, 1))
    compile_test(file, pytestconfig)
    module = _load_test(rewrite.AssertionRewritingHook(pytestconfig), file)
    with pytest.raises(AssertionError, match="assert 3 == 4"):
        module.test_one()  # type: ignore[attr-defined]


def test_each_process_compiles_a_share_of_its_own(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[list[Path]] = []
    monkeypatch.setattr(compiled_tests, "compile_test", lambda path, _: shares[-1].append(path))
    monkeypatch.setattr(compiled_tests, "read_constants", lambda _: None)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    session = pytest.Session.__new__(pytest.Session)
    session.config = pytestconfig
    for number in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        shares.append([])
        compiled_tests.pytest_sessionstart(session)
    files = sorted(compiled_tests.TESTS.rglob("test_*.py"))
    assert sorted(path for share in shares for path in share) == files
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_hypothesis_reads_the_constants_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "limits.py"
    path.write_text("MOST = 7654321\n")
    compiled_tests.read_constants(path)
    spec = spec_from_file_location("limits", path)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setattr(constants_ast, "_constants_from_source", _read_kept_constants)
    assert 7654321 in constants_ast.constants_from_module(module)


def _read_kept_constants(source: bytes, *, limit: bool) -> object:
    assert b"# hypothesis_version" in source, "they are looked for again"
    return constants_from_source(source, limit=limit)
