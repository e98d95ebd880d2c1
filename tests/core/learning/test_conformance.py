"""Every registered method passes the conformance kit.

Each run of CI takes the scenario that a method is made for; the campaign takes its other scenarios.
"""

from collections.abc import Iterator

import conformance
import pytest

from core.learning.methods import registry

IN_ONE_SCENARIO = (conformance.gives_the_same_bits_in_processes_of_its_own,)
"""Equal bits in another process depend on what is stored, which is the same in
all scenarios.
"""

STORED_ALIKE = {
    "a-gem": "er",
    "der++": "der",
    "er-ace": "er",
    "ewc-online": "ewc",
    "l2-sp": "finetune",
    "lwf": "finetune",
    "mas": "ewc",
}
"""Method → another that stores the same kinds of parts: each run of CI takes that one to other
processes, and to what `OF_WHAT_IS_STORED` names.
"""

ONLY_IN_THE_CAMPAIGN = (
    conformance.resumes_with_convolutions_too,
    conformance.resumes_in_slices_or_says_why_not,
)
"""In each run of CI, `test_job.py` and `test_shards.py` show it with one method."""

OF_WHAT_IS_STORED = (
    conformance.takes_a_class_that_reappears,
    conformance.keeps_what_the_depth_freezes,
    conformance.learns_from_cached_features_or_says_why_not,
    conformance.merges_or_says_why_not,
    conformance.rebalances_or_says_why_not,
    conformance.resumes_with_balanced_batches,
)
"""Parts of the engine that meet what a method stores: each run of CI takes one of those that store
the same kinds of parts.
"""


def list_conformance_cases() -> Iterator[object]:
    for name, method in registry.METHODS.items():
        home = min(
            method.scenarios, key=lambda scenario: (scenario in method.scenario_warnings, scenario)
        )
        for scenario in method.scenarios:
            for check in conformance.CHECKS:
                if scenario == home or check not in IN_ONE_SCENARIO:
                    shown = name in STORED_ALIKE and check in IN_ONE_SCENARIO + OF_WHAT_IS_STORED
                    often = scenario == home and check not in ONLY_IN_THE_CAMPAIGN and not shown
                    marks = () if often else pytest.mark.campaign
                    case = f"{name}-{scenario}-{check.__name__}"
                    yield pytest.param(check, name, scenario, marks=marks, id=case)


@pytest.mark.parametrize(("check", "name", "scenario"), list(list_conformance_cases()))
def test_a_method(check, name, scenario, case_of) -> None:
    check(case_of(name, scenario))
