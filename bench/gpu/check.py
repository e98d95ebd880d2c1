"""Call 1 on an accelerator: is everything correct there?

    python -m bench.gpu.check [--device cuda|cpu|sim] [--tiny] [--out gpu.json] [--budget 360]
        [--only STEP …]

Each step runs in a process of its own under its own time limit; a failure is recorded and the next
step begins. The file is written after each step, and the same command goes on where a run was cut.
`--plan` prints the steps with their seconds, and runs nothing. `docs/gpu.md` has the whole command
for a machine that has PyTorch and no network.
"""

import argparse
import sys

from bench.gpu.runner import add_common_options, run_gpu_check_steps


def main() -> int:
    """Run the checks on a GPU, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, "check")
    return run_gpu_check_steps("check", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
