r"""Cost of many open uploads and a long queue for everybody: each call beside the same call with
few of them.

    python -m bench.service.full_queues [--uploads 100000] [--jobs 10000] [--calls 100]
        [--database URL]

On SQLite in a folder of its own, or in an empty database. Uploads: 100 of each owner; a begin, a
look, a list and a piece's begin are timed with 100 and with all of them, then the sweep that
removes all at once. Jobs: all of one owner and one model; a claim given back and a page of the list
are timed with 10 and with all, and beside them a claim of another owner's only job. Milliseconds,
medians. Exit 1 when a call takes more than three times as long (and 5 ms more), or the other
owner's job is not claimed first.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert

from core.contract.manifest import Manifest
from core.database.migrate import upgrade_schema
from core.database.session import Database
from core.database.tables import Alias, Job, Model, Owner, Task, Upload, Version
from core.ids import new_id
from core.jobs import jobs
from core.requests.actor import Actor
from core.scheduling import claim as claims
from core.storage.folder import FolderStore
from core.uploads import uploads
from core.uploads.upload_removal import remove_expired_uploads

OF_OWNER = 100
ROWS = 5000
TERMS = uploads.UploadLimits(max_open=10**9, max_owner_bytes=0, hours=24.0)
MOST_RATIO, MOST_MORE_MS = 3.0, 5.0
MANIFEST = {
    "scenario": "class", "architecture": {"name": "mlp"}, "image": {"size": 8, "channels": 3}, "version": 0,
    "tasks": [], "normalise": None, "init": {"kind": "random", "seed": 0},
}  # fmt: skip


def main() -> int:
    """Compare database calls with few and with many queued rows; return the number of slow ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--uploads", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=100, help="of each kind")
    parser.add_argument(
        "--database", default="", help="an empty one; default: SQLite in a temporary folder"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = Database(args.database or f"sqlite:///{folder}/perennial.db")
        upgrade_schema(db)
        store = FolderStore(Path(folder) / "store")
        store.create_folder_or_bucket()
        wrong = _measure_upload_calls_and_count_slow(
            db, store, args.uploads, args.calls
        ) + _measure_job_calls_and_count_slow(db, args.jobs, args.calls)
        db.close()
    return 1 if wrong else 0


def _insert_owner(db: Database, name: str) -> Actor:
    with db.write() as session:
        session.add(Owner(id=(owner := new_id("own")), name=name, created_at=0.0))
    return Actor(owner, None, "write")


def _measure_median_milliseconds(calls: int, call: Callable[[], object]) -> float:
    """Measure the median duration of a call in milliseconds."""
    took = []
    for _ in range(calls):
        started_at = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - started_at))
    return statistics.median(took)


def _print_durations_and_count_slow_calls(
    few: dict[str, float], many: dict[str, float], words: str
) -> int:
    """Print durations with few and with many rows; return the number of calls that are too slow."""
    wrong = 0
    for name, before in few.items():
        after = many[name]
        bad = after > MOST_RATIO * before and after > before + MOST_MORE_MS
        wrong += bad
        print(
            f"{name:32} {before:8.2f} → {after:8.2f} ms with {words}{'  TOO SLOW' if bad else ''}",
            flush=True,
        )
    return wrong


def _measure_upload_calls_and_count_slow(
    db: Database, store: FolderStore, count: int, calls: int
) -> int:
    mine = _insert_owner(db, "mine")
    _insert_open_uploads(db, mine.owner_id, OF_OWNER)
    few = _measure_upload_call_milliseconds(db, mine, calls)
    for number in range((count - OF_OWNER) // OF_OWNER):
        _insert_open_uploads(db, _insert_owner(db, f"owner-{number}").owner_id, OF_OWNER)
    wrong = _print_durations_and_count_slow_calls(
        few, _measure_upload_call_milliseconds(db, mine, calls), f"{count:,} open uploads"
    )
    with db.write() as session:
        session.execute(Upload.__table__.update().values(expires_at=1.0))  # type: ignore[attr-defined]
    started_at = time.perf_counter()
    remove_expired_uploads(db, store)
    print(
        f"{'the sweep of all, expired at once':32} {time.perf_counter() - started_at:8.1f} s",
        flush=True,
    )
    return wrong


def _insert_open_uploads(db: Database, owner: str, count: int) -> None:
    rows = [
        {"id": new_id("upl"), "owner_id": owner, "length": 1 << 20, "offset": 0, "fence": 0, "expires_at": 9e9,
         "created_at": 1.0}
        for _ in range(count)
    ]  # fmt: skip
    with db.write() as session:
        session.execute(insert(Upload), rows)


def _measure_upload_call_milliseconds(db: Database, actor: Actor, calls: int) -> dict[str, float]:
    upload_ids: list[str] = []
    milliseconds_by_call = {
        "begin an upload": _measure_median_milliseconds(
            calls,
            lambda: upload_ids.append(
                uploads.create_upload(db, actor, uploads.AnnouncedUpload(9), TERMS)[0]["id"]
            ),
        )
    }
    milliseconds_by_call["look where it is"] = _measure_median_milliseconds(
        calls, lambda: uploads.read_upload_progress(db, actor, upload_ids[0])
    )
    milliseconds_by_call["list uploads"] = _measure_median_milliseconds(
        calls, lambda: uploads.list_uploads(db, actor, limit=50, cursor=None)
    )
    milliseconds_by_call["hold and release it"] = _measure_median_milliseconds(
        calls,
        lambda: uploads.release_upload_lease(
            db, uploads.lease_upload_to_write(db, actor, upload_ids[0], 0)
        ),
    )
    with db.write() as session:
        session.execute(delete(Upload).where(Upload.id.in_(upload_ids)))
    return milliseconds_by_call


def _measure_job_calls_and_count_slow(db: Database, count: int, calls: int) -> int:
    mine = _insert_owner(db, "of-many-jobs")
    model = _insert_model(db, mine.owner_id, "many")
    _queue_tasks(db, mine.owner_id, model, 1, 10)
    few = _measure_job_call_milliseconds(db, mine, calls)
    for first in range(11, count + 1, ROWS):
        _queue_tasks(db, mine.owner_id, model, first, min(ROWS, count + 1 - first))
    many = _measure_job_call_milliseconds(db, mine, calls)
    wrong = _print_durations_and_count_slow_calls(few, many, f"{count:,} queued jobs of one owner")
    claims.claim_job(db, "w", 60.0)
    other = _insert_owner(db, "of-one-job")
    _queue_tasks(db, other.owner_id, _insert_model(db, other.owner_id, "one"), 1, 1)
    started_at = time.perf_counter()
    claim = claims.claim_job(db, "w", 60.0)
    took = 1000 * (time.perf_counter() - started_at)
    with db.read() as session:
        is_first = (
            claim is not None and session.get_one(Job, claim.job_id).owner_id == other.owner_id
        )
    print(
        f"{'claim of another owner’s only job':32} {took:.2f} ms, "
        f"{'first' if is_first else 'NOT FIRST'}",
        flush=True,
    )
    return wrong + (not is_first)


def _insert_model(db: Database, owner: str, name: str) -> str:
    with db.write() as session:
        row = Model(
            id=new_id("mdl"), owner_id=owner, name=name, scenario="class", architecture={"name": "mlp"},
            image={"size": 8, "channels": 3}, base="random", recipe={}, gate={}, keep_training_data=False,
            held_out="keep", warnings=[], created_at=0.0,
        )  # fmt: skip
        session.add(row)
        session.flush()
        gate = {"passed": True, "checks": []}
        session.add(Version(id=new_id("ver"), model_id=row.id, number=0, status="published", gate=gate,
                            manifest=Manifest.from_json(MANIFEST), bytes=0, bytes_new=0, created_at=0.0))  # fmt: skip
        session.add(Alias(model_id=row.id, name="production", version=0, updated_at=0.0))
        return row.id


def _queue_tasks(db: Database, owner: str, model: str, first: int, count: int) -> None:
    """Insert queued tasks from the number `first` on."""
    with db.write() as session:
        for number in range(first, first + count):
            task: dict[str, Any] = {
                "id": new_id("tsk"),
                "model_id": model,
                "number": number,
                "sha256": "0" * 64,
            }
            session.add(
                Task(
                    **task,
                    bytes=3,
                    media_type="zip",
                    classes={},
                    report={},
                    warnings=[],
                    created_at=0.0,
                )
            )
            session.flush()
            session.add(
                Job(id=new_id("job"), model_id=model, owner_id=owner, task_id=task["id"], task_number=number,
                    place=number, state="queued", recipe_override={}, recipe={"method": {"name": "finetune"}},
                    progress={}, created_at=0.0)
            )  # fmt: skip


def _measure_job_call_milliseconds(db: Database, actor: Actor, calls: int) -> dict[str, float]:
    def claim_and_release_job() -> None:
        claim = claims.claim_job(db, "w", 60.0)
        assert claim is not None
        claims.complete_pause_or_cancellation(db, claim)

    return {
        "claim a job and give it back": _measure_median_milliseconds(calls, claim_and_release_job),
        "list jobs": _measure_median_milliseconds(
            calls,
            lambda: jobs.list_jobs(db, actor, limit=50, cursor=None),
        ),
        "list queued jobs": _measure_median_milliseconds(
            calls,
            lambda: jobs.list_jobs(db, actor, jobs.JobFilter("queued"), limit=50, cursor=None),
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
