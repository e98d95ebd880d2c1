"""What the service says in a first hour: at its address, of a slip in a request, and in the log of a job."""

import io
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rest import Json, Rest
from tools import digits, service

pytestmark = pytest.mark.share(4, together=True)

RECIPE = {"method": {"name": "der++", "buffer": 100}, "epochs": 60, "batch_size": 16}
LINES = 50
"""Of the log of a usual job."""


def with_a_flaw(archive: bytes) -> bytes:
    """The archive with one image that cannot be decoded and one that repeats another."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        folder, _, _ = name.rpartition("/")
        new.writestr(f"{folder}/torn.png", old.read(name)[:40])
        new.writestr(f"{folder}/twice.png", old.read(name))
    return out.getvalue()


@pytest.fixture(scope="module")
def job(running: service.Service) -> str:
    """A learned batch."""
    client = Rest(running.url, running.key)
    client.models.create(
        "talking", image={"size": 16, "channels": 1}, recipe=RECIPE, architecture="small-cnn"
    )
    found = client.submit("talking", with_a_flaw(digits.archives()[0][1]), name="week-31").id
    assert client.wait(found).state == "succeeded"
    return found


def log(client: Rest, job: str) -> list[str]:
    return [f"{line['level']}: {line['message']}" for line in client.items(f"/v1/jobs/{job}/logs")]


def test_the_address_says_where_to_go(client: Rest) -> None:
    browser = client.http.get("/", headers={"Authorization": "", "Accept": "text/html"})
    assert browser.status_code == 303 and browser.headers["location"] == "/ui"
    told = client.http.get("/", headers={"Authorization": ""})
    assert told.status_code == 200
    assert client.http.get(told.json()["docs"]).status_code == 200
    head = client.http.head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == len(told.content)


def test_a_slip_in_a_request_is_answered_with_the_field_that_was_meant(client: Rest) -> None:
    slips = {
        "image_size": ({"image_size": 64}, "image.size"),
        "epochs": ({"epochs": 3}, "recipe.epochs"),
        "recipe.lr": ({"recipe": {"lr": 0.1}}, "recipe.optimizer.lr"),
        "recipe.method.buffer_size": ({"recipe": {"method": {"name": "der++", "buffer_size": 9}}},
                                      "recipe.method.buffer"),
        "gate.forgetting": ({"gate": {"forgetting": 0.1}}, "gate.max_forgetting"),
    }  # fmt: skip
    for field, (body, meant) in slips.items():
        answer = client.http.post("/v1/models", json={"name": "slip", "scenario": "class", **body})
        assert answer.status_code == 422
        assert f"{field}: unknown field; did you mean {meant}? known here: " in answer.json()["detail"]


def test_a_model_without_an_image_size_says_what_that_means(client: Rest) -> None:
    said, _kept = client.models.create("unsaid", architecture="small-cnn").warnings
    assert "32 × 32 pixels" in said and '"image": {"size": 64}' in said


def test_the_log_of_a_job_tells_its_whole_story(client: Rest, job: str) -> None:
    said = log(client, job)
    print("\n".join(said))
    wanted = [
        r"info: Accepted as task 1 \(week-31\): 362 images of 2 classes by their names, [\d,]+ bytes\.",
        r"info: Attempt 1 began; the archive is decoded first\.",
        r"info: Decoded 361 images of 2 classes: [\d,]+ to learn from, [\d,]+ held out to measure\.",
        r"warning: 1 image rejected: .*torn\.png \(.+\)\.",
        r"info: 1 image repeats another one of the batch, byte for byte\.",
        r"info: Measuring version 0, which the task starts from, on the held-out images of this task\.",
        r"info: Training by der\+\+ with sgd at depth 5: 60 epochs, [\d,]+ steps, on \d+ images of 2 classes; .*",
        r"info: Epoch 3 of 60, loss [\d.e-]+(, [\d,]+ images/s)?\.",
        r"info: Epoch 60 of 60, loss .*",
        r"info: Trained\. .*",
        r"info: Measuring the new version .*",
        r"info: Accuracy of the new version: task 1 \d+\.\d% \(\d+ of \d+\)\.",
    ]
    rest = iter(said)
    for pattern in wanted:
        assert any(re.fullmatch(pattern, line) for line in rest), (
            f"{pattern} is missing or out of order: {said}"
        )


def test_a_log_is_short_beside_what_is_measured(client: Rest, job: str) -> None:
    events = [event["type"] for event in client.items(f"/v1/jobs/{job}/events")]
    print({kind: events.count(kind) for kind in sorted(set(events))})
    assert 12 < events.count("log") <= LINES
    assert events.count("log") < events.count("progress")


def test_the_log_of_a_rejected_batch_says_why(client: Rest) -> None:
    client.models.create("broken", image={"size": 16, "channels": 1}, recipe=RECIPE, architecture="small-cnn")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for index in range(6):
            file.writestr(f"cat/{index}.png", b"\x89PNG\r\n\x1a\n nothing")
            file.writestr(f"dog/{index}.png", b"\x89PNG\r\n\x1a\n nothing")
    job = client.submit("broken", out.getvalue()).id
    assert client.wait(job).state == "rejected"
    rejected, ended = log(client, job)[-2:]
    assert re.fullmatch(
        r"warning: 12 images rejected: (cat|dog)/\d\.png \(.+\); .*; and 9 more, see the task's report\.",
        rejected,
    )
    assert ended == "error: Rejected: Not one image of the batch could be decoded."


def test_the_log_of_a_stopped_job_says_that_it_was_stopped_and_from_where_it_went_on(client: Rest) -> None:
    client.models.create(
        "paused",
        image={"size": 16, "channels": 1},
        recipe={**RECIPE, "epochs": 2000},
        architecture="small-cnn",
    )
    job = client.submit("paused", digits.archives()[0][1]).id
    until(client, job, lambda seen: (seen["progress"]["epoch"] or 0) > 1)
    client.jobs.pause(job)
    until(client, job, lambda seen: seen["state"] == "paused")
    events = client.items(f"/v1/jobs/{job}/events")
    kept = [event["data"] for event in events if event["type"] == "snapshot"][-1]
    told = [event["data"] for event in events if event["type"] == "progress" and "step" in event["data"]][-1]
    steps = told["total_steps"] // 2000  # of an epoch
    for each in (kept, told):
        assert each["epoch"] == (each["step"] - 1) // steps + 1
    client.jobs.resume(job)
    until(client, job, lambda seen: (seen["progress"]["step"] or 0) > kept["step"])
    client.jobs.cancel(job)
    until(client, job, lambda seen: seen["state"] == "cancelled")
    said = [line for line in log(client, job) if ": Epoch " not in line]
    print("\n".join(said))
    assert [line.partition(": ")[2] for line in said[-7:]] == [
        "A pause was asked for: the work stops at its next step, with a snapshot.",
        "Paused: the job keeps its place, and later jobs of the model wait.",
        "Resumed: the job waits for a worker.",
        "Attempt 2 began; the images are decoded already.",
        f"Going on from a snapshot: epoch {kept['epoch']} of 2,000, step {kept['step']:,} of {told['total_steps']:,}.",
        "A cancel was asked for.",
        "Cancelled.",
    ]


def until(client: Rest, job: str, wanted: Callable[[Json], bool], seconds: float = 60.0) -> None:
    """Poll a job until it is as wanted."""
    deadline = time.monotonic() + seconds
    while not wanted(answer := client.get(f"/v1/jobs/{job}")):
        assert time.monotonic() < deadline and not answer["is_terminal"], answer
        time.sleep(0.05)


def test_a_broken_torchvision_stops_the_start_with_the_command_that_mends_it(tmp_path: Path) -> None:
    (tmp_path / "path" / "torchvision").mkdir(parents=True)
    broken = "raise RuntimeError('operator torchvision::nms does not exist')"
    (tmp_path / "path" / "torchvision" / "__init__.py").write_text(broken)
    with (
        pytest.raises(service.NotReady) as caught,
        service.running(tmp_path / "data", {"PYTHONPATH": str(tmp_path / "path")}),
    ):
        pass
    said = str(caught.value)
    print(said)
    assert "says “operator torchvision::nms does not exist”" in said and " -m pip install " in said
    assert "Traceback" not in said
