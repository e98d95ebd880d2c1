"""A batch that is sent again after every kind of interruption: one task in the end, learned once.

The command line sends, something interrupts it, and a second machine sends the same images in another container.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fault_proxy import FaultProxy
from running_site import API, MODEL, ROOT, Site, batch, site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
WORKER = "one"
PATIENCE_S = 300
_numbers = count()


@dataclass
class Story:
    """A service with a worker, its key, and machines that send to it: each has a home of its own."""

    site: Site
    key: str
    folder: Path
    sent: list[subprocess.Popen[str]] = field(default_factory=list)

    def command(self, *words: str, machine: str = "a", port: int | None = None) -> subprocess.Popen[str]:
        """Begin a command of the client on a machine."""
        home = self.folder / machine
        home.mkdir(exist_ok=True)
        url = f"http://127.0.0.1:{port or self.site.port}"
        own = {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home),
            "PERENNIAL_URL": url,
            "PERENNIAL_API_KEY": self.key,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "perennial", *words],
            cwd=ROOT, env={**os.environ, **own}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.sent.append(process)
        return process

    def run(self, *words: str, **options: Any) -> tuple[int, str]:
        """Run a command to its end: exit status, and all that it said."""
        process = self.command(*words, **options)
        out, told = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out + told

    def get(self, path: str) -> Any:
        """The JSON of an answer."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx2.get(f"{self.site.url}/v1{path}", headers=headers, timeout=60).json()

    def count_tasks(self, model: str) -> int:
        return len(self.get(f"/models/{model}/tasks?limit=100")["items"])

    def has_task(self, model: str) -> bool:
        return self.count_tasks(model) > 0

    @contextmanager
    def idle(self) -> Iterator[None]:
        """No job begins in the block: the worker is away."""
        worker = self.site.processes[WORKER]
        worker.terminate()
        worker.wait(PATIENCE_S)
        try:
            yield
        finally:
            self.site.start(WORKER)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; a service that is away meets none."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._meets(condition):
            assert time.monotonic() < deadline, (self.site.folder / f"{API}.log").read_text()[-3000:]
            time.sleep(0.05)

    @staticmethod
    def _meets(condition: Callable[[], bool]) -> bool:
        with suppress(httpx2.TransportError):
            return condition()
        return False

    def arm(self, point: str) -> None:
        (self.site.points / point).write_text("")

    def revive(self) -> None:
        """Start again what has died, and wait until it answers."""
        self.site.revive()
        self.until(self.is_ready)

    def is_ready(self) -> bool:
        return httpx2.get(f"{self.site.url}/readyz", timeout=5).status_code == 200

    def until_dead(self, name: str) -> None:
        self.site.processes[name].wait(PATIENCE_S)


SIZES = ["small", pytest.param("large", marks=[pytest.mark.campaign, pytest.mark.services])]


@pytest.fixture(scope="module", params=SIZES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    environment: dict[str, str] = {}
    if request.param == "large":
        s3 = request.getfixturevalue("s3")
        environment = {
            **s3.environment(),
            "PERENNIAL_STORE_URL": s3.url(s3.bucket, "sent-again"),
            "PERENNIAL_DATABASE_URL": request.getfixturevalue("postgres_url"),
            "PERENNIAL_BROKER_URL": request.getfixturevalue("redis_url"),
        }
    with site(tmp_path_factory.mktemp("again") / "site", request.param, environment) as made:
        found = Story(made, made.prepare(), tmp_path_factory.mktemp("machines"))
        for name in (API, WORKER):
            made.start(name)
        found.until(found.is_ready)
        yield found
        for process in found.sent:
            if process.poll() is None:
                process.kill()
        made.stop()


@dataclass
class Sent:
    """A model, and one batch of it in three containers."""

    model: str
    zipped: str
    tarred: str
    folder: str


@pytest.fixture
def sent(story: Story, tmp_path: Path) -> Sent:
    number = next(_numbers)
    model = f"model-{number}"
    headers = {"Authorization": f"Bearer {story.key}"}
    made = httpx2.post(
        f"{story.site.url}/v1/models", json={**MODEL, "name": model}, headers=headers, timeout=60
    )
    assert made.status_code == 201, made.text
    zipped, folder = tmp_path / "week.zip", tmp_path / "week"
    zipped.write_bytes(batch(number))
    with zipfile.ZipFile(zipped) as archive:
        archive.extractall(folder)
    with tarfile.open(tmp_path / "week.tar.gz", "w:gz") as packed:
        packed.add(folder, ".")
    return Sent(model, str(zipped), str(tmp_path / "week.tar.gz"), str(folder))


def time_out(story: Story, sent: Sent) -> None:
    """The client's own limit is reached."""
    with story.idle():
        status, told = story.run("submit", sent.model, sent.zipped, "--timeout", "0.5")
    assert status == 14 and "Come back with: perennial jobs watch job_" in told, told


def interrupt(story: Story, sent: Sent, number: signal.Signals, expected: int) -> None:
    """The client gets a signal while it follows the job."""
    with story.idle():
        process = story.command("submit", sent.model, sent.zipped)
        assert process.stderr is not None
        assert any(" queued" in line for line in process.stderr), "it did not follow its job"
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == expected


def ctrl_c(story: Story, sent: Sent) -> None:
    interrupt(story, sent, signal.SIGINT, 130)


def terminate(story: Story, sent: Sent) -> None:
    interrupt(story, sent, signal.SIGTERM, -signal.SIGTERM)


def kill(story: Story, sent: Sent) -> None:
    interrupt(story, sent, signal.SIGKILL, -signal.SIGKILL)


def cut_in_batch(story: Story, sent: Sent) -> None:
    """The network breaks each connection after some bytes of the batch."""
    with closing(FaultProxy(story.site.port)) as proxy:
        proxy.fault("cut", [3000])
        status, told = story.run("submit", sent.model, sent.zipped, port=proxy.port)
        assert status == 5 and proxy.cuts > 1, told
    assert not story.has_task(sent.model)


def lose_machine_in_batch(story: Story, sent: Sent) -> None:
    """The machine is lost in the middle of the batch: half of it has come, and the connection is reset."""
    data = Path(sent.zipped).read_bytes()
    head = (
        f"POST /v1/models/{sent.model}/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {story.key}\r\n"
        f"Content-Type: application/zip\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", story.site.port), PATIENCE_S) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.sendall(head.encode() + data[: len(data) // 2])
    assert not story.has_task(sent.model)


def kill_api(story: Story, sent: Sent, point: str) -> None:
    """The API dies with the request, and stays away until the client gives up."""
    story.arm(point)
    status, told = story.run("submit", sent.model, sent.zipped)
    assert status == 5, told
    story.until_dead(API)
    story.revive()


def kill_api_before(story: Story, sent: Sent) -> None:
    kill_api(story, sent, "submit-stored")
    assert not story.has_task(sent.model)


def lose_answer(story: Story, sent: Sent) -> None:
    kill_api(story, sent, "submit-committed")
    assert story.has_task(sent.model)


def kill_worker(story: Story, sent: Sent, point: str) -> None:
    """The worker dies with the job, and the client is away before it is back."""
    story.arm(point)
    process = story.command("submit", sent.model, sent.zipped)
    story.until_dead(WORKER)
    process.kill()
    process.wait()
    story.revive()


def kill_worker_at_ingest(story: Story, sent: Sent) -> None:
    kill_worker(story, sent, "ingest-committed")


def kill_worker_before_publish(story: Story, sent: Sent) -> None:
    kill_worker(story, sent, "publish-stored")


def kill_worker_after_publish(story: Story, sent: Sent) -> None:
    kill_worker(story, sent, "publish-committed")


def restart(story: Story, sent: Sent) -> None:
    """The whole service is restarted, and the machine that sent with it."""
    process = story.command("submit", sent.model, sent.zipped)
    story.until(lambda: story.has_task(sent.model))
    process.kill()
    process.wait()
    story.site.stop()
    for name in (API, WORKER):
        story.site.start(name)
    story.until(story.is_ready)


INTERRUPTIONS: list[Callable[[Story, Sent], None]] = [
    time_out, ctrl_c, terminate, kill, cut_in_batch, lose_machine_in_batch, kill_api_before, lose_answer,
    kill_worker_at_ingest, kill_worker_before_publish, kill_worker_after_publish, restart,
]  # fmt: skip
IN_EACH_BUILD = (ctrl_c, lose_answer, kill_worker_after_publish)
"""One at the machine that sends, one at the service, one at the worker; the campaign has all."""


def check_learned_once(story: Story, sent: Sent) -> None:
    """The model has one task, which is learned, and one version of it."""
    (task,) = story.get(f"/models/{sent.model}/tasks")["items"]
    assert (task["standing"], task["version"]) == ("learned", 1)
    versions = story.get(f"/models/{sent.model}/versions")["items"]
    assert sorted(one["number"] for one in versions) == [0, 1]
    jobs = story.get(f"/jobs?model={sent.model}")["items"]
    assert [one["state"] for one in jobs] == ["succeeded"]


@pytest.mark.parametrize(
    "interruption",
    [
        pytest.param(one, marks=[] if one in IN_EACH_BUILD else pytest.mark.campaign, id=one.__name__)
        for one in INTERRUPTIONS
    ],
)
def test_a_batch_that_is_sent_again_is_one_task(
    interruption: Callable[[Story, Sent], None], story: Story, sent: Sent
) -> None:
    interruption(story, sent)
    status, told = story.run("submit", sent.model, sent.tarred, machine="b")
    assert status == 0, told
    check_learned_once(story, sent)
    status, told = story.run("submit", sent.model, sent.folder, machine="c")
    assert status == 0 and "it is task 1 (learned, version 1), and is not learned again" in told, told
    check_learned_once(story, sent)


def test_two_machines_at_once_send_one_task(story: Story, sent: Sent) -> None:
    with story.idle():
        both = [
            story.command("submit", sent.model, file, machine=machine)
            for machine, file in (("a", sent.zipped), ("b", sent.folder))
        ]
        story.until(lambda: story.has_task(sent.model))
    for process in both:
        out, told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, out + told
    check_learned_once(story, sent)


@pytest.mark.campaign
def test_the_line_of_cron_learns_each_night_once_with_a_service_that_restarts(
    story: Story, sent: Sent, tmp_path: Path
) -> None:
    """Ten nights of the how-to's command: what is there in the evening is learned, whatever was lost meanwhile."""
    how_to = (ROOT / "docs" / "howto" / "retrain-on-a-schedule.md").read_text()
    (line,) = [one for one in how_to.splitlines() if one.startswith("30 2 * * *")]
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    places = {"inbox": str(inbox), "nightly": sent.model}
    command = [places.get(word, word) for word in shlex.split(line.partition(" perennial ")[2])]
    assert command[0] == "watch-folder" and str(inbox) in command
    nights = 10
    for night in range(nights):
        with zipfile.ZipFile(sent.zipped) as archive:  # of each night other labels
            for name in archive.namelist():
                path = inbox / f"night-{night}" / f"n{night}-{name}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
        (inbox / f"night-{night}" / ".done").touch()
        process = story.command(*command)
        if night % 3 == 1:  # the service goes away in the night, and nobody is there
            story.until(lambda night=night: story.count_tasks(sent.model) > night)
            process.kill()
            process.communicate()
            story.site.stop()
            assert story.run(*command)[0] == 5
            for name in (API, WORKER):
                story.site.start(name)
            story.until(story.is_ready)
            process = story.command(*command)
        out, told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, out + told
    tasks = story.get(f"/models/{sent.model}/tasks?limit=100")["items"]
    assert [one["standing"] for one in tasks] == ["learned"] * nights
    assert sorted(path.name for path in (inbox / "learned").iterdir()) == sorted(
        f"night-{n}" for n in range(nights)
    )
