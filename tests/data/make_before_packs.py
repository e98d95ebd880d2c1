"""Makes `before-packs.tar.gz`: results of tasks as the code left them when a memory's part still
held its images.

Run with that code, whose last commit is 678d427 (it has no `core/learn/image_packs.py`), from the
root of its checkout:

    PYTHONPATH=.:tests/core/learn/kit python PATH/TO/make_before_packs.py
    PATH/TO/before-packs.tar.gz

For each method the archive holds the results of tasks 2 and 3 of a stream, and a snapshot from
within task 3.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from streams import Bench, Script

METHODS = {
    "der++": {"name": "der++", "buffer": 20},
    "gem": {"name": "gem", "memory": 5},
    "icarl": {"name": "icarl", "exemplars": 21},
}
KILLED_AT = 7
"""Step of task 3; the snapshot is of step 5."""


def main(target: Path) -> None:
    """Make it."""
    if Path("core/learn/image_packs.py").exists():
        raise SystemExit(
            "Run this from a checkout of the code before the change (see the top of this file)."
        )
    with tempfile.TemporaryDirectory() as folder, tarfile.open(target, "w:gz") as archive:
        for name, method in METHODS.items():
            bench = Bench(Path(folder) / name, recipe={"method": method})
            second = bench.stream(2)
            spec = bench.spec(3, second)
            resumed = bench.killed(spec, Script(snapshot_at=[5], kill_at=KILLED_AT))
            archive.add(resumed["snapshot"], f"{name}/snapshot")
            for number, learned in ((2, second), (3, bench.learn(bench.spec(3, second)))):
                archive.add(learned.folder, f"{name}/task-{number}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
