"""Reads of pages and clients, on a database with many tasks beside a small one: requests/s, p50,
p99, ratios (goal ≤ 1.2).

    python -m bench.service.reads [--tasks 1000000]
        [--database postgresql+psycopg://postgres@127.0.0.1:5432/postgres]

Lists with summaries, results, images, events and the audit trail; the other routes are asked by
`bench.service.million`, whose way of measuring this is. The rows are written by
`bench.service.fill`, in bulk; without `--tasks` they are few, to see that all works.
"""

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from sqlalchemy import update

from bench.service.million import (
    CLIENTS,
    GOAL,
    OF_TASK,
    MeasuredRequest,
    measure_and_print_read_requests,
)
from bench.service.series import (
    FIRST_OWNERS_MODELS,
    SMALL,
    GeneratedRowCounts,
    make_generated_row_id,
)
from bench.service.side import DatabaseWithApi, create_filled_database, serve_database_by_api
from core.database.session import Database
from core.database.tables import Task
from core.ingest.dataset import write_image_dataset_file
from core.storage import Blobs, open_object_store

IMAGES, SIDE = 1000, 32
"""Held-out images of the task that is asked, and their pixels a side."""
TASK = 50
_RESULTS = "/v1/models/{model}/versions/{version}/results"
ASKS = (
    MeasuredRequest("/v1/me", "/v1/me"),
    MeasuredRequest("/v1/models", "/v1/models"),
    MeasuredRequest("/v1/models", "/v1/models?include=summary"),
    MeasuredRequest("/v1/models", "/v1/models?include=summary", "admin"),
    MeasuredRequest("/v1/models", "/v1/models?include=summary&q=DEL-1&limit=10"),
    MeasuredRequest(_RESULTS, f"/v1/models/{{model}}/versions/{TASK}/results"),
    MeasuredRequest(
        "/v1/models/{model}/metrics", "/v1/models/{model}/metrics?from=1&to=50&tasks=1,50"
    ),
    MeasuredRequest("/v1/events", "/v1/events"),
    MeasuredRequest("/v1/events", "/v1/events?type=alias"),
    MeasuredRequest("/v1/events", "/v1/events?model={model}"),
    MeasuredRequest("/v1/events", "/v1/events", "admin"),
    MeasuredRequest("/v1/audit", "/v1/audit?order=desc", "admin"),
    MeasuredRequest("/v1/audit", "/v1/audit?order=desc&model={model}", "admin"),
    MeasuredRequest("/v1/audit", "/v1/audit?action=version.publish", "admin"),
    MeasuredRequest("/v1/audit", "/v1/audit?since=2020-01-01T00:00:00Z", "admin"),
    MeasuredRequest("/v1/bases", "/v1/bases"),
    MeasuredRequest(f"{OF_TASK}/images", f"/v1/models/{{model}}/tasks/{TASK}/images?class=dog"),
    MeasuredRequest(
        f"{OF_TASK}/images/{{split}}/{{i}}.png",
        f"/v1/models/{{model}}/tasks/{TASK}/images/held_out/7.png",
    ),
    MeasuredRequest(
        f"{OF_TASK}/sheet.png",
        f"/v1/models/{{model}}/tasks/{TASK}/sheet.png?rows=1,5,9,12,40,99,120,400",
    ),
)


def main() -> int:
    """Measure read requests on a filled database; return 1 if one is slower than the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks", type=int, default=4 * SMALL.task_count, help="rows of the large one"
    )
    parser.add_argument("--database", default="", help="a PostgreSQL server; default: SQLite")
    parser.add_argument("--seconds", type=float, default=0.15, help="of one round")
    parser.add_argument("--rounds", type=int, default=12, help="against each database")
    parser.add_argument("--only", default="", help="measure asks that contain this")
    options = parser.parse_args()
    large = GeneratedRowCounts(max(FIRST_OWNERS_MODELS + 1, options.tasks // SMALL.tasks))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [
            create_filled_database(folder, options.database, name, size)
            for name, size in (("small", SMALL), (f"reads_{large.task_count}", large))
        ]
        for side in sides:
            _add_held_out_images_to_task(side)
            stack.enter_context(serve_database_by_api(side))
        print(
            f"{SMALL.task_count:,} and {large.task_count:,} tasks; load average {os.getloadavg()[0]:.1f}; "
            f"{CLIENTS} clients, {options.rounds} rounds of {options.seconds} s each"
        )
        slow = measure_and_print_read_requests(
            sides,
            [ask for ask in ASKS if options.only in ask.request_label],
            options.rounds,
            options.seconds,
        )
        print(f"load average {os.getloadavg()[0]:.1f}; above {GOAL} ×: {len(slow)}")
    return 1 if slow else 0


def _add_held_out_images_to_task(side: DatabaseWithApi) -> None:
    """Add held-out images to a task, so that its images can be read."""
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (IMAGES, SIDE, SIDE, 3), np.uint8)
    db = Database(side.settings.resolved_database_url)
    blobs = Blobs(open_object_store(side.settings), side.settings.make_folder("cache"))
    path = side.settings.data_dir / "images"
    write_image_dataset_file(
        path, np.arange(IMAGES, dtype=np.int64) % 2, pixels.shape[1:], [pixels]
    )
    sha256, _ = blobs.put_file(path, move=True)
    with db.write() as session:
        mine = (Task.model_id == make_generated_row_id("mdl", 0), Task.number == TASK)
        session.execute(update(Task).where(*mine).values(held_out_sha256=sha256))
    db.close()


if __name__ == "__main__":
    sys.exit(main())
