"""The tests' conformance kit on this device, in processes of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

from bench.gpu.kit import ROOT
from bench.gpu.step_run import PROCESSES, GpuCheckStepRun

FOLDER = Path("tests") / "core" / "learning"
FEW = "finetune and (growth or stores or resumes)"
"""The checks of a dry run."""


def run_and_record_conformance_tests(run: GpuCheckStepRun) -> None:
    """Run the conformance tests of methods on the device; record passed and failed ones."""
    empty, results = run.folder / "pytest.ini", run.folder / "results.xml"
    empty.write_text("[pytest]\nmarkers =\n    campaign: longer\n    slow: long\n")
    command = [
        *(sys.executable, "-m", "pytest", str(FOLDER / "test_conformance.py"), "-q", "--tb=short"),
        # Without the repository's configuration, whose plugins need the database's packages.
        *("-c", str(empty), "--rootdir", str(ROOT), "--confcutdir", str(FOLDER)),
        *("--import-mode=importlib", "-p", "no:cacheprovider", "-m", "not campaign"),
        *("--basetemp", str(run.folder / "pytest"), f"--junitxml={results}"),
        *(["-k", FEW] if run.tiny else []),
    ]
    if not run.tiny and find_spec("xdist") is not None:
        command += ["-n", str(min(PROCESSES, max(1, (os.cpu_count() or 2) // 2)))]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if not results.exists():
        raise RuntimeError(f"pytest ended with status {done.returncode} before its first check")
    passed, failed = read_junit_results(results)
    run.record_measurement("passed", passed)
    run.record_measurement("failed", failed)
    if failed:
        run.record_problem(
            f"{len(failed)} of {passed + len(failed)} checks failed, the first: "
            f"{next(iter(failed))}"
        )
    elif passed == 0:
        run.record_problem("no check ran")


def read_junit_results(file: Path) -> tuple[int, dict[str, str]]:
    """Read a JUnit file; return the number of passed tests and the first line of each failure."""
    passed, failed = 0, dict[str, str]()
    for case in ElementTree.parse(file).iter("testcase"):
        problem = next(
            (element for tag in ("failure", "error") if (element := case.find(tag)) is not None),
            None,
        )
        if problem is not None:
            failed[case.get("name", "")] = (problem.get("message") or "").partition("\n")[0][:300]
        elif case.find("skipped") is None:
            passed += 1
    return passed, failed
