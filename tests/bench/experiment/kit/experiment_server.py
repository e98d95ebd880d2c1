"""Runs the command line of experiments in forked children, so that torch and matplotlib load once.

Reads lines: {"argv": […], "log": path, "figures": bool} starts a run in a process group of its own and answers
with its process; "wait" answers with its exit status.
"""

import json
import os
import sys

from bench.experiment import conduct, program
from bench.experiment.__main__ import main

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
                conduct.draw = lambda outcomes, folder: []
            status = program.status(main)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(pid, flush=True)
