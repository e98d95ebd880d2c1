"""Fixtures for all tests: services, databases, a browser.

Fixtures
    postgres_url   a fresh, empty PostgreSQL database for the module (`postgresql+psycopg://…`)
    redis_url      a Redis of the session (its own server where `redis-server` is installed)
    redis_server   a Redis of one test, to `stop()`, `freeze()`, `thaw()` and `start()` again
    s3             a real S3 server of the session: `.store_url`, `.access_key`, `.secret_key`,
                   `.url(bucket, prefix)`, `.environment()`, `.settings(data_dir, …)`; its bucket
                   exists
    receiver       a receiver of webhooks of one test
    browser        a Chromium of one file of tests, driven by playwright
    database       `core.database.session.Database` with all tables and no rows
    (`tests/plugins/databases.py`);
                   a test that changes tables takes `postgres_url`

The marker `services`
    Every test that uses one of these fixtures (or `database` on PostgreSQL) is marked by itself; a
    test that needs one without them says
    `@pytest.mark.services("postgresql", "redis", "s3", "chromium")`. Where a needed service does
    not answer, marked tests are left out and a line at the end of the run says which, and how to
    start it. Under `CI=true` nothing is left out: there they fail.

`tests/plugins/` holds the marker, the databases, the certificates and compiled SQL that are kept
between tests, the compilation of test files, the order of files, the tables of durations and the
end of services.

Other rules for all tests: settings of the developer's own service (`PERENNIAL_…`, except
`PERENNIAL_TEST_…`) do not reach them; a model that names no base starts from the small one
(`PERENNIAL_DEFAULT_BASE`); torch uses one thread and compiles nothing.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

for _name in [name for name in os.environ if name.startswith("PERENNIAL_")]:
    if not _name.startswith("PERENNIAL_TEST_"):
        del os.environ[_name]
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Of a run in the background of a shell: processes that tests start would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until all is collected: importing every test file makes many objects and no garbage
# The small base keeps tests quick. What is said of the base for photos is tested where it is asked
# for.
os.environ["PERENNIAL_DEFAULT_BASE"] = "perennial/resnet20-cifar100"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
sys.path.append(str(Path(__file__).parent / "services"))

import chromium  # noqa: E402
import receiver as receivers  # noqa: E402
import redis_server as redis_servers  # noqa: E402
import s3_server  # noqa: E402
from processes import ServiceMissing  # noqa: E402

from core.storage import open_object_store  # noqa: E402
from tools.service import RunningService  # noqa: E402

T = TypeVar("T")
pytest_plugins = [
    "tests.plugins.needed_services",
    "tests.plugins.databases",
    "tests.plugins.certificates",
    "tests.plugins.compiled_statements",
    "tests.plugins.compiled_tests",
    "tests.plugins.file_order",
    "tests.plugins.durations",
    "tests.plugins.endings",
]
LOG_SHOWN_BYTES = 6000


def pytest_configure(config: pytest.Config) -> None:
    # Only in the first process: workers of pytest-xdist inherit it.
    if "PERENNIAL_TEST_CATALOGUE" not in os.environ:
        os.environ["PERENNIAL_TEST_CATALOGUE"] = made = tempfile.mkdtemp(prefix="catalogue-")
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection: they stay for the whole run.

    Collections are rarer than Python's, which would take a tenth of the processor's time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the end of the log of the service that the test used to a failure."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        services = {
            id(value): value
            for value in getattr(item, "funcargs", {}).values()
            if isinstance(value, RunningService)
        }
        for service in services.values():
            with service.log.open("rb") as log:
                log.seek(max(0, service.log.stat().st_size - LOG_SHOWN_BYTES))
                shown = log.read().decode(errors="replace")
            report.sections.append((f"the end of {service.log.name}", shown))


@pytest.fixture(scope="session", autouse=True)
def nested_temporary_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give each pytest that a test starts a folder of its own for temporary files.

    In the shared one, it would delete what earlier runs left there before it ends, which takes
    minutes on a busy disk.
    """
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path_factory.mktemp("nested"))


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    if not redis_servers.can_start_server():
        reason = redis_servers.explain_absence()
        if reason is not None:
            pytest.fail(f"Redis does not answer: {reason}. {redis_servers.ADVICE}", pytrace=False)
        yield redis_servers.get_shared_url()
        return
    server = redis_servers.RedisServer()
    _start_or_fail(server.start)
    yield server.url
    server.close()


@pytest.fixture
def redis_server() -> Iterator[redis_servers.RedisServer]:
    server = _start_or_fail(redis_servers.RedisServer)
    _start_or_fail(server.start)
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3() -> Iterator[s3_server.S3Server]:
    server = _start_or_fail(s3_server.S3Server.launch)
    open_object_store(server.settings(server.root)).create_folder_or_bucket()
    yield server
    server.close()


@pytest.fixture
def receiver() -> Iterator[receivers.Receiver]:
    with receivers.run_receiver() as made:
        yield made


@pytest.fixture(
    scope="module"
)  # while it is open, playwright's event loop runs: no test can start another
def browser() -> Iterator[Any]:
    with ExitStack() as stack:
        yield _start_or_fail(lambda: stack.enter_context(chromium.launch_browser()))


def _start_or_fail(start: Callable[[], T]) -> T:
    try:
        return start()
    except ServiceMissing as error:
        pytest.fail(str(error), pytrace=False)
