"""Every registered method, in every scenario that it names, passes the conformance kit.

The scenario that a method is made for is tested by default; the others are slow tests.
"""

from collections.abc import Iterator
from pathlib import Path

import conformance
import pytest

from core.learn.methods import registry


def pairs() -> Iterator[object]:
    for name, method in registry.METHODS.items():
        home = min(method.scenarios, key=lambda scenario: (scenario in method.scenario_warnings, scenario))
        for scenario in method.scenarios:
            yield pytest.param(name, scenario, marks=() if scenario == home else pytest.mark.slow)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("name", "scenario"), list(pairs()))
def test_a_method(check, name, scenario, tmp_path: Path, fork_server) -> None:
    check(conformance.Case(name, scenario, tmp_path, fork_server))
