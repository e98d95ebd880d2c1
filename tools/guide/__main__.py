"""Build of the guide.

    python -m tools.guide [--out api/built_guide]

OUT is replaced. The build fails on a warning of Zensical, a dead link or heading, a page without a
place in the navigation, and anything that the guide's policy forbids. It needs Zensical (the extra
`dev`).
"""

import argparse
from pathlib import Path

from tools.guide.build import OUT, rebuild_guide_folder


def main() -> None:
    """Build the user guide, and print where it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rebuild_guide_folder(options.out.absolute())
    files = [path for path in options.out.rglob("*") if path.is_file()]
    print(
        f"{options.out}: {len(files)} files, {sum(one.stat().st_size for one in files):,} bytes. "
        "`perennial serve` shows them at /docs/guide/."
    )


if __name__ == "__main__":
    main()
