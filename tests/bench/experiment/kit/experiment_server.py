"""Runs the command line of experiments in forked children, so that torch and matplotlib load once.

Reads lines: {"argv": […], "log": path, "figures": bool, "hold_after": results or null} starts a run
in a process group of its own and answers with its process; "wait" answers with its exit status.
"""

import gc
import json
import os
import signal
import sys

import torch.fx.experimental.symbolic_shapes  # noqa: F401  # for meta tensors, once here: it takes a second

from bench.experiment import conduct, program, runs
from bench.experiment.__main__ import main


def hold_second_stage(results: int) -> None:
    """Let the run that follows `results` results wait forever before its second stage."""
    ended, learn = conduct.RunProgressPrinter.print_run_end, runs.run_job_and_evaluate
    counts = {"results": 0, "stages": 0}

    def count_result(*arguments: object) -> None:
        counts["results"] += 1
        ended(*arguments)

    def pause_at_second_stage(*arguments: object) -> object:
        if counts["results"] == results and counts["stages"] == 1:
            signal.pause()
        counts["stages"] += 1
        return learn(*arguments)

    conduct.RunProgressPrinter.print_run_end, runs.run_job_and_evaluate = (
        count_result,
        pause_at_second_stage,
    )


gc.freeze()  # children look for garbage among their own objects alone
pid = 0
for line in sys.stdin:
    if line.strip() == "wait":
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    request = json.loads(line)
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.setpgid(0, 0)
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.argv = ["bench.experiment", *request["argv"]]
            if not request["figures"]:
                conduct.draw_experiment_figures = lambda outcomes, folder: []
            if request["hold_after"] is not None:
                hold_second_stage(request["hold_after"])
            status = program.run_main_and_report_plan_errors(main)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(pid, flush=True)
