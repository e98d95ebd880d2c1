"""Makes `edited_before_0005.*`: a model with an edit, as the last commit before migration 0005 left it.

`DIR` is a checkout of that commit, 5e93e944:

    python -m tests.migrations.data.make_edited_before --code DIR

There an edit that gave classes other numbers stored the sums and features of all tasks again.
"""

import argparse
import tempfile
from pathlib import Path

from tests.e2e import small
from tests.migrations.data.make_head_before import HERE, SETTINGS, dump_sqlite, pack_data_folder
from tests.rest import Rest
from tools import service

NAME = "edited_before_0005"
LAST_STEP = "0004_trials.py"
MODEL, METHOD = "edited", {"name": "analytic", "projection": 16}


def main() -> None:
    """Make it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--code", type=Path, required=True)
    given = parser.parse_args()
    steps = sorted(path.name for path in (given.code / "migrations" / "versions").glob("0*.py"))
    if steps[-1] != LAST_STEP:
        raise SystemExit("--code is to be a checkout of 5e93e944.")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        with service.run_temporary_service(
            data, SETTINGS, code=given.code, inherits_settings=False
        ) as running:
            play_story(Rest(running.url, running.key))
        dump_sqlite(data / "perennial.db", HERE / f"{NAME}.sqlite.sql")
        pack_data_folder(data, HERE / f"{NAME}.sqlite.tar.gz")


def play_story(client: Rest) -> None:
    """Teach a model three tasks, and merge a class, so that those of task 3 get other numbers."""
    small.create_small_model(client, MODEL, METHOD)
    small.learn_batches(client, MODEL, *small.WEEKS[:3])
    body = {"operations": [{"merge": {"from": ["2"], "into": "1"}}]}
    job = client.call("POST", f"/v1/models/{MODEL}/edits", json=body).json()["job"]
    assert client.wait(job).state == "succeeded"


if __name__ == "__main__":
    main()
