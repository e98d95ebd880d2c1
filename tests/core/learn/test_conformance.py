"""Every registered method, in every scenario that it names, passes the conformance kit."""

from pathlib import Path

import conformance
import pytest

from core.learn import methods


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    ("name", "scenario"),
    [(name, scenario) for name, method in methods.METHODS.items() for scenario in method.scenarios],
)
def test_a_method(check, name, scenario, tmp_path: Path, fork_server) -> None:
    check(conformance.Case(name, scenario, tmp_path, fork_server))
