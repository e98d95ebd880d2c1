"""The log of a job: one that succeeds, one that is rejected, and one that is paused and
cancelled.
"""

import io
import re
import zipfile

import pytest

from tests.e2e import small
from tests.e2e.small import WEEKS
from tests.rest import Rest

pytestmark = pytest.mark.slow

METHOD = {"name": "der++", "buffer": 40}
MOST_LINES = 50
"""The most lines in the log of an ordinary job."""


def add_flaws(archive: bytes) -> bytes:
    """Add an image that cannot be decoded and one that repeats another."""
    with zipfile.ZipFile(io.BytesIO(archive)) as old:
        files = {name: old.read(name) for name in old.namelist()}
    name, data = next(iter(files.items()))
    folder = name.rpartition("/")[0]
    return small.pack_zip({**files, f"{folder}/torn.png": data[:40], f"{folder}/twice.png": data})


@pytest.fixture(scope="module")
def job(client: Rest) -> str:
    """The id of a job that succeeded."""
    small.create_small_model(client, "talking", METHOD, recipe={"epochs": 60})
    (end,) = small.learn_batches(client, "talking", add_flaws(WEEKS[0]), name="week-31")
    return end.id


def read_log(client: Rest, job: str) -> list[str]:
    return [f"{line['level']}: {line['message']}" for line in client.items(f"/v1/jobs/{job}/logs")]


def test_the_log_of_a_job_names_each_of_its_steps_in_order(client: Rest, job: str) -> None:
    said = read_log(client, job)
    wanted = [
        r"info: Accepted as task 1 \(week-31\): 66 images of 2 classes by their names, [\d,]+ "
        r"bytes\.",
        r"info: Attempt 1 began; the archive is decoded first\.",
        r"info: Decoded 65 images of 2 classes: [\d,]+ to learn from, [\d,]+ held out to measure\.",
        r"warning: 1 image rejected: .*torn\.png \(.+\)\.",
        r"info: 1 image repeats another one of the batch, byte for byte\.",
        r"info: Measuring version 0, which the task starts from, on the held-out images of this "
        r"task\.",
        r"info: Training by der\+\+ with sgd at depth 5: 60 epochs, [\d,]+ steps, on \d+ images of "
        r"2 classes; .*",
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


def test_a_log_is_shorter_than_the_events_of_progress(client: Rest, job: str) -> None:
    events = [event["type"] for event in client.items(f"/v1/jobs/{job}/events")]
    print({kind: events.count(kind) for kind in sorted(set(events))})
    assert 12 < events.count("log") <= MOST_LINES
    assert events.count("log") < events.count("progress")


def test_the_log_of_a_rejected_batch_says_why(client: Rest) -> None:
    small.create_small_model(client, "broken", METHOD)
    job = client.submit("broken", small.make_spoiled_batch(6)).id
    assert client.wait(job).state == "rejected"
    rejected, ended = read_log(client, job)[-2:]
    assert re.fullmatch(
        r"warning: 12 images rejected: (cat|dog)/\d\.png \(.+\); .*; and 9 more, see the task's "
        r"report\.",
        rejected,
    )
    assert ended == "error: Rejected: Not one image of the batch could be decoded."


# tests/faults/test_worker_deaths.py reads the log of a job that was paused and went on
@pytest.mark.campaign
def test_the_log_of_a_paused_job_names_the_pause_and_the_snapshot_it_resumed_from(
    client: Rest,
) -> None:
    small.create_small_model(client, "paused", METHOD, recipe={"epochs": 10_000, "batch_size": 1})
    job = client.submit(
        "paused", WEEKS[0]
    ).id  # it runs for minutes: nothing below depends on its speed
    small.wait_for_job_condition(client, job, lambda seen: (seen["progress"]["epoch"] or 0) > 1)
    client.jobs.pause(job)
    small.wait_for_job_condition(client, job, lambda seen: seen["state"] == "paused")
    events = client.items(f"/v1/jobs/{job}/events")
    kept = [event["data"] for event in events if event["type"] == "snapshot"][-1]
    told = [
        event["data"] for event in events if event["type"] == "progress" and "step" in event["data"]
    ][-1]
    steps = told["total_steps"] // 10_000  # of an epoch
    for each in (kept, told):
        assert each["epoch"] == (each["step"] - 1) // steps + 1
    client.jobs.resume(job)
    small.wait_for_job_condition(
        client, job, lambda seen: (seen["progress"]["step"] or 0) > kept["step"]
    )
    client.jobs.cancel(job)
    small.wait_for_job_condition(client, job, lambda seen: seen["state"] == "cancelled")
    said = [line for line in read_log(client, job) if ": Epoch " not in line]
    assert [line.partition(": ")[2] for line in said[-7:]] == [
        "A pause was asked for: the work stops at its next step, with a snapshot.",
        "Paused: the job keeps its place, and later jobs of the model wait.",
        "Resumed: the job waits for a worker.",
        "Attempt 2 began; the images are decoded already.",
        f"Going on from a snapshot: epoch {kept['epoch']} of 10,000, step {kept['step']:,} of "
        f"{told['total_steps']:,}.",
        "A cancel was asked for.",
        "Cancelled.",
    ]
