"""Call 2 on an accelerator: how fast is it beside plain PyTorch?

    python -m bench.gpu.figures [--device cuda|cpu|sim] [--tiny] [--out gpu.json] [--budget 300]
        [--only STEP …]

As `bench.gpu.check`, into the same file.
"""

import argparse
import sys

from bench.gpu.runner import add_common_options, run_gpu_check_steps


def main() -> int:
    """Run the measurements on a GPU, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, "figures")
    return run_gpu_check_steps("figures", parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
