r"""Every GET of the API on a full database beside a small one: p50, p99, requests/s, ratios (goal ≤
1.2).

    python -m bench.service.million
        [--database postgresql+psycopg://postgres@127.0.0.1:5432/postgres]
        [--folder DIR]

Two databases of the same shape (`bench.service.fill`): 60 models, just enough that every page is as
full as it can be, and 10,000 models with a million tasks, jobs and versions. The same model is
asked in both, so the answers have the same rows. An API process serves each, and short rounds
against the one and the other take turns, so that noise hits both. The CPU time of an answer (of the
API process, and of PostgreSQL's backends) is what hardly depends on a busy machine. The routes come
from the app's own table. Then what workers do: claims, and the chores of one round.

With `--database` both are made on that PostgreSQL server, else they are SQLite files; they stay in
`--folder` (and on the server) for the next run when one is named.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2

from api.app import create_app
from bench.service import load
from bench.service.million_files import ANYTIME_JOB, BASE
from bench.service.series import MILLION, SMALL
from bench.service.side import DatabaseWithApi, create_filled_database, serve_database_by_api
from core.database.session import Database
from core.scheduling import claim as claims
from core.settings import Settings
from core.storage import Blobs, open_object_store
from core.upkeep import sweep, task_files

CLIENTS = 4
GOAL = 1.2
OF_TASK = "/v1/models/{model}/tasks/{n}"
OF_READS = (
    *("/v1/me", "/v1/events", "/v1/bases", "/v1/models/{model}/versions/{version}/results"),
    *(f"{OF_TASK}/{rest}" for rest in ("images", "images/{split}/{i}.png", "sheet.png")),
)
WITHOUT_ROWS = (
    "/ui/models/{model}/rebase",
    "/ui/webhooks/{webhook}",
    "/v1/jobs/{job}/trials",
    "/v1/models/{model}/edits/{n}",
    "/v1/models/{model}/rebase",
    "/v1/webhooks/{webhook}",
    "/v1/webhooks/{webhook}/deliveries",
    "/v1/webhooks/{webhook}/deliveries/{delivery}",
)
OF_FILES = ("/v1/models/{model}/compare", "/v1/models/{model}/compare/images")
LEFT_OUT = {
    "/": "says where to go, touches no database",
    "/healthz": "touches no database",
    "/v1/methods": "of the catalogue, a file",
    "/v1/methods/{name}": "of the catalogue, a file",
    "/v1/architectures": "of the catalogue, a file",
    **dict.fromkeys(("/docs/guide", "/docs/guide/{name:path}"), "files, touch no database"),
    **dict.fromkeys(OF_READS, "asked by `bench.service.reads`"),
    **dict.fromkeys(WITHOUT_ROWS, "of something that `bench.service.fill` does not make"),
    **dict.fromkeys(OF_FILES, "reads files of versions and tasks, which are made up here"),
}
CALLS = 20
"""Of each thing that a worker does."""


@dataclass(frozen=True)
class MeasuredRequest:
    """A request to measure: path template, and who sends it."""

    route: str
    path: str
    who: str = "owner"

    @property
    def request_label(self) -> str:
        """Label of the request for the printed table."""
        return self.path + (" (admin)" if self.who == "admin" else "")


ASKS = (
    MeasuredRequest("/readyz", "/readyz"),
    MeasuredRequest("/v1/jobs/{job}", "/v1/jobs/{job}"),
    MeasuredRequest("/v1/jobs", "/v1/jobs"),
    MeasuredRequest("/v1/jobs", "/v1/jobs?state=failed"),
    MeasuredRequest("/v1/jobs", "/v1/jobs?state=queued"),
    MeasuredRequest("/v1/jobs", "/v1/jobs?state=running"),
    MeasuredRequest("/v1/jobs", "/v1/jobs?model=model-0"),
    MeasuredRequest("/v1/jobs", "/v1/jobs?model=model-0&state=cancelled"),
    MeasuredRequest("/v1/jobs", "/v1/jobs", "admin"),
    MeasuredRequest("/v1/jobs", "/v1/jobs?state=succeeded", "admin"),
    MeasuredRequest("/v1/jobs", "/v1/jobs?state=rejected&limit=16", "admin"),
    MeasuredRequest("/v1/jobs", "/v1/jobs?state=running", "admin"),
    MeasuredRequest("/v1/jobs/{job}/events", "/v1/jobs/{job}/events"),
    MeasuredRequest("/v1/jobs/{job}/logs", "/v1/jobs/{job}/logs"),
    MeasuredRequest("/v1/jobs/{job}/metrics", "/v1/jobs/{job}/metrics"),
    MeasuredRequest("/v1/jobs/{job}/anytime/download", "/v1/jobs/{anytime}/anytime/download"),
    MeasuredRequest("/v1/models", "/v1/models"),
    MeasuredRequest("/v1/models", "/v1/models", "admin"),
    MeasuredRequest("/v1/models/{model}", "/v1/models/{model}"),
    MeasuredRequest("/v1/models/{model}", "/v1/models/model-0"),
    MeasuredRequest("/v1/models/{model}", "/v1/models/model-0", "admin"),
    MeasuredRequest("/v1/models/{model}/tasks", "/v1/models/{model}/tasks"),
    MeasuredRequest("/v1/models/{model}/tasks/{n}", "/v1/models/{model}/tasks/50"),
    MeasuredRequest("/v1/models/{model}/versions", "/v1/models/{model}/versions"),
    MeasuredRequest("/v1/models/{model}/versions/{version}", "/v1/models/{model}/versions/50"),
    MeasuredRequest("/v1/models/{model}/versions/{version}", "/v1/models/{model}/versions/latest"),
    MeasuredRequest(
        "/v1/models/{model}/versions/{version}/download",
        "/v1/models/{model}/versions/latest/download",
    ),
    MeasuredRequest(
        "/v1/models/{model}/versions/{version}/files", "/v1/models/{model}/versions/latest/files"
    ),
    MeasuredRequest(
        "/v1/models/{model}/versions/{version}/files/{part}",
        "/v1/models/{model}/versions/latest/files/head",
    ),
    MeasuredRequest(
        "/v1/models/{model}/aliases/{alias}/history",
        "/v1/models/{model}/aliases/production/history",
    ),
    MeasuredRequest("/v1/models/{model}/memory", "/v1/models/{model}/memory"),
    MeasuredRequest("/v1/models/{model}/metrics", "/v1/models/{model}/metrics"),
    MeasuredRequest("/v1/models/{model}/class-aliases", "/v1/models/{model}/class-aliases"),
    MeasuredRequest("/v1/models/{model}/edits", "/v1/models/{model}/edits"),
    MeasuredRequest("/v1/uploads", "/v1/uploads"),
    MeasuredRequest("/v1/webhooks", "/v1/webhooks"),
    MeasuredRequest("/v1/bases/{base}", "/v1/bases/{base}"),
    MeasuredRequest("/v1/keys", "/v1/keys", "admin"),
    MeasuredRequest("/v1/audit", "/v1/audit", "admin"),
    MeasuredRequest("/v1/usage", "/v1/usage", "admin"),
    MeasuredRequest("/v1/usage", "/v1/usage?by=owner", "admin"),
    MeasuredRequest("/metrics", "/metrics", "admin"),
    MeasuredRequest("/ui", "/ui"),
    MeasuredRequest("/ui", "/ui", "admin"),
    MeasuredRequest("/ui/models/{model}", "/ui/models/{model}"),
    MeasuredRequest("/ui/models/{model}/tasks/{n}", "/ui/models/{model}/tasks/50"),
    MeasuredRequest("/ui/models/{model}/tasks/{n}/images", "/ui/models/{model}/tasks/50/images"),
    *(
        MeasuredRequest(f"/ui/models/{{model}}/{page}", f"/ui/models/{{model}}/{page}")
        for page in ("classes", "compare", "edits", "edits/plan", "first", "submit")
    ),
    MeasuredRequest(
        "/ui/models/{model}/versions/{version}/predict",
        "/ui/models/{model}/versions/latest/predict",
    ),
    MeasuredRequest("/ui/models/adopt", "/ui/models/adopt"),
    MeasuredRequest("/ui/models/new", "/ui/models/new"),
    MeasuredRequest("/ui/jobs/{job}", "/ui/jobs/{job}"),
    MeasuredRequest("/ui/webhooks", "/ui/webhooks"),
    *(
        MeasuredRequest(f"/ui/admin/{page}", f"/ui/admin/{page}", "admin")
        for page in ("audit", "keys", "usage")
    ),
)


def main() -> int:
    """Measure all read requests on databases with a million rows; return 1 if one is too slow."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", default="", help="a PostgreSQL server; default: SQLite")
    parser.add_argument("--folder", type=Path, help="keeps what is made")
    parser.add_argument("--seconds", type=float, default=0.15, help="of one round")
    parser.add_argument("--rounds", type=int, default=12, help="against each database")
    parser.add_argument("--only", default="", help="measure asks that contain this")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [
            create_filled_database(folder, args.database, name, size)
            for name, size in (("small", SMALL), ("million", MILLION))
        ]
        missing = list_get_routes() - {ask.route for ask in ASKS} - LEFT_OUT.keys()
        if missing:
            raise SystemExit(f"Neither asked nor left out: {sorted(missing)}")
        for side in sides:
            stack.enter_context(serve_database_by_api(side))
        print(
            f"load average {os.getloadavg()[0]:.1f}; {CLIENTS} clients, {args.rounds} rounds of "
            f"{args.seconds} s each"
        )
        slow = measure_and_print_read_requests(
            sides,
            [ask for ask in ASKS if args.only in ask.request_label],
            args.rounds,
            args.seconds,
        )
        slow += _measure_and_print_worker_steps(sides, args.only)
        print(f"load average {os.getloadavg()[0]:.1f}; above {GOAL} ×: {len(slow)}")
    return 1 if slow else 0


def list_get_routes() -> set[str]:
    """Return the path templates of all GET routes of the application."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(data_dir=Path(folder)))
    route_paths = {
        str(getattr(route, "path", ""))
        for route in app.router.routes
        if "GET" in (getattr(route, "methods", None) or ())
    }
    return route_paths - {"/openapi.json", "/docs", "/static/{digest}/{name:path}", "/ui/login"}


def measure_and_print_read_requests(
    sides: list[DatabaseWithApi], asks: Sequence[MeasuredRequest], rounds: int, seconds: float
) -> list[str]:
    """Measure and print the duration of each request; return those slower than the goal."""
    print(
        f"{'GET':<54}{'p50 ms':>17}{'p99 ms':>17}{'requests/s':>15}"
        f"{'p50':>7}{'p99':>7}{'per s':>7}{'CPU ms':>16}{'CPU':>7}"
    )
    slow = []
    for ask in asks:
        label = ask.request_label
        results_by_side: list[list[load.RequestLoadResult]] = [[], []]
        spent = [0.0, 0.0]
        for side in sides:
            _send_first_request(side, ask)
        for number in range(rounds):
            for side_index in (0, 1) if number % 2 == 0 else (1, 0):
                side = sides[side_index]
                key = {"Authorization": f"Bearer {side.keys[ask.who]}"}
                before = side.count_cpu_seconds()
                got = load.measure_request_load(
                    side.url + _build_request_path(side, ask), CLIENTS, seconds, key, warm_up=0
                )
                spent[side_index] += side.count_cpu_seconds() - before
                if set(got.statuses) != {200}:
                    raise RuntimeError(f"{label}: {got.statuses}")
                results_by_side[side_index].append(got)
        p50, p99, per_s = list[float](), list[float](), list[float]()
        for side_results in results_by_side:
            latencies = sorted(value for one in side_results for value in one.latencies_ms)
            p50.append(load.compute_quantile(latencies, 0.5))
            p99.append(load.compute_quantile(latencies, 0.99))
            per_s.append(statistics.median(one.per_s for one in side_results))
        cpu = [
            s * 1e3 / sum(len(one.latencies_ms) for one in side_results)
            for s, side_results in zip(spent, results_by_side, strict=True)
        ]
        ratios = (p50[1] / p50[0], p99[1] / p99[0], per_s[0] / per_s[1])
        above = ratios[0] > GOAL or ratios[2] > GOAL
        print(
            f"{label:<54}{p50[0]:8.2f} {p50[1]:8.2f}{p99[0]:8.1f} {p99[1]:8.1f}{per_s[0]:7.0f} "
            f"{per_s[1]:7.0f}"
            f"{ratios[0]:7.2f}{ratios[1]:7.2f}{ratios[2]:7.2f}"
            f"{cpu[0]:8.2f}{cpu[1]:8.2f}{cpu[1] / max(cpu[0], 1e-9):7.2f}"
            f"{'  *' if above else ''}",
            flush=True,
        )
        slow += [label] if above else []
    return slow


def _build_request_path(side: DatabaseWithApi, ask: MeasuredRequest) -> str:
    names = {
        "{model}": side.first_model_id(),
        "{job}": side.measured_job_id(),
        "{anytime}": ANYTIME_JOB,
        "{base}": BASE,
    }
    path = ask.path
    for name, value in names.items():
        path = path.replace(name, value)
    return path


def _send_first_request(side: DatabaseWithApi, ask: MeasuredRequest) -> None:
    """Send a request once before measuring, since the first time may build or count something."""
    key = {"Authorization": f"Bearer {side.keys[ask.who]}"}
    response = httpx2.get(side.url + _build_request_path(side, ask), headers=key, timeout=120)
    if response.status_code != 200:
        raise RuntimeError(f"{ask.path} → {response.status_code}: {response.text[:300]}")


def _measure_and_print_worker_steps(sides: list[DatabaseWithApi], only: str) -> list[str]:
    """Measure and print the duration of each worker step; return those slower than the goal."""
    print(f"{'worker':<54}{'p50 ms':>17}{'':>32}{'ratio':>7}")
    names = [_list_worker_database_calls(side) for side in sides]
    slow = []
    for name in names[0]:
        if only not in name:
            continue
        durations_by_side: list[list[float]] = [[], []]
        for number in range(CALLS):
            for side_index in (0, 1) if number % 2 == 0 else (1, 0):
                began = time.perf_counter()
                names[side_index][name]()
                if number:
                    durations_by_side[side_index].append((time.perf_counter() - began) * 1e3)
                if sum(durations_by_side[side_index]) > 20_000:
                    break
        small, full = (statistics.median(side_durations) for side_durations in durations_by_side)
        print(f"{name:<54}{small:8.2f} {full:8.2f}{'':>32}{full / small:7.2f}", flush=True)
        slow += [name] if full / small > GOAL else []
    return slow


def _list_worker_database_calls(side: DatabaseWithApi) -> dict[str, Callable[[], object]]:
    """Return the database steps of workers to measure, by name."""
    db, store = Database(side.settings.resolved_database_url), open_object_store(side.settings)
    blobs = Blobs(store, side.settings.make_folder("cache"))
    # All events are of this morning.
    settings = side.settings.model_copy(update={"event_days": 10_000.0})

    def claim_and_release_job() -> None:
        claim = claims.claim_job(db, "bench", 60.0)
        assert claim is not None
        claims.complete_pause_or_cancellation(db, claim)

    return {
        "claim and give back": claim_and_release_job,
        "reap": lambda: claims.take_back_jobs_with_expired_lease(db),
        "ring": lambda: sweep.find_long_waiting_claimable_jobs(db),
        "sweep: rows": lambda: sweep._delete_expired_events_and_idempotency(db, settings),
        "sweep: snapshots": lambda: sweep._delete_unneeded_job_snapshots(
            db, store, settings, "snapshot", "snapshots/"
        ),
        "sweep: files of tasks": lambda: task_files.select_tasks_with_expirable_files(db),
        "sweep: memories": lambda: sweep._delete_replay_of_tasks_with_deleted_data(db, blobs),
        "sweep: deleted models": lambda: sweep._delete_deleted_models_data(db, blobs),
        "sweep: one batch of blobs": lambda: _run_used_digest_query(db),
    }


def _run_used_digest_query(db: Database) -> None:
    from bench.service.series import make_generated_sha256
    from core.retention import references

    with db.read() as session:
        references.find_digests_still_in_use(
            session, [make_generated_sha256(kind, n) for n in range(40) for kind in "bcdef"]
        )


if __name__ == "__main__":
    sys.exit(main())
