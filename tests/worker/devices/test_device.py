"""The device of a worker: found at the start, given up when it is lost, taken back when it
works.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from core.settings import Settings
from tests.worker.conftest import wait_within_limit
from worker.devices import device, device_check
from worker.devices.device import RECHECK_S, DeviceWatch
from worker.devices.device_check import (
    DeviceReport,
    check_device_in_this_process,
    explain_missing_gpu_kernels,
)

ILLEGAL = "CUDA error: an illegal memory access was encountered"
ECC = "CUDA error: uncorrectable ECC error encountered"
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"


def make_report(problem: str | None = None, gpus: int = 1) -> DeviceReport:
    found = problem is None
    return {
        "device": "cuda" if found else "cpu", "gpus": gpus if found else 0, "problem": problem, "name": None,
        "driver": None, "torch": None, "free_bytes": None, "total_bytes": None,
    }  # fmt: skip


@pytest.fixture
def watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: object
) -> Callable[..., DeviceWatch]:
    """Makes a watch on a machine with or without a driver, whose checks answer as given, one after
    the other.
    """
    monkeypatch.setattr(device, "time", clock)

    def make_device_watch(
        asked: str, *answers: str | None, has_driver: bool = False
    ) -> DeviceWatch:
        waiting = list(answers)
        monkeypatch.setattr(device_check.machine, "can_open_cuda", lambda: has_driver)
        settings = Settings.model_validate({"data_dir": tmp_path, "device": asked})
        return DeviceWatch(settings, check=lambda _asked: make_report(waiting.pop(0)))

    return make_device_watch


def run_due_check(watched: DeviceWatch) -> bool:
    """Let a check that is due run to its end, and return whether jobs may be claimed then."""
    assert not watched.update_readiness_to_claim()
    assert wait_within_limit(lambda: watched._thread is None or not watched._thread.is_alive())
    return watched.update_readiness_to_claim()


def test_a_worker_without_a_driver_offers_its_cpu_at_once(
    watch: Callable[..., DeviceWatch],
) -> None:
    watched = watch("auto")
    assert watched.update_readiness_to_claim()
    assert watched.claimable_resources == ("cpu", 0)


def test_a_worker_claims_nothing_before_its_gpu_is_checked(
    watch: Callable[..., DeviceWatch],
) -> None:
    watched = watch("cuda", None)
    assert run_due_check(watched)
    assert watched.claimable_resources == ("cuda", 1)


def test_a_gpu_that_is_asked_for_and_missing_is_lost_from_the_start(
    watch: Callable[..., DeviceWatch],
) -> None:
    watched = watch("cuda", "No GPU is visible.")
    assert not run_due_check(watched)
    assert watched.device == device.WorkerDevice("cuda", 0, "No GPU is visible.")


def test_a_driver_without_a_usable_gpu_is_a_warning_and_jobs_run_on_the_cpu(
    watch: Callable[..., DeviceWatch],
) -> None:
    watched = watch("auto", "torch is a CPU build.", has_driver=True)
    assert run_due_check(watched)
    assert watched.claimable_resources.device == "cpu"
    assert watched.warning is not None and "torch is a CPU build." in watched.warning


def test_a_lost_device_is_checked_ever_more_rarely_until_it_works(
    watch: Callable[..., DeviceWatch], clock: object
) -> None:
    watched = watch("cuda", None, "still lost", None)
    assert run_due_check(watched)
    assert watched.is_device_lost(ECC)
    for pause_s, works in ((RECHECK_S[0], False), (RECHECK_S[1], True)):
        clock.now += pause_s - 1  # type: ignore[attr-defined]
        assert not watched.update_readiness_to_claim() and watched._thread is None
        clock.now += 1  # type: ignore[attr-defined]
        assert run_due_check(watched) is works
    assert watched.device.problem is None


@pytest.mark.parametrize(
    ("message", "check", "is_lost"),
    [
        (ILLEGAL, None, False),
        (ILLEGAL, "no answer", True),
        (NO_KERNEL, None, False),
        (ECC, None, True),
    ],
)
def test_an_error_that_a_program_causes_too_is_judged_by_a_check(
    watch: Callable[..., DeviceWatch], message: str, check: str | None, is_lost: bool
) -> None:
    watched = watch("cuda", None, check)
    assert run_due_check(watched)
    assert watched.is_device_lost(message) is is_lost
    assert watched.update_readiness_to_claim() is not is_lost


def test_a_check_that_breaks_counts_as_a_lost_device(watch: Callable[..., DeviceWatch]) -> None:
    watched = watch("cuda")

    def raise_os_error(_asked: str) -> DeviceReport:
        raise OSError("no more processes")

    watched._check = raise_os_error
    assert not run_due_check(watched)
    assert watched.device.problem == "The device could not be checked: no more processes"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 2024\n"
            "GCC version:  gcc version 12.3.0\n",
            "550.54.14",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n", "580.159.04"),
        ("", None),
        (None, None),
    ],
)
def test_the_driver_is_named_by_its_version(
    text: str | None, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_check, "_DRIVER", tmp_path / "version")
    if text is not None:
        (tmp_path / "version").write_text(text)
    assert device_check.read_driver_version() == version


def test_the_check_says_what_does_not_fit_together() -> None:
    problem = check_device_in_this_process("cuda")["problem"]
    assert problem is not None and "is a CPU build" in problem and "PERENNIAL_DEVICE=cpu" in problem
    assert check_device_in_this_process("cpu")["problem"] is None


@pytest.mark.parametrize(
    ("capability", "built_for", "fits"),
    [
        ((8, 6), ["sm_80", "sm_90"], True),
        ((9, 0), ["sm_80", "sm_90a"], True),
        ((12, 0), ["sm_90", "compute_90"], True),
        ((12, 0), ["sm_90", "sm_100"], False),
        ((7, 0), ["sm_75", "compute_75"], False),
        ((8, 0), ["sm_86"], False),
    ],
)
def test_kernels_run_on_later_devices_of_their_major_number(
    capability: tuple[int, int], built_for: list[str], fits: bool
) -> None:
    problem = explain_missing_gpu_kernels("NVIDIA X", capability, built_for)
    assert (problem is None) is fits
    if problem is not None:
        assert f"NVIDIA X has compute capability {capability[0]}.{capability[1]}" in problem


def test_the_check_names_a_gpu_that_torch_has_no_kernels_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    answers = {
        "is_available": True,
        "device_count": 1,
        "get_device_name": "Tesla V100",
        "get_device_capability": (7, 0),
        "get_arch_list": ["sm_75", "sm_90"],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    problem = check_device_in_this_process("auto")["problem"]
    assert problem is not None and "torch is built for sm_75, sm_90, and Tesla V100" in problem
