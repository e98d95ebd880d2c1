"""A process that forks jobs must not have opened CUDA."""

import subprocess
import sys
from pathlib import Path

import pytest

from worker.attempts.child import NO_CUDA, ForkServer, ForkServerDied
from worker.devices import cuda_free
from worker.devices.cuda_free import (
    CudaAlreadyOpenError,
    find_open_nvidia_devices,
    require_cuda_not_opened,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["/dev/null", "socket:[7]", "/lib/libcuda.so.570.1", "/data/dev/nvidia0"], []),
        (
            ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"],
            ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"],
        ),
        (["/dev/dxg"], ["/dev/dxg"]),  # Windows Subsystem for Linux
    ],
)
def test_open_devices_of_the_driver_are_found(files: list[str], found: list[str]) -> None:
    assert find_open_nvidia_devices(files) == found


def test_the_error_names_what_is_open_and_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_free, "_list_open_files", lambda: ["/dev/nvidia0"])
    with pytest.raises(
        CudaAlreadyOpenError, match=r"has opened CUDA \(/dev/nvidia0\).*sitecustomize"
    ):
        require_cuda_not_opened()


def test_a_zygote_that_cannot_fork_says_why(tmp_path: Path) -> None:
    program = tmp_path / "zygote.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from worker.devices import cuda_free; from worker.attempts import zygote\n"
        "cuda_free._list_open_files = lambda: ['/dev/nvidia0']\n"
        "zygote.import_job_modules_and_get_runner = lambda: None\n"
        "zygote.run_fork_server_or_job(sys.argv[1:])\n"
    )
    zygote = ForkServer((sys.executable, str(program)))
    with pytest.raises(ForkServerDied, match="has opened CUDA"):
        zygote.wait_until_ready()
    zygote.end_fork_server()


@pytest.mark.slow
def test_importing_what_jobs_need_opens_no_cuda() -> None:
    code = (
        "from worker.attempts.zygote import import_job_modules_and_get_runner; import_job_modules_and_get_runner(); "
        "from worker.devices.cuda_free import require_cuda_not_opened as f; f()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def test_torch_counts_devices_without_opening_them() -> None:
    assert NO_CUDA == {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
