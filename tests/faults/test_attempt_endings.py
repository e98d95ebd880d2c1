"""Writes to the database at each end of an attempt; the job process is a stand-in."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from core.contract.jobs.job_event import DoneEvent, JobFailedEvent
from core.errors import LeaseLost, Rejected, StoredObjectDamaged, Unavailable
from core.execution.kinds import learn
from core.scheduling import claim as claims
from tests.faults.conftest import Backend
from worker import loop
from worker.attempts import attempt as attempts
from worker.attempts.attempt import AttemptResources, JobAttempt
from worker.attempts.child import ForkServerDied
from worker.attempts.supervisor import ProcessOutcome

GONE = OperationalError("SELECT", None, Exception("gone"))


def make_error_outcome(kind: str) -> ProcessOutcome:
    return ProcessOutcome("error", JobFailedEvent(kind=kind, message="m", traceback="t"), 1)


@pytest.fixture(scope="module")
def calm(
    make_backend: Callable[..., Backend], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """Return a backend without workers; a test leaves no job that can be claimed."""
    made = make_backend(tmp_path_factory.mktemp("calm"))
    yield made
    made.close()


@pytest.fixture
def run(
    calm: Backend, batches: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Return a function that claims a new job and runs one attempt with a given end.

    The end is an outcome, or an exception in preparing.
    """
    job = calm.submit(calm.create(), batches[0])

    def raise_or(value: Any, result: Any) -> Callable[..., Any]:
        def raise_or_return(*_given: Any, **_named: Any) -> Any:
            if isinstance(value, Exception):
                raise value
            return result

        return raise_or_return

    def attempt_job(
        ending: Any = None,
        *,
        validating: Exception | None = None,
        stop: bool = False,
        is_device_lost: bool = True,
        device_warning: str | None = None,
    ) -> Any:
        monkeypatch.setattr(learn, "decode_archive_and_start_job", raise_or(validating, None))
        monkeypatch.setattr(
            learn, "fetch_job_inputs_and_write_spec", raise_or(ending, Path("/spec"))
        )
        monkeypatch.setattr(attempts, "supervise_job_process", lambda *_given: ending)
        child = SimpleNamespace(pid=1)
        zygote = SimpleNamespace(fork_child=lambda _spec, _bound: child)
        tools = AttemptResources(
            calm.settings,
            calm.db,
            calm.store,
            lambda: zygote,  # type: ignore[arg-type,return-value]
            calm.settings.make_folder("work"),
            is_device_lost=lambda _message: is_device_lost,
            device_warning=device_warning,
        )
        claim = claims.claim_job(calm.db, "w", 60)
        assert claim is not None
        JobAttempt(tools, claim, lambda: stop).run_attempt()
        return calm.job(job)

    attempt_job.job = job  # type: ignore[attr-defined]
    yield attempt_job
    if calm.job(job).state == "queued":
        calm.act(job, "cancel")


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        *((make_error_outcome(kind), kind) for kind in ("data", "code", "non-finite", "export")),
        (make_error_outcome("memory"), "memory"),  # it has outgrown the bound
        (ZeroDivisionError("x"), "code"),  # a fault of the worker itself
    ],
)
def test_an_error_that_would_repeat_fails_the_job_at_once(run: Any, ending: Any, kind: str) -> None:
    job = run(ending)
    assert (job.state, job.error["kind"]) == ("failed", kind)


def test_a_lack_of_memory_that_is_no_bound_of_ours_is_tried_again_with_a_strike(
    run: Any, calm: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calm.settings, "job_memory_bytes", 0)
    job = run(make_error_outcome("memory"))
    assert (job.state, job.strikes) == ("queued", 1)


@pytest.mark.parametrize(
    "ending",
    [
        *(ProcessOutcome("died", None, -9), ProcessOutcome("died"), ProcessOutcome("stalled")),
        *(StoredObjectDamaged("b"), OSError(errno.EIO, "input/output error")),
    ],
)
def test_a_lost_attempt_is_tried_again_with_a_strike(run: Any, ending: Any) -> None:
    job = run(ending)
    assert (job.state, job.strikes) == ("queued", 1)


@pytest.mark.parametrize(
    "ending",
    [
        *(Unavailable("store"), ForkServerDied("z"), GONE),
        *(
            OSError(errno.ENOSPC, "full"),
            OSError(errno.EDQUOT, "quota"),
            make_error_outcome("disk"),
        ),
    ],
)
def test_an_outage_or_a_full_disk_is_no_strike(run: Any, ending: Any) -> None:
    job = run(ending)
    assert (job.state, job.strikes) == ("queued", 0)
    assert job.not_before is not None


@pytest.mark.parametrize(("is_lost", "strikes"), [(True, 0), (False, 1)])
def test_a_device_error_is_a_strike_only_where_the_device_works(
    run: Any, is_lost: bool, strikes: int
) -> None:
    job = run(make_error_outcome("device"), is_device_lost=is_lost)
    assert (job.state, job.strikes) == ("queued", strikes)


def test_a_second_lack_of_memory_fails_the_job_with_figures_and_advice(
    run: Any, calm: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calm.settings, "job_memory_bytes", 0)
    figures = {"peak_bytes": 71_200_000_000, "free_bytes": 300_000_000}
    ending = ProcessOutcome(
        "error", JobFailedEvent(kind="memory", message="CUDA out of memory.", **figures), 1
    )
    assert run(ending).state == "queued"
    job = run(ending)
    assert (job.state, job.error["kind"], job.error["code"]) == ("failed", "memory", "job-memory")
    assert "held 71.2 GB of memory at its peak, and 0.3 GB were free" in job.error["detail"]
    assert "smaller recipe.batch_size" in job.error["detail"]


def test_a_job_that_runs_on_the_cpu_of_a_machine_with_a_driver_says_so_in_its_log(
    run: Any, calm: Backend
) -> None:
    run(make_error_outcome("device"), device_warning="No GPU can be used: the driver is too old.")
    assert "No GPU can be used: the driver is too old." in [
        e.data.get("message") for e in calm.events(run.job)
    ]


def test_a_rejected_batch_is_rejected_with_its_report(run: Any) -> None:
    job = run(validating=Rejected("all bad", extra={"report": {"rejected_count": 3}}))
    assert (job.state, job.error["code"]) == ("rejected", "batch-rejected")


def test_a_lost_lease_writes_nothing(run: Any, calm: Backend) -> None:
    before = len(calm.events(run.job))
    with pytest.raises(LeaseLost):
        run(ProcessOutcome("lost"))
    job = calm.job(run.job)
    assert job.state == "validating"
    written = [event.type for event in calm.events(run.job)[before:]]
    assert sorted(written) == [
        "log",
        "progress",
        "state",
    ]  # of the claim, before the lease was lost


def test_a_shutdown_before_training_releases_the_job(run: Any) -> None:
    job = run(ProcessOutcome("done"), stop=True)
    assert (job.state, job.strikes) == ("queued", 0)


def test_publishing_waits_out_an_outage(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def publish_at_third_call(
        _db: Any, _store: Any, _claim: Any, result: Path, _cache: Path
    ) -> Any:
        calls.append(result)
        if len(calls) < 3:
            raise Unavailable("store")
        return SimpleNamespace(status="published", number=1)

    monkeypatch.setattr(attempts, "publish_or_hold_job_result", publish_at_third_call)
    monkeypatch.setattr(attempts, "PUBLISH_PAUSES_S", (0.01, 0.01, 0.01))
    run(ProcessOutcome("done", DoneEvent(path="/r"), 0))
    assert calls == [Path("/r")] * 3


def test_nothing_stays_in_the_scratch_folder(run: Any, calm: Backend) -> None:
    run(make_error_outcome("data"))
    assert list(calm.settings.make_folder("work").iterdir()) == []


def test_a_scratch_folder_that_cannot_be_made_is_no_strike(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def fail_job_folder(folder: Path, *given: Any, **named: Any) -> None:
        if folder.name.startswith("job_"):
            raise OSError(errno.ENOSPC, "full")
        mkdir(folder, *given, **named)

    monkeypatch.setattr(Path, "mkdir", fail_job_folder)
    job = run(ProcessOutcome("done"))
    assert (job.state, job.strikes) == ("queued", 0)


def test_the_outcome_is_reported_when_the_database_is_back(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    requeue = claims.requeue_or_fail_job

    def out_twice(*given: Any, **named: Any) -> Any:
        said.append("requeue")
        if len(said) < 3:
            raise GONE
        return requeue(*given, **named)

    monkeypatch.setattr(attempts.claims, "requeue_or_fail_job", out_twice)
    monkeypatch.setattr(attempts, "REPORT_FIRST_S", 0.01)
    job = run(GONE)
    assert (job.state, job.strikes, len(said)) == ("queued", 0, 3)


def test_a_worker_whose_attempts_end_in_an_outage_claims_ever_more_rarely(
    calm: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, claimed, endings = [100.0], list[str](), iter([True, True, False])

    def record_claim(*_given: Any) -> Any:
        claimed.append("job")
        return SimpleNamespace(job_id="job", model_id="m", fence=1, waited_s=None)

    class Ending:
        def __init__(self, *_given: Any) -> None:
            self.outage = next(endings)

        def run_attempt(self) -> None:
            return None

    monkeypatch.setattr(loop.claims, "claim_job", record_claim)
    monkeypatch.setattr(loop, "JobAttempt", Ending)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    worker = loop.Worker(calm.settings, ring=lambda _job: None)
    assert worker.run_jobs(lambda: False) == 1
    for number, pause_s in enumerate(loop.OUTAGE_PAUSES_S[:2], start=1):
        now[0] += pause_s - 0.1
        assert worker.run_jobs(lambda: False) == 0
        now[0] += 0.2
        assert worker.run_jobs(lambda number=number: len(claimed) > number) == 1
    assert (worker._outages, len(claimed)) == (0, 3)
    worker.close_worker()


def test_after_an_outage_a_worker_claims_nothing_until_the_store_answers(
    calm: Backend, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = loop.Worker(calm.settings, ring=lambda _job: None)
    worker._outages = 1

    def raise_store_unavailable() -> None:
        raise Unavailable("The store does not answer.")

    monkeypatch.setattr(worker.store, "check_store_usable", raise_store_unavailable)
    assert worker.run_jobs(lambda: False) == 0
    assert (calm.job(run.job).state, calm.job(run.job).attempt) == ("queued", 0)
    worker.close_worker()
