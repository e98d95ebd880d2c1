"""Records what one commit's service answers, so that two commits can be compared.

    python -m tests.before_after.record --code DIR --out FOLDER [--play short]
    python -m tests.before_after.record --code DIR --out FOLDER --after RECORDING

The first form plays the scenario on an empty data directory. The second goes on where another
recording stopped, on a copy of its data directory: it reads everything, resumes the paused job,
teaches each model one more batch, and reads everything again. The service of the checkout `DIR` is
started by its own launcher and asked over HTTP only, so `DIR` may be any commit. `FOLDER` then
holds `answers.json`, `parts.json`, `openapi.json` and the data directory.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from tests.before_after import reading, scenario
from tests.before_after.player import Player
from tests.before_after.stored_parts import read_stored_parts
from tools import service

SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_DEVICE": "cpu",
    "PERENNIAL_SNAPSHOT_S": "0.2",
    "PERENNIAL_SCRUB_BYTES_PER_S": "0",
}


def main() -> None:
    """Record and say how many requests were recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--code", type=Path, default=service.ROOT, help="a checkout (default: this one)"
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--play", choices=scenario.PLAYS, default="full")
    start.add_argument("--after", type=Path, help="a recording to go on from")
    given = parser.parse_args()
    count = record_service(given.code.resolve(), given.out, given.play, given.after)
    print(f"{count} requests recorded in {given.out}")


def record_service(code: Path, out: Path, play: str = "full", after: Path | None = None) -> int:
    """Record a checkout's service into a new folder and return the number of requests.

    Raises:
        FileExistsError: the folder exists.
    """
    out.mkdir(parents=True)
    data = out / "data"
    if after is not None:
        shutil.copytree(
            after / "data", data, ignore=shutil.ignore_patterns("*.sock", "service.log")
        )
    with service.run_temporary_service(data, SETTINGS, code=code) as running:
        player = Player(running.url, running.key)
        if after is None:
            scenario.PLAYS[play](player)
            reading.read_everything(player, "at the end", whole=set())
        else:
            resume_and_learn(player)
        openapi = player.http.get("/openapi.json").json()
    _write_json(out / "answers.json", player.answers)
    _write_json(out / "openapi.json", openapi)
    _write_json(out / "parts.json", read_stored_parts(data))
    return player.requests


def resume_and_learn(player: Player) -> None:
    """Read what exists, resume the paused job, learn more batches, and read again."""
    there = reading.read_everything(player, "served", whole=None)
    scenario.resume_paused_job(player)
    scenario.learn_next_batches(player)
    reading.read_everything(player, "went on", whole=there)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
