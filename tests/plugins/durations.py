"""Tables of durations at the end of a run of more than `LEAST_TESTS` tests: by folder, and the
longest files.
"""

from collections import Counter
from pathlib import PurePosixPath

import pytest

LEAST_TESTS = 50
LONG_FILE_S = 15.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for of_category in terminalreporter.stats.values()
        for report in of_category
        if isinstance(report, pytest.TestReport)
    ]
    if len({report.nodeid for report in reports}) < LEAST_TESTS:
        return
    terminalreporter.section("durations, summed over all processes")
    for line in describe_durations([(report.nodeid, report.duration) for report in reports]):
        terminalreporter.write_line(line)


def describe_durations(durations: list[tuple[str, float]]) -> list[str]:
    """Return the lines of both tables.

    Args:
        durations: (node id, seconds), several of one test (set-up, call, tear-down) in any order.
    """
    by_folder: Counter[str] = Counter()
    by_file: Counter[str] = Counter()
    tests_of: dict[str, set[str]] = {}
    for nodeid, seconds in durations:
        file = nodeid.partition("::")[0]
        folder = str(PurePosixPath(file).parent)
        by_folder[folder] += seconds
        by_file[file] += seconds
        tests_of.setdefault(folder, set()).add(nodeid)
    lines = [
        f"{seconds:8.1f} s {len(tests_of[folder]):6} tests  {folder}"
        for folder, seconds in by_folder.most_common()
    ]
    total = sum(by_folder.values())
    lines.append(f"{total:8.1f} s {sum(map(len, tests_of.values())):6} tests  in all")
    long_files = [
        (file, seconds) for file, seconds in by_file.most_common() if seconds >= LONG_FILE_S
    ]
    if long_files:
        lines.append(f"files of {LONG_FILE_S:g} s and more:")
        lines += [f"{seconds:8.1f} s  {file}" for file, seconds in long_files]
    return lines
