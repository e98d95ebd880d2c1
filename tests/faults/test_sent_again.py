"""A batch that is sent again after every kind of interruption: one task in the end, learned once.

The command line sends, something interrupts it, and a second machine sends the same images in
another container.
"""

from __future__ import annotations

import io
import shlex
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import httpx2
import pytest
from interruptions import INTERRUPTIONS, lose_response
from running_site import MODEL, ROOT, build_batch, run_site
from senders import OTHER_API, PATIENCE_S, Sent, Story

from tests.core.at_once import run_at_once
from tools.service import find_free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
IN_EACH_BUILD = (lose_response,)
"""The service has the batch and the machine that sent it does not know; the campaign has all. After those at
the machine that sends the service knows the batch or has none of it, as here.
`tests/core/publishing/test_publish.py` shows a worker's crash on each side of its commit.
"""
NIGHTS = 10
_numbers = count()


NEEDED = pytest.mark.services("postgresql", "redis", "s3")
SIZES = ["small", pytest.param("large", marks=[pytest.mark.campaign, NEEDED])]


@pytest.fixture(scope="module", params=SIZES)
def story(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    environment: dict[str, str] = {}
    if request.param == "large":
        s3 = request.getfixturevalue("s3")
        environment = {
            **s3.environment(),
            "PERENNIAL_STORE_URL": s3.url(s3.bucket, "sent-again"),
            "PERENNIAL_DATABASE_URL": request.getfixturevalue("postgres_url"),
            "PERENNIAL_BROKER_URL": request.getfixturevalue("redis_url"),
        }
    with run_site(tmp_path_factory.mktemp("again") / "site", request.param, environment) as made:
        if made.large:
            made.other_apis[OTHER_API] = find_free_port()
        found = Story(made, made.prepare(), tmp_path_factory.mktemp("machines"))
        found.start()
        yield found
        for process in found.sent:
            if process.poll() is None:
                process.kill()
        made.stop()


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
    zipped.write_bytes(build_batch(number))
    with zipfile.ZipFile(zipped) as archive:
        archive.extractall(folder)
    with tarfile.open(tmp_path / "week.tar.gz", "w:gz") as packed:
        packed.add(folder, ".")
    return Sent(model, str(zipped), str(tmp_path / "week.tar.gz"), str(folder))


def check_learned_once(story: Story, sent: Sent) -> None:
    """Check that the model has one task, which is learned, and one version of it."""
    (task,) = story.get(f"/models/{sent.model}/tasks")["items"]
    assert (task["standing"], task["version"]) == ("learned", 1)
    versions = story.get(f"/models/{sent.model}/versions")["items"]
    assert sorted(one["number"] for one in versions) == [0, 1]
    jobs = story.get(f"/jobs?model={sent.model}")["items"]
    assert [one["state"] for one in jobs] == ["succeeded"]


@pytest.mark.parametrize(
    "interruption",
    [
        pytest.param(
            one, marks=[] if one in IN_EACH_BUILD else pytest.mark.campaign, id=one.__name__
        )
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
    assert status == 0 and "it is task 1 (learned, version 1), and is not learned again" in told, (
        told
    )
    check_learned_once(story, sent)


@pytest.mark.campaign  # the next test sends it eight times at once
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


def test_requests_at_once_make_one_task(story: Story, sent: Sent) -> None:
    bodies = [
        (Path(sent.zipped).read_bytes(), "application/zip"),
        (Path(sent.tarred).read_bytes(), "application/gzip"),
    ]

    def send_task_request(number: int) -> httpx2.Response:
        content, kind = bodies[number % 2]
        port = story.port("ab"[number // 2 % 2])  # each container to each API process
        headers = {"Authorization": f"Bearer {story.key}", "Content-Type": kind}
        url = f"http://127.0.0.1:{port}/v1/models/{sent.model}/tasks"
        return httpx2.post(url, content=content, headers=headers, timeout=60)

    answers = run_at_once(send_task_request, range(8))
    assert sorted(one.status_code for one in answers) == [200] * 7 + [202], [
        one.text for one in answers
    ]
    assert len({one.json()["job"]["id"] for one in answers}) == 1
    assert story.run("submit", sent.model, sent.folder)[0] == 0
    check_learned_once(story, sent)


def fill_inbox(inbox: Path, night: int) -> None:
    """Put a folder of images of its own into a watched folder, and mark it."""
    folder = inbox / f"night-{night}"
    with zipfile.ZipFile(io.BytesIO(build_batch(next(_numbers)))) as archive:
        archive.extractall(folder)
    (folder / ".done").touch()


@pytest.mark.campaign
def test_the_crontab_line_learns_each_night_once_while_the_service_restarts(
    story: Story, sent: Sent, tmp_path: Path
) -> None:
    """Ten nights of the how-to's command; in every third, client and service end while a job is
    open.
    """
    how_to = (ROOT / "docs" / "howto" / "retrain-on-a-schedule.md").read_text()
    (line,) = [one for one in how_to.splitlines() if one.strip().startswith("30 2 * * *")]
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    places = {"inbox": str(inbox), "nightly": sent.model}
    command = [places.get(word, word) for word in shlex.split(line.partition("/bin/perennial ")[2])]
    assert command[0] == "watch-folder" and str(inbox) in command
    for night in range(NIGHTS):
        fill_inbox(inbox, night)
        process = story.command(*command)
        if night % 3 == 1:
            story.wait_for_tasks(sent.model, night + 1)
            process.kill()
            process.communicate()
            story.site.stop()
            status, told = story.run(*command)
            assert status == 5, told
            story.start()
            process = story.command(*command)
        out, told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, out + told
    tasks = story.get(f"/models/{sent.model}/tasks?limit=100")["items"]
    assert [one["standing"] for one in tasks] == ["learned"] * NIGHTS
    assert sorted(path.name for path in (inbox / "learned").iterdir()) == sorted(
        f"night-{n}" for n in range(NIGHTS)
    )
