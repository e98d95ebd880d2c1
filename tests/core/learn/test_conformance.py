"""Every registered method, in every scenario that it names, passes the conformance kit.

The scenario that a method is made for is tested by default; in the others, what depends on the scenario most,
killing and resuming, is a slow test, and the rest belongs to the campaign. What a scenario does not touch is
tested in one: whether the bits are the same in another process depends on what is stored, and that is the
same in all.
"""

from collections.abc import Iterator
from pathlib import Path

import conformance
import pytest

from core.learn.methods import registry

IN_ONE_SCENARIO = (conformance.gives_the_same_bits_in_processes_of_its_own,)


def cases() -> Iterator[object]:
    for name, method in registry.METHODS.items():
        home = min(method.scenarios, key=lambda scenario: (scenario in method.scenario_warnings, scenario))
        for scenario in method.scenarios:
            for check in conformance.CHECKS:
                if scenario == home or check not in IN_ONE_SCENARIO:
                    slow = check is conformance.resumes_to_the_same_bits_after_a_kill
                    elsewhere = pytest.mark.slow if slow else pytest.mark.campaign
                    marks = () if scenario == home else elsewhere
                    yield pytest.param(
                        check, name, scenario, marks=marks, id=f"{name}-{scenario}-{check.__name__}"
                    )


@pytest.mark.share(4)
@pytest.mark.parametrize(("check", "name", "scenario"), list(cases()))
def test_a_method(check, name, scenario, tmp_path: Path, fork_server) -> None:
    check(conformance.Case(name, scenario, tmp_path, fork_server))
