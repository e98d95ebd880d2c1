"""A job on several devices of this host: torchrun replaces the job child.

The child that the zygote has forked becomes torchrun, with the same process number. torchrun starts
the ranks, and ends all of them when one ends. It never restarts one: a job that lost a rank ends as
`died` without a report, and resumes from its snapshot in the next attempt. Ranks inherit the
control pipe as standard input and the event pipe as standard output, since torchrun passes on no
other descriptor; only rank 0 uses them. A rank dies with torchrun, however that dies.

torchrun runs this module as `python -m worker.attempts.ranks TORCHRUN_PID SPEC`.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from core.contract.jobs.job_event import JobEvent

if TYPE_CHECKING:
    from core.learning.training.control import PipeControlRequestSource

    pass

Emit = Callable[[JobEvent], None]

# From Linux's sys/prctl.h, since Python has no name for it.
PR_SET_PDEATHSIG = 1
MONITOR_S = 0.1
"""Seconds between torchrun's looks at its ranks."""
TELL_S = 10.0
"""Seconds that other ranks wait after an error, so that rank 0 can report it first."""
# Standard input, output and error, since torchrun passes no other descriptors to its ranks.
CONTROL_FD, EVENTS_FD, LOG_FD = 0, 1, 2


def choose_process_count_of_job(spec: dict[str, Any]) -> int:
    """Return the number of processes that train a job together, by its recipe and visible GPUs."""
    shards = int(spec.get("recipe", {}).get("shards", 1))
    if shards == 1:
        return 1
    from core.learning.distributed.slices import choose_slice_process_count

    return choose_slice_process_count(
        shards, int(spec.get("ranks", 0)) or _count_devices_of_job(str(spec.get("device", "auto")))
    )


def _count_devices_of_job(device: str) -> int:
    """Return the number of CUDA devices that a job may use.

    It is 1 on the CPU, or if a certain device is named.
    """
    import torch

    return torch.cuda.device_count() if device in ("auto", "cuda") else 1


def replace_process_by_torchrun(
    ranks: int, spec_path: str, out_fd: int, control_fd: int
) -> NoReturn:
    """Replace this process by torchrun with `ranks` processes."""
    os.dup2(control_fd, CONTROL_FD)
    os.dup2(out_fd, EVENTS_FD)
    logs = Path(spec_path).parent / "torchrun"  # deleted with the attempt's folder
    options = (
        *("--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "0"),
        *("--monitor-interval", str(MONITOR_S), "--log-dir", str(logs)),
    )
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this host
    # otherwise torchrun warns; a job sets its threads itself
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    job = ("-m", "worker.attempts.ranks", str(os.getpid()), spec_path)
    # The process number stays the same, so the worker's descriptor still refers to the job.
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *options, *job])


def run_distributed_rank(arguments: list[str]) -> int:
    """Run one rank of a distributed training job; return the exit status."""
    parent, spec_path = int(arguments[0]), arguments[1]
    # Otherwise, a rank would outlive a killed torchrun and keep its device.
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1  # torchrun died before the signal could be set
    events = os.dup(EVENTS_FD)
    os.dup2(LOG_FD, EVENTS_FD)  # output of libraries must not be read as events
    if int(os.environ["RANK"]) > 0:
        os.close(events)
        return _run_follower_rank(spec_path)
    from core.learning.training.control import PipeControlRequestSource
    from core.learning.training.job_process import run_job_and_write_events
    from worker.attempts.job_failpoints import hit_event_failpoint

    def run_first_rank(emit: Emit) -> None:
        _run_job_share_of_rank(spec_path, emit, PipeControlRequestSource(CONTROL_FD))

    return run_job_and_write_events(events, hit_event_failpoint, run_first_rank)


def _run_follower_rank(spec_path: str) -> int:
    """Run a rank of a distributed job other than the first; it reports no events."""
    try:
        _run_job_share_of_rank(spec_path, lambda event: None, None)
    except Exception:
        time.sleep(TELL_S)
        raise
    return 0


def _run_job_share_of_rank(
    spec_path: str, emit: Emit, control: "PipeControlRequestSource | None"
) -> None:
    """Run one rank's share of a distributed training job, on the device with the rank's number."""
    from core.learning.distributed.ranks import TorchrunRanks
    from core.learning.precision import choose_torch_device
    from core.learning.training.job import learn_task
    from core.learning.training.output_folders import read_learn_job_spec

    spec = read_learn_job_spec(spec_path)
    device = choose_torch_device(spec.device)
    if device.type == "cuda":
        spec = spec.model_copy(update={"device": f"cuda:{os.environ['LOCAL_RANK']}"})
        device = choose_torch_device(spec.device)
    group = TorchrunRanks(device)
    learn_task(spec, emit, control, ranks=group)
    group.leave_process_group()


if __name__ == "__main__":
    sys.exit(run_distributed_rank(sys.argv[1:]))
