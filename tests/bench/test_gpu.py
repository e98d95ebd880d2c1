"""The calls for a GPU: their plan, a run of a few steps, the page that is made of it, and dry runs
of all steps.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import carry, runner, table
from bench.gpu.result import GpuCheckStepResult, read_gpu_check_results
from bench.gpu.runner import GpuCheckOptions, run_steps_within_budget
from bench.gpu.steps import BUDGETS_S, LIMIT_S, STEPS, GpuCheckStep, list_steps_of_gpu_check_program

ROOT = Path(__file__).parents[2]
WORK = """
import time

def measure(run):
    run.record_measurement("device", run.device)
    run.record_measurement("rates", {"product": {"images": 12}, "bare": {"images": 11}})

def break_down(run):
    run.record_measurement("begun", True)
    raise ValueError("no such kernel")

def hang(run):
    time.sleep(600)
"""


def make_step(name: str, function: str, limit_s: float = 60) -> GpuCheckStep:
    return GpuCheckStep(name, "check", "nothing", limit_s, 1, "1", f"work:{function}")


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuCheckOptions:
    """Of steps that are functions of WORK."""
    (tmp_path / "work.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return GpuCheckOptions("cpu", True, tmp_path / "gpu.json", budget_s=600)


def test_two_calls_take_at_most_16_minutes() -> None:
    for program, budget_s in BUDGETS_S.items():
        assert sum(step.expected_s for step in list_steps_of_gpu_check_program(program)) <= budget_s
    assert sum(BUDGETS_S.values()) <= LIMIT_S
    assert sum(step.limit_s for step in STEPS.values()) <= LIMIT_S
    assert all(step.expected_s < step.limit_s for step in STEPS.values())


@pytest.mark.slow
def test_a_failure_and_a_limit_are_recorded_and_only_those_steps_run_again(
    options: GpuCheckOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SLOWDOWN", 1)
    steps = [
        make_step("failure", "break_down"),
        make_step("limit", "hang", 0.2),
        make_step("good", "measure"),
    ]
    steps.append(
        GpuCheckStep(
            "elsewhere", "check", "nothing", 60, 1, "1", "work:hang", ("cuda",), "a reason"
        )
    )
    run_steps_within_budget(steps, options)
    outcomes = read_gpu_check_results(options.out).steps
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "failure": "failed",
        "limit": "timed out",
        "good": "ok",
        "elsewhere": "not run",
    }
    assert outcomes["failure"].error == "ValueError: no such kernel"
    assert outcomes["failure"].figures == {"begun": True}
    assert any("no such kernel" in line for line in outcomes["failure"].log)
    assert outcomes["limit"].error == "took longer than its limit of 0 s"
    assert outcomes["good"].figures["device"] == "cpu" and outcomes["good"].machine is not None
    repeated: list[str] = []

    def record_repeated_step(step: GpuCheckStep, *_: object) -> GpuCheckStepResult:
        repeated.append(step.name)
        return outcomes["good"]

    monkeypatch.setattr(runner, "run_step_with_limit", record_repeated_step)
    assert set(run_steps_within_budget(steps, options).steps) == set(outcomes)
    assert repeated == ["failure", "limit", "elsewhere"]


def test_a_step_without_time_left_is_missing_and_the_page_says_so(options: GpuCheckOptions) -> None:
    assert (
        run_steps_within_budget(
            [make_step("late", "measure")], GpuCheckOptions("cpu", True, options.out, 0)
        ).steps
        == {}
    )


def test_the_page_has_figures_failures_and_missing_steps_of_a_result(tmp_path: Path) -> None:
    shared = {"seconds": 3, "limit_seconds": 20, "device": "cuda", "tiny": False}
    machine = {
        "device": "cuda",
        "card": "H100",
        "torch": "2.11.0",
        "python": "3.12",
        "cores": 16,
        "driver": "580.1",
    }
    good = {**shared, "status": "ok", "machine": machine, "figures": {"copy GB/s": 3000}}
    failed = {
        **shared,
        "status": "failed",
        "error": "CUDA | error",
        "figures": {"cases": {"er": {"ms": 2}}},
    }
    for number, steps in enumerate(
        [{"machine": good, "methods": failed}, {"machine": {**failed, "figures": {}}}]
    ):
        (tmp_path / f"{number}.json").write_text(json.dumps({"format": 1, "steps": steps}))
    page = table.render_gpu_check_results_page([tmp_path / "0.json", tmp_path / "1.json"])
    for line in (
        "- cuda: H100; torch 2.11.0, driver 580.1, Python 3.12, 16 cores.",
        "| `check` | machine | cuda | ok | 3 |",
        "| copy GB/s | 3000 |",
        "| `check` | methods | cuda | **failed** | 3 |",
        "- CUDA \\| error",
        "| er | 2 |",
        "| `figures` | snapshot | – | **missing** | – |",
    ):
        assert line in page.splitlines(), line


def test_the_page_is_that_of_the_committed_results() -> None:
    assert table.PAGE.read_text() == table.render_gpu_check_results_page(
        table.list_committed_gpu_check_results()
    )


def test_wheels_that_are_too_large_together_are_refused(tmp_path: Path) -> None:
    large = tmp_path / "large-1-py3-none-any.whl"
    with large.open("wb") as file:
        file.truncate(carry.LIMIT_BYTES)
    assert carry.require_wheels_within_limit([large]) == [large]
    (tmp_path / "small-1-py3-none-any.whl").write_bytes(b"x")
    with pytest.raises(ValueError, match="leave packages out"):
        carry.require_wheels_within_limit(sorted(tmp_path.glob("*.whl")))


def run_call(program: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"bench.gpu.{program}", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.campaign  # test_a_failure_and_a_limit_are_recorded… runs steps in processes, as a call does
@pytest.mark.parametrize("program", ["check", "figures"])
def test_a_call_runs_a_cheap_step(program: str, tmp_path: Path) -> None:
    step = {"check": "machine", "figures": "snapshot"}[program]
    out = tmp_path / "gpu.json"
    output = run_call(program, "--device", "cpu", "--tiny", "--out", str(out), "--only", step)
    assert f"{step:16} ok" in output
    outcome = read_gpu_check_results(out).steps[step]
    assert outcome.figures and outcome.tiny and outcome.device == "cpu"
    assert "These are dry runs" in table.render_gpu_check_results_page([out])


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("program", ["check", "figures"])
def test_all_steps_of_a_call_run_dry(program: str, device: str, tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    run_call(program, "--device", device, "--tiny", "--out", str(out))
    statuses = {name: outcome.status for name, outcome in read_gpu_check_results(out).steps.items()}
    expected: dict[str, Any] = {
        step.name: "ok" if device in step.devices else "not run"
        for step in STEPS.values()
        if step.program == program
    }
    assert statuses == expected
