"""A service without everything that only Linux has, as far as Linux can show it: a model learns and
predicts.

`HIDE` takes away functions and paths that macOS lacks, in each Python process of the service. Forks
of a process that has loaded torch are taken for unsafe.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial import Perennial
from tests.client.small_batches import SMALL, reduce_batch
from tools import digits, service

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HIDE = """
import builtins, io, os, signal, sys

for name in ("pipe2", "sched_getaffinity", "posix_fallocate", "copy_file_range", "pidfd_open"):
    delattr(os, name)
del signal.pidfd_send_signal


def hide(function):
    def call(path=".", *arguments, **options):
        if not isinstance(path, int) and os.fsdecode(path).startswith(("/proc", "/sys/fs")):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *arguments, **options)

    return call


for module, names in ((io, ["open"]), (builtins, ["open"]),
                      (os, ["open", "stat", "readlink", "listdir", "scandir"])):
    for name in names:
        setattr(module, name, hide(getattr(module, name)))

sys.path.append({root!r})
import core.platforms

core.platforms.can_platform_fork_with_torch = lambda: False
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.RunningService]:
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "sitecustomize.py").write_text(HIDE.replace("{root!r}", repr(str(ROOT))))
    environment = {"PERENNIAL_THREADS": "1", "PYTHONPATH": str(folder)}
    with service.run_temporary_service(folder / "data", environment) as found:
        yield found


@pytest.mark.campaign  # tests/core/test_platforms.py shows what is asked of a system
def test_a_model_learns_and_predicts(running: service.RunningService) -> None:
    with Perennial(running.key, base_url=running.url) as client:
        client.models.create("digits", **SMALL)
        _, batch = next(iter(digits.build_digit_archives()))
        done = client.submit("digits", reduce_batch(batch, test=4, train=8), name="one").wait(240)
        assert done.version == 1
        assert len(client.predict("digits", [[[0] * 8] * 8]).predictions) == 1
    assert "Traceback" not in running.log.read_text()
