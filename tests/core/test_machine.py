"""Resources of the machine, as its files name them."""

import os
from pathlib import Path

import pytest

from core import machine
from core.settings import Settings


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "3200000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_the_cpus_are_those_of_the_affinity_or_of_the_quota_if_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.count_usable_cpus(tmp_path) == cpus


@pytest.mark.parametrize(
    ("cpus", "workers", "threads"), [(8, 1, 7), (8, 2, 3), (8, 4, 1), (1, 1, 1), (2, 4, 1)]
)
def test_threads_are_by_default_a_workers_share_of_the_cpus_but_one(
    monkeypatch: pytest.MonkeyPatch, cpus: int, workers: int, threads: int
) -> None:
    monkeypatch.delenv("PERENNIAL_THREADS", raising=False)
    monkeypatch.setattr("core.settings.count_usable_cpus", lambda: cpus)
    assert Settings(workers_per_host=workers).threads == threads
    assert Settings(workers_per_host=workers, threads=5).threads == 5


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        (None, 2),
        ("0", 1),
        ("1,0", 2),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("MIG-1a,MIG-2b,MIG-3c", 3),
        ("0,1,2", 2),
    ],
)
def test_the_gpus_are_those_that_cuda_may_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, gpus: int
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.count_gpus(tmp_path) == gpus
