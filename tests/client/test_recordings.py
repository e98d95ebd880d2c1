"""Recordings of commands that wait, on a terminal and without one, against a real service and a
real hub.

`PERENNIAL_TEST_RECORDINGS=DIR` keeps the screens as text, to look at them.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hub_server
import pytest
from small_batches import SMALL
from terminal import ROOT, Recording, record_command
from weights_files import MODEL, REPOSITORY, build_random_weights

from perennial import Perennial
from perennial.cli.exits import ExitStatus
from tools import service

pytestmark = pytest.mark.campaign
LASTS = {
    "method": "finetune",
    "epochs": 10_000,
    "batch_size": 4,
    "optimizer": {
        "name": "sgd",
        "lr": 0.001,
    },  # with the default these few images end in a loss of NaN
}
"""Minutes: no test waits for its end."""


@pytest.fixture(scope="module")
def hub() -> Iterator[hub_server.Hub]:
    with hub_server.run_hub() as found:
        yield found


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, hub: hub_server.Hub
) -> Iterator[service.RunningService]:
    """A service that fetches weights from the hub of these tests."""
    settings = {**hub.environment(), "PERENNIAL_THREADS": "1"}
    with service.run_temporary_service(tmp_path_factory.mktemp("recorded"), settings) as found:
        yield found


@pytest.fixture(scope="module")
def client(running: service.RunningService) -> Iterator[Perennial]:
    with Perennial(running.key, base_url=running.url) as found:
        yield found


@pytest.fixture
def weeks(archives: list[bytes], tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"week-{number}.zip" for number, _ in enumerate(archives, start=31)]
    for file, archive in zip(files, archives, strict=True):
        file.write_bytes(archive)
    return files


class Recorder:
    """Records commands, each under the name of its test and a number."""

    def __init__(self, running: service.RunningService, name: str) -> None:
        self._running, self._name, self._number = running, name, 0

    def __call__(
        self, *arguments: str, typed: tuple[str, bytes] | None = None, limit_s: float = 120
    ) -> Recording:
        found = record_command(
            self._running.url, self._running.key, *arguments, typed=typed, limit_s=limit_s
        )
        text = "\n\n".join("\n".join(screen) for screen in found.screens)
        self._keep(arguments, f"{text}\n\nexit status {found.status}\n")
        return found

    def piped(self, *arguments: str) -> tuple[int, str]:
        """Exit status and standard error of a command without a terminal."""
        done = subprocess.run(
            [sys.executable, "-m", "perennial", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "client"),
                "PERENNIAL_URL": self._running.url,
                "PERENNIAL_API_KEY": self._running.key,
            },
        )
        self._keep(arguments, f"{done.stdout}{done.stderr}\nexit status {done.returncode}\n")
        return done.returncode, done.stderr

    def _keep(self, arguments: tuple[str, ...], text: str) -> None:
        folder = os.environ.get("PERENNIAL_TEST_RECORDINGS")
        if folder:
            self._number += 1
            file = Path(folder) / f"{self._name}-{self._number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"$ perennial {' '.join(arguments)}\n{text}")


@pytest.fixture
def recorded(running: service.RunningService, request: pytest.FixtureRequest) -> Recorder:
    return Recorder(running, request.node.name)


def find_percentages(lines: list[str]) -> list[int]:
    """Return the percentages of the whole job in lines of a log."""
    return [int(found[1]) for line in lines if (found := re.search(r" (\d+)%", line))]


def test_a_submit_is_followed_to_its_version(
    recorded: Recorder, client: Perennial, weeks: list[Path]
) -> None:
    client.models.create("digits", **SMALL)
    found = recorded("submit", "digits", str(weeks[0]))
    assert found.status == ExitStatus.DONE
    assert "Version 1 of digits is published, and in production." in found.words
    bars = [[line for line in screen if "━" in line and "%" in line] for screen in found.screens]
    assert max(map(len, bars)) <= 2, "one bar of the upload, one of the job"
    of_the_job = [share for bar in bars for share in find_percentages(bar[-1:])]
    assert of_the_job[-1] == 100


def test_a_second_batch_is_followed_by_what_the_first_one_cost(
    recorded: Recorder, client: Perennial, weeks: list[Path]
) -> None:
    client.models.create("twice", **SMALL)
    client.submit("twice", weeks[0]).wait(120)
    job = client.submit("twice", weeks[1])
    found = recorded("jobs", "watch", job.id)
    assert found.status == ExitStatus.DONE
    seen = [
        share
        for screen in found.screens
        for share in find_percentages([line for line in screen if "━" in line])
    ]
    assert seen == sorted(seen)
    for command in ("tasks", "metrics"):
        words = recorded(command, *(["list"] if command == "tasks" else []), "twice").words
        assert "* in production: version 2." in words
    assert (
        "“now” is version 2, in production and the newest published."
        in recorded("tasks", "list", "twice").words
    )


def test_a_held_version_is_told_with_what_settles_it(
    recorded: Recorder, client: Perennial, weeks: list[Path]
) -> None:
    client.models.create("strict", **{**SMALL, "gate": {"min_acc": 1.0}})
    found = recorded("submit", "strict", str(weeks[0]))
    assert found.status == ExitStatus.HELD
    assert "Version 1 of strict is held by the gate" in found.words


def test_ctrl_c_leaves_the_job_and_says_how_to_come_back(
    recorded: Recorder, client: Perennial, weeks: list[Path]
) -> None:
    client.models.create("long", **{**SMALL, "recipe": LASTS})
    found = recorded("submit", "long", str(weeks[0]), typed=("train", b"\x03"))
    assert found.status == ExitStatus.INTERRUPTED
    assert "goes on. Come back with:" in found.words
    job = next(iter(client.jobs.list(model="long")))
    assert not job.is_terminal
    client.jobs.cancel(job.id)


def test_without_a_terminal_there_is_a_line_every_15_seconds(
    recorded: Recorder, client: Perennial, weeks: list[Path]
) -> None:
    client.models.create("nightly", **{**SMALL, "recipe": LASTS})
    status, told = recorded.piped("submit", "nightly", str(weeks[0]), "--timeout", "50")
    assert status == ExitStatus.STILL_RUNNING
    lines = [line for line in told.splitlines() if " train " in line]
    assert len(lines) >= 2 and "left" in lines[-1]
    assert find_percentages(lines) == sorted(find_percentages(lines))
    client.jobs.cancel(next(iter(client.jobs.list(model="nightly"))).id)


@pytest.mark.parametrize("fault", ["unknown", "wrong digest", "down"])
def test_a_base_that_cannot_be_fetched_ends_what_waits_for_it(
    recorded: Recorder, client: Perennial, weeks: list[Path], hub: hub_server.Hub, fault: str
) -> None:
    name = fault.replace(" ", "-")
    hub.files.clear()
    if fault == "wrong digest":
        hub.put(REPOSITORY, build_random_weights())
        hub.digests[REPOSITORY, "model.safetensors"] = hashlib.sha256(b"other").hexdigest()
    if fault == "down":
        hub.close()
    create = ["--architecture", f'{{"name": "timm", "model": "{MODEL["architecture"]["model"]}"}}']
    create += ["--base", "pretrained", "--image", '{"size": 32, "channels": 3}']
    found = recorded("models", "create", name, *create, "--wait")
    assert found.status == ExitStatus.NO_BASE
    assert f"Model {name} is made, without its base." in found.words
    why = {"unknown": "no repository", "wrong digest": "digest", "down": "cannot be reached"}[fault]
    assert why in found.words
    sent = recorded("submit", name, str(weeks[0]))
    assert sent.status == ExitStatus.NO_BASE and why in sent.words
    assert "This batch is kept, and learned once they are there." in sent.words
    job = next(iter(client.jobs.list(model=name, kind="learn"))).id
    assert recorded("jobs", "watch", job).status == ExitStatus.NO_BASE
    assert recorded.piped("jobs", "watch", job, "--json")[0] == ExitStatus.NO_BASE
    assert recorded.piped("submit", name, str(weeks[0]))[0] == ExitStatus.NO_BASE
