"""Runs one step in this process; `bench.gpu.check` and `bench.gpu.figures` start it.

    python -m bench.gpu.one_step MODULE:FUNCTION --device cuda|cpu|sim --folder DIR --report FILE
        [--tiny]

What the step measures is in FILE as soon as it is known. The exit status is 1 where the step
failed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from pathlib import Path

from bench.gpu.step_run import GpuCheckStepRun
from bench.gpu.steps import DEVICES


def main() -> int:
    """Run the named step of a GPU check in this process, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", metavar="MODULE:FUNCTION", help="called with a GpuCheckStepRun")
    parser.add_argument("--device", choices=DEVICES, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    run = GpuCheckStepRun(options.device, options.tiny, options.folder, options.report)
    module, _, function = options.work.partition(":")
    try:
        getattr(importlib.import_module(module), function)(run)
    except Exception as error:  # noqa: BLE001 - whatever it is, the report says it
        traceback.print_exc()
        run.record_problem(f"{type(error).__name__}: {error}"[:2000])
    return 1 if run.problem_text else 0


if __name__ == "__main__":
    sys.exit(main())
