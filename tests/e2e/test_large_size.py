"""The large size in operation: downloads from S3; in the campaign a broker that falls silent, and two
workers.

One service of an API process and a Celery worker, for the whole session.
"""

import base64
import hashlib
import io
import signal
import zipfile
from pathlib import Path

import httpx2
import large_size
import psutil
import pytest
from large_size import LargeSize

from tests.e2e import small
from tests.e2e.guarded_site import Site
from tests.e2e.holder import Holder
from tests.e2e.small import WEEKS
from tests.rest import Json, Rest
from tools import service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services("postgresql", "redis", "s3"),
]


@pytest.fixture
def large(large_site: Site) -> LargeSize:
    return large_site.large


@pytest.fixture
def two_workers(large: LargeSize) -> None:
    """The other worker, which stays for the rest of the session."""
    for name in large_size.WORKERS:
        if name not in large.processes:
            large.start_worker(name)


@pytest.fixture(scope="module")
def client(large_site: Site) -> Rest:
    return large_site.client


@pytest.fixture(scope="module")
def learned(client: Rest) -> str:
    """The path of a learned version, whose bytes are in S3."""
    small.create_small_model(client, "learned", "finetune", recipe={"epochs": 8})
    small.learn_batches(client, "learned", WEEKS[0])
    return "/v1/models/learned/versions/1"


# Downloads and predictions with a store that has no local files.


def test_a_redirected_download_serves_the_same_bytes_from_the_store(
    client: Rest, learned: str
) -> None:
    answer = client.http.get(f"{learned}/download?redirect=1")
    assert answer.status_code == 307, answer.text
    digest = answer.headers["ETag"].strip('"')
    sha256 = base64.b64encode(bytes.fromhex(digest)).decode()
    assert answer.headers["Repr-Digest"] == f"sha-256=:{sha256}:"
    assert answer.headers["Cache-Control"] == "no-store"
    there = httpx2.get(answer.headers["Location"], timeout=60)  # without the key of the service
    assert there.status_code == 200, there.text
    assert hashlib.sha256(there.content).hexdigest() == digest
    assert there.headers["Content-Disposition"] == 'attachment; filename="learned-v1.zip"'
    assert there.headers["Content-Type"] == "application/zip"
    assert client.http.get(f"{learned}/download").content == there.content


def test_a_signed_url_is_good_for_its_object_and_method_alone(client: Rest, learned: str) -> None:
    location = client.http.get(f"{learned}/download?redirect=1").headers["Location"]
    path, _, query = location.partition("?")
    assert httpx2.get(path, timeout=60).status_code in (400, 403)
    other = path[:-1] + ("1" if path.endswith("0") else "0")
    assert httpx2.get(f"{other}?{query}", timeout=60).status_code == 403
    assert httpx2.delete(location, timeout=60).status_code == 403
    assert "attachment" in query and "testing-secret-key" not in location


def test_a_redirect_to_head_is_followed_to_an_answer(client: Rest, learned: str) -> None:
    whole = client.http.head(f"{learned}/download")
    answer = client.http.head(f"{learned}/download?redirect=1", follow_redirects=True)
    assert answer.status_code == 200
    assert answer.headers["Content-Length"] == whole.headers["Content-Length"]


def test_a_client_that_has_the_file_is_not_redirected(client: Rest, learned: str) -> None:
    tag = client.http.head(f"{learned}/download").headers["ETag"]
    answer = client.http.get(f"{learned}/download?redirect=1", headers={"If-None-Match": tag})
    assert answer.status_code == 304


def test_a_download_that_breaks_off_goes_on_in_the_middle(client: Rest, learned: str) -> None:
    path = f"{learned}/download"
    with client.http.stream("GET", path) as first:
        size, tag = int(first.headers["Content-Length"]), first.headers["ETag"]
        begin = next(first.iter_bytes(size // 3))
    headers = {"Range": f"bytes={len(begin)}-", "If-Range": tag}
    rest = client.http.get(path, headers=headers)
    assert rest.status_code == 206
    assert rest.headers["Content-Range"] == f"bytes {len(begin)}-{size - 1}/{size}"
    whole = begin + rest.content
    assert hashlib.sha256(whole).hexdigest() == tag.strip('"')
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None


def test_versions_in_the_store_predict_and_a_lost_cache_is_filled_again(
    client: Rest, large: LargeSize, learned: str
) -> None:
    with zipfile.ZipFile(io.BytesIO(WEEKS[0])) as archive:
        names = archive.namelist()[::4]
        files = [("image", (name, archive.read(name), "image/png")) for name in names]
    first = client.call("POST", f"{learned}/predict", files=files).json()
    right = [
        p["label"] == n.split("/")[1] for p, n in zip(first["predictions"], names, strict=True)
    ]
    assert sum(right) >= 0.9 * len(names)
    parts = {part["sha256"] for part in client.get(learned)["parts"]}
    cached = {path.name: path for path in (large.data("api") / "cache").glob("blobs/*/*")}
    assert parts <= set(cached)
    for path in cached.values():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        path.unlink()
    assert client.call("POST", f"{learned}/predict", files=files).json() == first
    assert all(cached[part].is_file() for part in parts)


def test_a_whole_batch_is_checked_from_the_store_and_its_upload_goes(
    client: Rest, large: LargeSize
) -> None:
    small.create_small_model(client, "checked", "finetune")
    path = "/v1/models/checked/tasks"
    answer = client.call("POST", path, content=WEEKS[0], params={"validate": "full"})
    assert (answer.status_code, answer.json()["kind"]) == (202, "validate")
    done = client.wait(answer.json()["id"])
    assert (done.state, done.report.valid, done.report.checked) == ("succeeded", True, "images")
    assert client.items(path) == []

    def list_archive_bytes() -> list[int]:
        return [
            one["bytes"]["archives"]
            for one in client.items("/v1/usage")
            if one["name"] == "checked"
        ]

    large.until(lambda: list_archive_bytes() == [0])


# The broker.


# tests/core/jobs/test_worker_notification.py shows that a ring does not wait for a silent broker, and
# tests/core/upkeep/test_sweep.py that forgotten jobs are rung again, and
# tests/faults/test_celery_worker.py that a repeated ring runs a job once.
@pytest.mark.campaign
def test_a_silent_broker_delays_no_upload_and_jobs_run_once_when_it_answers(
    large_site: Site, large: LargeSize, client: Rest
) -> None:
    small.create_small_model(client, "unrung", "finetune")
    large_site.broker.freeze()
    try:
        # A ring is given up after a second. The answer to a batch that waited for its ring comes
        # after that.
        sent, given_up = [], []
        for week in WEEKS[:2]:
            sent.append(client.submit("unrung", week).id)
            given_up.append(large.log("api").count("broker did not take a ring"))
        assert any(lines <= number for number, lines in enumerate(given_up)), given_up
        large.until(lambda: _is_broker_status(large, "down"))
        assert httpx2.get(f"{large.url}/readyz", timeout=60).status_code == 200
    finally:
        large_site.broker.thaw()
    ends = [client.wait(job) for job in sent]
    assert [(end.state, end.attempt) for end in ends] == [("succeeded", 1)] * 2, large.logs()
    assert sorted(v["number"] for v in client.items("/v1/models/unrung/versions")) == [0, 1, 2]
    large.until(lambda: _is_broker_status(large, "up"))


def _is_broker_status(large: LargeSize, status: str) -> bool:
    return bool(httpx2.get(f"{large.url}/readyz", timeout=60).json()["broker"] == status)


def test_workers_notice_within_a_minute_when_the_broker_is_cut_off(
    large_site: Site, large: LargeSize
) -> None:
    """Each waits on two connections: for rings, and for commands; the kernel probes both."""
    for name in large_size.WORKERS:
        if name in large.processes:
            large.until(
                lambda name=name: (
                    _count_keepalive_timers(large.processes[name], large_site.broker.port) >= 2
                )
            )


def _count_keepalive_timers(worker: psutil.Popen, port: int) -> int:
    """Return the number of connections to a port that have a keepalive timer of a minute.
    It is kind 2 in `/proc/net/tcp`.
    """
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = {int(row[1].split(":")[1], 16): row[5].split(":") for row in rows}
    ours = [
        c.laddr.port for c in worker.net_connections("tcp4") if c.raddr and c.raddr.port == port
    ]
    return sum(
        timers[p][0] == "02" and int(timers[p][1], 16) <= 60 * 100 for p in ours if p in timers
    )


@pytest.mark.campaign  # tests/faults/test_worker_deaths.py shows it of the embedded worker
@pytest.mark.usefixtures("two_workers")
def test_a_killed_worker_leaves_no_process_and_its_job_to_the_other(
    large_site: Site, large: LargeSize, client: Rest
) -> None:
    small.create_small_model(client, "orphaned", "finetune")
    holder = Holder(large_site.points, *(large.processes[name].pid for name in large_size.WORKERS))
    holder.arm("job-train")
    job = client.submit("orphaned", WEEKS[0]).id
    held = holder.wait()
    victim = large.until(lambda: large.worker_of(job))
    children = large.processes[victim].children(recursive=True)
    assert len(children) >= 2 and held in children  # the zygote and the job
    large.processes[victim].send_signal(signal.SIGKILL)
    large.processes[victim].wait()
    holder.release()
    large.until(lambda: not any(map(_is_running, children)))
    large_site.end_lease(job)
    end = client.wait(job)
    assert (end.state, end.attempt) == ("succeeded", 2), large.logs()
    assert [version["number"] for version in client.items("/v1/models/orphaned/versions")] == [0, 1]
    large.start_worker(victim)  # the same data directory: what the dead one left there goes
    large.until(lambda: len(list((large.data(victim) / "work").iterdir())) == 1)


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# Beside the embedded size.


@pytest.mark.campaign
@pytest.mark.usefixtures("two_workers")
def test_models_on_two_workers_are_learned_in_order_as_the_embedded_service_learns_them(
    large: LargeSize, client: Rest, running: service.RunningService
) -> None:
    methods = {
        "plain": "finetune",
        "replay": {"name": "der++", "buffer": 40},
        "curved": "ewc-online",
    }

    def learn_all_models(by: Rest) -> dict[str, Json]:
        for name, method in methods.items():
            small.create_small_model(
                by, name, method, architecture="small-cnn", recipe={"epochs": 10}
            )
        jobs = [by.submit(name, week) for week in WEEKS for name in methods]
        assert {by.wait(job).state for job in jobs} == {"succeeded"}
        return {name: read_model_outcome(by, name) for name in methods}

    def read_model_outcome(by: Rest, name: str) -> Json:
        versions = by.read_versions(name)
        return {
            "matrix": by.get(f"/v1/models/{name}/metrics")["accuracy_matrix"],
            "parts": {v["number"]: {p["name"]: p["sha256"] for p in v["parts"]} for v in versions},
            "tasks": {v["number"]: v["task"] for v in versions},
        }

    before = {name: large.log(name).count('"event": "published"') for name in large_size.WORKERS}
    found = learn_all_models(client)
    for name in large_size.WORKERS:
        assert large.log(name).count('"event": "published"') > before[name], (
            "one worker did nothing"
        )
    order = (
        "SELECT task_number FROM jobs JOIN models ON models.id = jobs.model_id WHERE "
        "models.name = :name"
    )
    for name in methods:
        rows = large.rows(f"{order} ORDER BY started_at", name=name)
        assert [row[0] for row in rows] == [1, 2, 3, 4, 5], name
    assert learn_all_models(Rest(running.url, running.key)) == found
