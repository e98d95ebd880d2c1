"""A zygote whose job children learn nothing: they sleep, tell of progress, and hand in a small
result.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

from worker.attempts.zygote import fork_jobs_on_request

RESULT = {
    "classes": ["a"], "heads": [], "results": [], "method": {"name": "finetune", "hyper": {}, "state": {}},
    "update_norm": {"backbone": 1.0, "head": 0.5, "relative": 0.1}, "trainable": 1, "parameters": 1,
    "normalise": {"mean": [0.5], "std": [0.25]}, "steps": 1, "images": 1, "warnings": [],
    "environment": {"torch": "none", "cpu_capability": "none", "threads": 1, "device": "cpu"},
    "parts": [{"name": "head", "type": "head", "file": "parts/head.safetensors"}],
}  # fmt: skip


def sleep_then_report_job_success(spec: str, out_fd: int, control_fd: int) -> int:
    """Stand in for a job process: sleep for BENCH_SLEEP_S seconds, then report success."""
    del control_fd
    folder = Path(json.loads(Path(spec).read_text())["out"]) / "result"
    (folder / "parts").mkdir(parents=True)
    end = time.monotonic() + float(os.environ["BENCH_SLEEP_S"])
    with os.fdopen(out_fd, "w") as out:
        while (remaining_s := end - time.monotonic()) > 0:
            out.write(json.dumps({"event": "phase", "phase": "train"}) + "\n")
            out.flush()
            time.sleep(min(1.0, remaining_s))
        (folder / "parts" / "head.safetensors").write_bytes(os.urandom(1000))
        (folder / "result.json").write_text(json.dumps(RESULT))
        out.write(json.dumps({"event": "done", "path": str(folder)}) + "\n")
    return 0


if __name__ == "__main__":
    server = socket.socket(fileno=int(sys.argv[1]))
    server.set_inheritable(False)
    fork_jobs_on_request(server, sleep_then_report_job_success)
