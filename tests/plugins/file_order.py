"""The order of test files, and which of them stay with one process of pytest-xdist."""

from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
LONGEST_FIRST = (
    "e2e/test_large_size.py",
    "e2e/test_large_canary.py",
    "e2e/test_additions.py",
    "e2e/test_another_problem.py",
    "core/learning/test_conformance.py",
    "ui/test_pages.py",
    "client/test_command_line.py",
    "faults/test_worker_deaths.py",
    "security/test_predict_neighbours.py",
    "docs/test_commands.py",
    "tools/release/test_distributions.py",
    "migrations/test_former_data.py",
    "api/routes/test_predict.py",
    "bench/experiment/test_command.py",
    "core/webhooks/test_deliver.py",
    "core/ingest/test_ingest.py",
    "api/routes/test_rebase.py",
    "before_after/test_upgrade.py",
)
"""One file of each group of `SHARED`, and other files of 15 seconds and more: a long group or file
that starts last keeps one process busy while the others have finished. The table of durations at
the end of a run names them. Files of a group that share a service stand side by side: it ends after
the last of them.
"""
SHARED = (
    ("tests/client/test_",),
    ("tests/core/learning/",),
    (
        "tests/e2e/",
        "tests/core/storage/",
        "tests/core/uploads/",
        "tests/test_services.py",
        "tests/client/pack/test_bucket.py",
        "tests/security/test_damage.py",
    ),
    ("tests/faults/test_",),
    ("tests/security/test_",),
    ("tests/ui/",),
)
"""Starts of the paths of files that share something that takes seconds to start: a service, the S3
server, or the process that forks jobs. One process runs them all and starts it once.
"""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file: the longest first, then files with slow tests evenly among the others.

    Slow tests wait for servers and clocks much of their time, while the others use the processor.
    """
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    places: dict[Path, float] = {}
    for group in (slow, {item.path for item in items} - slow):
        in_order = sorted(group, key=lambda path: (ranks.get(path, len(ranks)), path))
        places.update((path, number / len(in_order)) for number, path in enumerate(in_order))
    items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the files of each group of `SHARED` with one process, beside what `--dist loadfile`
    does.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class GroupScheduling(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            groups = (starts[0] for starts in SHARED if nodeid.startswith(starts))
            return next(groups, super()._split_scope(nodeid))

    return GroupScheduling(config, log)
