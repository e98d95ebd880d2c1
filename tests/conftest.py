"""Services for tests, and what happens where they are missing.

Fixtures
    postgres_url   a fresh, empty PostgreSQL database for the module (`postgresql+psycopg://…`)
    redis_url      a Redis of the session (its own server where `redis-server` is installed)
    redis_server   a Redis of one test, to `stop()`, `freeze()`, `thaw()` and `start()` again
    s3             a real S3 server of the session: `.store_url`, `.access_key`, `.secret_key`,
                   `.url(bucket, prefix)`, `.environment()`, `.settings(data_dir, …)`; its bucket exists
    browser        a Chromium of one file of tests, driven by playwright
    database       `core.db.session.Database` with all tables and no rows, once on SQLite and once on PostgreSQL;
                   a test that changes tables takes `postgres_url`

The marker `services`
    Every test that uses one of these fixtures (or `database` on PostgreSQL) is marked by itself; a test
    that needs one without them says `@pytest.mark.services("postgresql", "redis", "s3", "chromium")`.
    Where a needed service does not answer, marked tests are left out and a line at the end of the run
    says which, and how to start it. Under `CI=true` nothing is left out: there they fail.

The marker `share(n)`
    Cases of one behaviour that are too many for every run of CI: there each run takes one n-th of them, by the
    commit, so that another commit takes others. With `together=True` a file is one case. A line at the end says
    how many were left to other runs. `PERENNIAL_TEST_SHARES=all` takes all, as any run outside of CI does.

Other rules for all tests: settings of the developer's own service (`PERENNIAL_…`, except
`PERENNIAL_TEST_…`) do not reach them; torch uses one thread and compiles nothing.
"""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

for _name in [name for name in os.environ if name.startswith("PERENNIAL_")]:
    if not _name.startswith("PERENNIAL_TEST_"):
        del os.environ[_name]
gc.disable()  # until all is collected: rewriting and importing every test file makes much, and no garbage
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
sys.path.append(str(Path(__file__).parent / "services"))

import chromium  # noqa: E402
import postgresql  # noqa: E402
import redis_server as redis_servers  # noqa: E402
import s3_server  # noqa: E402
from processes import ServiceMissing  # noqa: E402

from core.db import migrate  # noqa: E402
from core.db.session import Database  # noqa: E402
from core.store import open_store  # noqa: E402
from tools.service import Service  # noqa: E402

T = TypeVar("T")
TESTS = Path(__file__).parent
_SERVICE_OF = {
    "postgres_url": "postgresql",
    "redis_url": "redis",
    "redis_server": "redis",
    "s3": "s3",
    "browser": "chromium",
}
LONGEST_FIRST = (
    "core/work/test_line.py",
    "core/work/test_protocol.py",
    "core/learn/test_conformance.py",
    "faults/test_campaign.py",
    "faults/test_outages.py",
    "faults/test_worker_deaths.py",
    "faults/test_client_transfers.py",
    "faults/test_browser_uploads.py",
    "docs/test_commands.py",
    "ui/test_story.py",
    "client/test_command_line.py",
    "e2e/test_openapi.py",
    "security/test_corpus.py",
    "e2e/test_large_size.py",
    "e2e/test_onnx.py",
    "e2e/test_data_report.py",
    "e2e/test_deleted_data.py",
    "e2e/test_answers.py",
    "e2e/test_compare.py",
    "e2e/test_lifecycle.py",
    "e2e/test_dlcft.py",
    "e2e/test_restore.py",
    "e2e/test_scale.py",
    "e2e/test_kills.py",
    "e2e/test_upgrade.py",
    "e2e/test_methods.py",
    "e2e/test_canary.py",
    "e2e/test_bases_and_cards.py",
    "e2e/test_what_a_user_sends.py",
    "security/test_predict_neighbours.py",
    "security/test_admission.py",
    "e2e/test_first_words.py",
    "e2e/test_stream.py",
    "security/test_small_doors.py",
    "e2e/test_tenants.py",
    "worker/test_torch_check.py",
    "api/routes/test_audit_trail.py",
    "core/export/test_safetensors_zip.py",
    "ui/test_pages.py",
    "before_after/test_upgrade.py",
)
"""Files of half a minute and more: begun at the end of a run, one would keep a worker busy while the others
are done."""
_RANKS = {TESTS / name: number for number, name in enumerate(LONGEST_FIRST)}
ONE_SERVICE = ("tests/client/test_", "tests/ui/")
"""Files whose tests use one service of their process: one process of tests takes them all, and starts it once."""
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_MISSING = pytest.StashKey[dict[str, str]]()
_TO_OTHER_RUNS = pytest.StashKey[int]()
LOG_SHOWN_BYTES = 6000
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "services(*names): needs postgresql, redis, s3 or chromium (tests/conftest.py)"
    )
    config.addinivalue_line(
        "markers", "share(n, together=False): CI takes one n-th of these each time (tests/conftest.py)"
    )
    if "PERENNIAL_TEST_CATALOGUE" not in os.environ:  # this is no worker of pytest-xdist
        os.environ["PERENNIAL_TEST_CATALOGUE"] = made = tempfile.mkdtemp(prefix="catalogue-")
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
    config.stash[_LEFT_OUT] = {}
    config.stash[_MISSING] = {}
    config.stash[_TO_OTHER_RUNS] = 0


def _needed(item: pytest.Item) -> set[str]:
    names = {_SERVICE_OF[name] for name in getattr(item, "fixturenames", ()) if name in _SERVICE_OF}
    for marker in item.iter_markers("services"):
        names.update(marker.args or ("postgresql", "redis"))
    return names


def _probe(names: set[str]) -> dict[str, str]:
    """Return the services that cannot be used, and why. S3 is started by the tests themselves."""
    probes = {
        "postgresql": postgresql.missing,
        "redis": redis_servers.missing,
        "s3": _s3_missing,
        "chromium": chromium.missing,
    }
    unknown = names - probes.keys()
    if unknown:
        raise pytest.UsageError(f"the marker `services` knows {sorted(probes)}, not {sorted(unknown)}")
    found = {name: probes[name]() for name in sorted(names)}
    return {name: reason for name, reason in found.items() if reason is not None}


def _s3_missing() -> str | None:
    return None if sys.platform == "linux" else "the S3 server of the tests runs on Linux only"


def _rank(path: Path) -> int:
    """Place among the longest; that of all others is behind them."""
    return _RANKS.get(path, len(_RANKS))


def _order(items: list[pytest.Item]) -> None:
    """Sort by file: the longest first, and files with slow tests, which wait much, evenly among those that compute."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    slow = {
        path for path, of_file in files.items() if any(item.get_closest_marker("slow") for item in of_file)
    }
    place: dict[Path, float] = {}
    for group in (slow, files.keys() - slow):
        in_order = sorted(group, key=lambda path: (_rank(path), path))
        place.update((path, number / len(in_order)) for number, path in enumerate(in_order))
    items.sort(key=lambda item: place[item.path])


def _left_to_other_runs(items: list[pytest.Item]) -> list[pytest.Item]:
    """Those of the marker `share` that this commit's run does not take."""
    if not IN_CI or os.environ.get("PERENNIAL_TEST_SHARES") == "all":
        return []
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=TESTS, capture_output=True, check=False)
    commit = zlib.crc32(asked.stdout)
    cases: dict[int, dict[tuple[int, str], list[pytest.Item]]] = {}
    for item in items:
        if share := item.get_closest_marker("share"):
            case = (_rank(item.path), str(item.path) if share.kwargs.get("together") else item.nodeid)
            cases.setdefault(share.args[0], {}).setdefault(case, []).append(item)
    return [
        item
        for shares, of_them in cases.items()
        for place, case in enumerate(
            sorted(of_them)
        )  # the longest side by side: each run has its part of them
        if (place + commit) % shares
        for item in of_them[case]
    ]


@pytest.hookimpl(trylast=True)  # after -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if left := set(_left_to_other_runs(items)):
        config.stash[_TO_OTHER_RUNS] = len(left)
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=list(left))
    _order(items)
    needed = {item: _needed(item) for item in items}
    for item, names in needed.items():
        if names and item.get_closest_marker("services") is None:
            item.add_marker(pytest.mark.services(*sorted(names)))
    if IN_CI:
        return  # a missing service fails in its fixture
    missing = _probe(set().union(*needed.values()))
    left_out = [item for item in items if needed[item] & missing.keys()]
    if left_out:
        config.stash[_MISSING] = missing
        for item in left_out:
            for name in needed[item] & missing.keys():
                config.stash[_LEFT_OUT][name] = config.stash[_LEFT_OUT].get(name, 0) + 1
        dropped = set(left_out)
        items[:] = [item for item in items if item not in dropped]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadfile`, where files that share a service stay together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByService(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return next(
                (start for start in ONE_SERVICE if nodeid.startswith(start)), super()._split_scope(nodeid)
            )

    return ByService(config, log)


def pytest_collection_finish() -> None:
    """What was collected stays for the whole run: Python need not look through it for garbage again and again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure shows the end of the log of the service that the test spoke to."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        found = {
            id(value): value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Service)
        }
        for each in found.values():
            with each.log.open("rb") as log:
                log.seek(max(0, each.log.stat().st_size - LOG_SHOWN_BYTES))
                shown = log.read().decode(errors="replace")
            report.sections.append((f"the end of {each.log.name}", shown))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells what it left out: each of them collects all tests."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[_LEFT_OUT]
        session.config.workeroutput["missing"] = session.config.stash[_MISSING]
        session.config.workeroutput["to_other_runs"] = session.config.stash[_TO_OTHER_RUNS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {})  # nothing of a worker that crashed
    node.config.stash[_LEFT_OUT].update(told.get("left_out", {}))
    node.config.stash[_MISSING].update(told.get("missing", {}))
    node.config.stash[_TO_OTHER_RUNS] = told.get("to_other_runs", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    advice = {
        "postgresql": postgresql.ADVICE,
        "redis": redis_servers.ADVICE,
        "s3": "",
        "chromium": chromium.ADVICE,
    }
    if others := config.stash[_TO_OTHER_RUNS]:
        terminalreporter.write_line(
            f"left to other commits' runs: {others} of the cases that are marked `share`; "
            "PERENNIAL_TEST_SHARES=all takes all."
        )
    for name, count in sorted(config.stash[_LEFT_OUT].items()):
        terminalreporter.write_line(
            f"left out: {count} tests that need {name} ({config.stash[_MISSING][name]}). {advice[name]}",
            yellow=True,
        )


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    url = _or_fail(postgresql.create)
    yield url
    postgresql.drop(url)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    if not redis_servers.can_start():
        reason = redis_servers.missing()
        if reason is not None:
            pytest.fail(f"Redis does not answer: {reason}. {redis_servers.ADVICE}", pytrace=False)
        yield redis_servers.shared_url()
        return
    server = redis_servers.RedisServer()
    _or_fail(server.start)
    yield server.url
    server.close()


@pytest.fixture
def redis_server() -> Iterator[redis_servers.RedisServer]:
    server = _or_fail(redis_servers.RedisServer)
    _or_fail(server.start)
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3() -> Iterator[s3_server.S3Server]:
    server = _or_fail(s3_server.S3Server.launch)
    open_store(server.settings(server.root)).prepare()
    yield server
    server.close()


@pytest.fixture(
    scope="module"
)  # while it is there, playwright's event loop runs: no other test could start one
def browser() -> Iterator[Any]:
    with ExitStack() as stack:
        yield _or_fail(lambda: stack.enter_context(chromium.launched()))


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("template") / "template.db"
    _with_tables(f"sqlite:///{path}")
    return path.read_bytes()


@pytest.fixture(scope="session")
def _postgres_template() -> Iterator[str]:
    url = _or_fail(postgresql.create)
    _with_tables(url)
    yield url
    postgresql.drop(url)


@pytest.fixture(scope="session")
def _postgres_of_tests(_postgres_template: str) -> Iterator[str]:
    url = postgresql.create(postgresql.name_of(_postgres_template))
    yield url
    postgresql.drop(url)


def _with_tables(url: str) -> None:
    db = Database(url)
    migrate.upgrade(db)  # as people have them: which of two indexes SQLite takes may depend on their order
    db.close()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql"))],
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        path = tmp_path / "perennial-test.db"
        path.write_bytes(request.getfixturevalue("_sqlite_template"))
        db = Database(f"sqlite:///{path}")
        yield db
        db.close()
        return
    url = request.getfixturevalue("_postgres_of_tests")
    db = Database(url)
    yield db
    db.close()
    postgresql.empty(url)


def _or_fail(start: Callable[[], T]) -> T:
    try:
        return start()
    except ServiceMissing as error:
        pytest.fail(str(error), pytrace=False)
