"""Runs job specs on several ranks of gloo, each a process forked from one that has imported torch
and run nothing.

Reads JSON lines {"spec": path, "ranks": n, "snapshot_at": [step, …], "kill": [rank, step] or null};
answers each with the list of events of rank 0, once all ranks have ended.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

import torch
import torch.fx.experimental.symbolic_shapes
from streams import Killed, Script

from core.learning.distributed.ranks import TorchrunRanks
from core.learning.training import job, output_folders


def run_rank(request: dict, rank: int, port: int, events: Path) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(request["ranks"]),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    killed, at = request["kill"] or (-1, -1)
    control = Script(request["snapshot_at"] if rank == 0 else (), at if rank == killed else -1)
    with events.open("w") as out:

        def write_event(event: object) -> None:
            out.write(json.dumps(event.to_json()) + "\n")
            out.flush()

        try:
            job.learn_task(
                output_folders.read_learn_job_spec(request["spec"]),
                write_event if rank == 0 else id,
                control,
                ranks=TorchrunRanks(torch.device("cpu")),
            )
        except Killed:
            os.kill(os.getpid(), signal.SIGKILL)


def find_free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


for line in sys.stdin:
    request = json.loads(line)
    port, pids = find_free_port(), []
    files = [
        Path(request["spec"]).with_name(f"events-{rank}.jsonl") for rank in range(request["ranks"])
    ]
    for rank, events in enumerate(files):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                run_rank(request, rank, port, events)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        pids.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    said = [json.loads(event) for event in files[0].read_text().splitlines()]
    print(json.dumps({"events": said, "statuses": statuses}), flush=True)
