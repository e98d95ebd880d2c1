"""The marker `services`: leave tests out where a service that they need does not answer, and say
so.

Under `CI=true` nothing is left out: a missing service fails in its fixture.
"""

import os
import sys
from typing import Any

import chromium
import postgresql
import pytest
import redis_server

SERVICE_OF_FIXTURE = {
    "postgres_url": "postgresql",
    "redis_url": "redis",
    "redis_server": "redis",
    "s3": "s3",
    "browser": "chromium",
}
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
_ADVICE = {
    "postgresql": postgresql.ADVICE,
    "redis": redis_server.ADVICE,
    "s3": "",
    "chromium": chromium.ADVICE,
}
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_MISSING = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "services(*names): needs postgresql, redis, s3 or chromium (tests/conftest.py)"
    )
    config.stash[_LEFT_OUT] = {}
    config.stash[_MISSING] = {}


@pytest.hookimpl(trylast=True)  # after -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needed = {item: _find_needed_services(item) for item in items}
    for item, names in needed.items():
        if names and item.get_closest_marker("services") is None:
            item.add_marker(pytest.mark.services(*sorted(names)))
    if IN_CI:
        return
    missing = _find_missing_services(set().union(*needed.values()))
    left_out = {item for item in items if needed[item] & missing.keys()}
    if left_out:
        config.stash[_MISSING] = missing
        for item in left_out:
            for name in needed[item] & missing.keys():
                config.stash[_LEFT_OUT][name] = config.stash[_LEFT_OUT].get(name, 0) + 1
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def _find_needed_services(item: pytest.Item) -> set[str]:
    fixtures = getattr(item, "fixturenames", ())
    names = {SERVICE_OF_FIXTURE[name] for name in fixtures if name in SERVICE_OF_FIXTURE}
    for marker in item.iter_markers("services"):
        names.update(marker.args or ("postgresql", "redis"))
    return names


def _find_missing_services(names: set[str]) -> dict[str, str]:
    """Map each service that cannot be used to the reason.
    The tests themselves start S3.
    """
    probes = {
        "postgresql": postgresql.explain_absence,
        "redis": redis_server.explain_absence,
        "s3": lambda: (
            None if sys.platform == "linux" else "the S3 server of the tests runs on Linux only"
        ),
        "chromium": chromium.explain_absence,
    }
    unknown = names - probes.keys()
    if unknown:
        raise pytest.UsageError(
            f"the marker `services` knows {sorted(probes)}, not {sorted(unknown)}"
        )
    reasons = {name: probes[name]() for name in sorted(names)}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report from a worker of pytest-xdist what it left out: each worker collects all tests."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[_LEFT_OUT]
        session.config.workeroutput["missing"] = session.config.stash[_MISSING]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})  # a worker that crashed has none
    node.config.stash[_LEFT_OUT].update(output.get("left_out", {}))
    node.config.stash[_MISSING].update(output.get("missing", {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for name, count in sorted(config.stash[_LEFT_OUT].items()):
        terminalreporter.write_line(
            f"left out: {count} tests that need {name} ({config.stash[_MISSING][name]}). "
            f"{_ADVICE[name]}",
            yellow=True,
        )
