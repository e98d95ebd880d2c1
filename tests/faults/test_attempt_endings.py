"""What each end of an attempt says to the database; the job process is a stand-in."""

import errno
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from core.errors import LeaseLost, Rejected, StoreCorrupt, Unavailable
from core.protocol.job_event import DoneEvent, ErrorEvent
from core.work import claim as claims
from core.work.kinds import learn
from worker import attempt as attempts
from worker import loop
from worker.attempt import Attempt, Tools
from worker.child import ZygoteDied
from worker.supervisor import Outcome


def error(kind: str) -> Outcome:
    return Outcome("error", ErrorEvent(kind=kind, message="m", traceback="t"), 1)


@pytest.fixture
def run(house: Any, batches: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Claims a fresh job and runs one attempt that ends as given (an outcome, or an exception in preparing)."""
    job = house.submit(batches[0])

    def raise_or(value: Any, result: Any) -> Callable[..., Any]:
        def act(*_given: Any, **_named: Any) -> Any:
            if isinstance(value, Exception):
                raise value
            return result

        return act

    def attempt(ending: Any = None, *, validating: Exception | None = None, stop: bool = False) -> Any:
        monkeypatch.setattr(learn, "validate", raise_or(validating, None))
        monkeypatch.setattr(learn, "prepare", raise_or(ending, Path("/spec")))
        monkeypatch.setattr(attempts, "supervise", lambda *_given: ending)
        child = SimpleNamespace(pid=1)
        zygote = SimpleNamespace(spawn=lambda _spec, _bound: child)
        tools = Tools(house.settings, house.db, house.store, lambda: zygote, house.settings.folder("work"))  # type: ignore[arg-type,return-value]
        claim = claims.claim(house.db, "w", 60)
        assert claim is not None
        Attempt(tools, claim, lambda: stop).run()
        return house.job(job)

    attempt.job = job  # type: ignore[attr-defined]
    return attempt


@pytest.mark.parametrize("kind", ["data", "code", "non-finite", "export"])
def test_an_error_that_would_repeat_fails_the_job_at_once(run: Any, kind: str) -> None:
    job = run(error(kind))
    assert (job.state, job.error["kind"]) == ("failed", kind)


def test_a_lack_of_memory_that_is_no_bound_of_ours_is_tried_again_with_a_strike(run: Any, house: Any) -> None:
    house.settings.job_memory_bytes = 0
    job = run(error("memory"))
    assert (job.state, job.strikes) == ("queued", 1)


def test_a_job_that_outgrows_the_bound_of_its_memory_fails_at_once(run: Any) -> None:
    job = run(error("memory"))
    assert (job.state, job.error["kind"]) == ("failed", "memory")


@pytest.mark.parametrize("outcome", [Outcome("died", None, -9), Outcome("died"), Outcome("stalled")])
def test_a_dead_or_silent_process_is_tried_again_with_a_strike(run: Any, outcome: Outcome) -> None:
    job = run(outcome)
    assert (job.state, job.strikes) == ("queued", 1)


@pytest.mark.parametrize(
    "outage", [Unavailable("store"), ZygoteDied("z"), OperationalError("SELECT", None, Exception("gone"))]
)
def test_an_outage_is_no_strike(run: Any, outage: Exception) -> None:
    job = run(outage)
    assert (job.state, job.strikes) == ("queued", 0)
    assert job.not_before is not None


def test_a_damaged_blob_is_a_strike(run: Any) -> None:
    job = run(StoreCorrupt("b"))
    assert (job.state, job.strikes) == ("queued", 1)


def test_a_rejected_batch_is_rejected_with_its_report(run: Any) -> None:
    job = run(validating=Rejected("all bad", extra={"report": {"rejected_count": 3}}))
    assert (job.state, job.error["code"]) == ("rejected", "batch-rejected")


def test_a_fault_of_the_worker_itself_fails_the_job(run: Any) -> None:
    job = run(ZeroDivisionError("x"))
    assert (job.state, job.error["kind"]) == ("failed", "code")


def test_a_lost_lease_writes_nothing(run: Any, house: Any) -> None:
    before = len(house.events(run.job))
    with pytest.raises(LeaseLost):
        run(Outcome("lost"))
    job = house.job(run.job)
    assert job.state == "validating"
    assert len(house.events(run.job)) == before + 2  # the claim's own, and its line of the log


def test_a_shutdown_before_training_releases_the_job(run: Any) -> None:
    job = run(Outcome("done"), stop=True)
    assert (job.state, job.strikes) == ("queued", 0)


def test_publishing_waits_out_an_outage(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def publish(_db: Any, _store: Any, _claim: Any, result: Path) -> int:
        calls.append(result)
        if len(calls) < 3:
            raise Unavailable("store")
        return 1

    monkeypatch.setattr(attempts, "publish", publish)
    monkeypatch.setattr(attempts, "PUBLISH_PAUSES_S", (0.01, 0.01, 0.01))
    run(Outcome("done", DoneEvent(path="/r"), 0))
    assert calls == [Path("/r")] * 3


def test_nothing_stays_in_the_scratch_folder(run: Any, house: Any) -> None:
    run(error("data"))
    assert list(house.settings.folder("work").iterdir()) == []


@pytest.mark.parametrize(
    "full", [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "quota"), error("disk")]
)
def test_a_full_disk_is_no_strike(run: Any, full: Any) -> None:
    job = run(full)
    assert (job.state, job.strikes) == ("queued", 0)
    assert job.not_before is not None


def test_a_disk_that_fails_is_a_strike(run: Any) -> None:
    job = run(OSError(errno.EIO, "input/output error"))
    assert (job.state, job.strikes) == ("queued", 1)


def test_a_scratch_folder_that_cannot_be_made_is_no_strike(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def full(folder: Path, *given: Any, **named: Any) -> None:
        if folder.name.startswith("job_"):
            raise OSError(errno.ENOSPC, "full")
        mkdir(folder, *given, **named)

    monkeypatch.setattr(Path, "mkdir", full)
    job = run(Outcome("done"))
    assert (job.state, job.strikes) == ("queued", 0)


def test_the_outcome_is_reported_when_the_database_is_back(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    requeue = claims.requeue

    def out_twice(*given: Any, **named: Any) -> Any:
        said.append("requeue")
        if len(said) < 3:
            raise OperationalError("UPDATE", None, Exception("gone"))
        return requeue(*given, **named)

    monkeypatch.setattr(attempts.claims, "requeue", out_twice)
    monkeypatch.setattr(attempts, "REPORT_FIRST_S", 0.01)
    job = run(OperationalError("SELECT", None, Exception("gone")))
    assert (job.state, job.strikes, len(said)) == ("queued", 0, 3)


def test_a_worker_whose_attempts_end_in_an_outage_claims_ever_more_rarely(
    house: Any, batches: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = loop.Worker(house.settings, ring=lambda _job: None)
    claimed: list[str] = []

    def claim(*_given: Any) -> Any:
        claimed.append("job")
        return SimpleNamespace(job_id="job", model_id="m", fence=1, waited_s=None)

    endings = iter([True, True, False])

    class Ending:
        def __init__(self, *_given: Any) -> None:
            self.outage = next(endings)

        def run(self) -> None:
            return None

    monkeypatch.setattr(loop.claims, "claim", claim)
    monkeypatch.setattr(loop, "Attempt", Ending)
    monkeypatch.setattr(loop, "OUTAGE_PAUSES_S", (0.05, 0.3))
    assert worker.work(lambda: False) == 1
    began = time.monotonic()
    while not worker.work(lambda: len(claimed) > 1):
        time.sleep(0.005)
    first, began = time.monotonic() - began, time.monotonic()
    while not worker.work(lambda: len(claimed) > 2):
        time.sleep(0.005)
    assert time.monotonic() - began > first
    assert (worker._outages, len(claimed)) == (0, 3)
    worker.close()


def test_after_an_outage_a_worker_claims_nothing_until_the_store_answers(
    house: Any, batches: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = house.submit(batches[0])
    worker = loop.Worker(house.settings, ring=lambda _job: None)
    worker._outages = 1

    def out() -> None:
        raise Unavailable("The store does not answer.")

    monkeypatch.setattr(worker.store, "check", out)
    assert worker.work(lambda: False) == 0
    assert (house.job(job).state, house.job(job).attempt) == ("queued", 0)
    worker.close()
