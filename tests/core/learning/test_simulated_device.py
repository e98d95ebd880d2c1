"""On an accelerator no method mixes devices, and steps do not wait for it
(`kit/simulated_device.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conformance import SMALL

from core.learning.methods import registry

BLOCKING = {"a-gem": 1.0, "gem": 1.0}
"""Calls for which a GPU waits, per training step after a task's first; of methods that are not
named, none.
"""

OPERATIONS = {
    "torch.ones(6) + x": "raises",
    "x + torch.ones(6)": "raises",
    "x.index_select(0, torch.tensor([1]))": "raises",
    "torch.ones(6)[x.long()]": "raises",
    "x.normal_(generator=torch.Generator())": "raises",
    "x + torch.tensor(2.0)": 0,
    "x.masked_fill(mask, 0)": 0,
    "x[1:3].sum() * 2": 0,
    "torch.zeros(3, device='sim')": 0,
    "torch.ones(2).to('sim', non_blocking=True)": 0,
    "torch.ones(2).to('sim')": 1,
    "torch.tensor([1.0], device='sim')": 1,
    "x[torch.tensor([0])]": 1,
    "x[mask]": 1,
    "x.sum().item()": 1,
    "float(x.sum())": 1,
    "bool(mask.any())": 1,
    "x.tolist()": 1,
    "x.cpu()": 1,
    "x.to('cpu')": 1,
    "mask.nonzero()": 1,
    "x.unique()": 1,
}
"""Expression → how often a GPU waits for it; x is float [6] and mask bool [6] on the device."""

FAMILIES = [family for family in SMALL if family != "dne"]
"""Networks of methods that take any; that of dne is for dne."""
KIT = Path(__file__).parent / "kit"
STEPS_LIKE = {
    "der": "der++",
    "er": "er",
    "ewc": "ewc-online",
    "gem": "gem",
    "l2-sp": "ewc-online",
    "mas": "si",
}
"""Method → another, or a variant below, whose steps have the same operations: each run of CI takes
that one.
"""

Requests = Sequence[dict[str, Any]]


def find_home_scenario(name: str) -> str:
    """Return the scenario that a method is made for."""
    method = registry.METHODS[name]
    return min(
        method.scenarios, key=lambda scenario: (scenario in method.scenario_warnings, scenario)
    )


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Requests], list[dict[str, Any]]]]:
    """Ask one process of its own: torch makes the threads of its devices at the first backward
    pass.
    """
    command = [sys.executable, str(KIT / "blocking_calls.py"), str(tmp_path_factory.mktemp("sim"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(KIT), str(KIT.parents[3])])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin and process.stdout
        lines, replies = process.stdin, process.stdout

        def send_requests(requests: Requests) -> list[dict[str, Any]]:
            found = []
            for request in requests:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                found.append(json.loads(replies.readline()))
            return found

        yield send_requests
        lines.close()


def list_method_cases() -> Iterator[Any]:
    """Return methods in the scenario that they are made for. The campaign takes the other methods,
    scenarios and networks.
    """
    for name, method in registry.METHODS.items():
        accepted = method.accepts.architectures
        for scenario in method.scenarios:
            for family in FAMILIES if accepted is None else [accepted[0]]:
                often = scenario == find_home_scenario(name) and family in (
                    "mlp",
                    accepted and accepted[0],
                )
                marks = () if often and name not in STEPS_LIKE else pytest.mark.campaign
                yield pytest.param(
                    name, scenario, family, marks=marks, id=f"{name}-{scenario}-{family}"
                )


@pytest.mark.slow
@pytest.mark.parametrize(("method", "scenario", "family"), list(list_method_cases()))
def test_learns_two_tasks_and_steps_wait_as_often_as_the_table_says(
    method: str, scenario: str, family: str, answers: Any
) -> None:
    (answer,) = answers([{"method": method, "scenario": scenario, "family": family}])
    assert "error" not in answer, answer["error"]
    assert answer["per_step"] <= BLOCKING.get(method, 0.0), answer["places"]


def test_mixed_devices_raise_and_blocking_calls_are_counted(answers: Any) -> None:
    assert answers([{"expressions": list(OPERATIONS)}]) == [OPERATIONS]


@pytest.mark.parametrize(
    ("recipe", "most"),
    [
        ({"method": {"name": "ewc-online", "curvature": "kfac"}}, 0),
        ({"method": {"name": "der++", "draws": "shared"}}, 0),
        ({"method": {"name": "gem", "memory_batch": 4}}, 1),
        ({"method": {"name": "er"}, "shards": 2}, 1),
    ],
    ids=lambda value: (
        "-".join(map(str, value["method"].values())) if isinstance(value, dict) else str(value)
    ),
)
def test_variants_of_a_method_wait_no_more(recipe: dict[str, Any], most: int, answers: Any) -> None:
    (answer,) = answers(
        [{"method": recipe["method"]["name"], "scenario": "class", "recipe": recipe}]
    )
    assert "error" not in answer, answer["error"]
    assert answer["per_step"] <= most, answer["places"]


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param({}, marks=pytest.mark.campaign),  # fewer operations than rand-augment
        pytest.param({"augment": "none"}, marks=pytest.mark.campaign),
        {"augment": "rand-augment"},
    ],
    ids=["shifted", "unchanged", "rand-augment"],
)
def test_learns_the_same_bits_wherever_the_images_lie(recipe: dict[str, Any], answers: Any) -> None:
    request = {"method": "er", "scenario": "class", "recipe": recipe}
    places = [{"device": "cpu"}, {}, {"free_bytes": 0}]  # the last: too many images for the device
    cpu, device, host = answers([{**request, **place} for place in places])
    assert cpu["digests"] == device["digests"] == host["digests"]
    assert device["per_step"] == host["per_step"] == 0
