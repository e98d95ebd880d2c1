"""Start and end of a program that conducts experiments: the environment first, errors as
sentences.
"""

import os
import sys
from collections.abc import Callable

from bench.experiment.plan import PlanError
from worker.attempts.child import MALLOC

ENVIRONMENT = {**MALLOC, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def restart_with_job_environment_and_run_main(module: str, main: Callable[[], int]) -> None:
    """Run a program's `main` with the memory and thread settings of a learning job, and exit.

    glibc and OpenMP read their settings when a process starts, so `python -m module` is started
    again with those of a learning job where they differ.
    """
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(
            sys.executable,
            [sys.executable, "-m", module, *sys.argv[1:]],
            {**os.environ, **ENVIRONMENT},
        )
    sys.exit(run_main_and_report_plan_errors(main))


def run_main_and_report_plan_errors(main: Callable[[], int]) -> int:
    """Call a program's `main`; return its exit status: 2 for an invalid plan, 130 after Ctrl-C."""
    try:
        return main()
    except PlanError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
