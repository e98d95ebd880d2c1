"""What an operator does by hand beside a running service: sweep, check, back up, restore.

    python -m tools.housekeeping sweep [--dry-run] [--grace-hours 24] [--json]
    python -m tools.housekeeping check [--verify] [--repair] [--json]
    python -m tools.housekeeping backup FOLDER
    python -m tools.housekeeping restore FOLDER

With the settings of the service (PERENNIAL_…). `sweep` does at once what every worker does each minute and,
for blobs that nothing names, each day; `--dry-run` only tells it, with reason and bytes, and changes nothing.
`check` compares database and store in both directions, tells what the scrub found damaged, and ends with 1 when
something differs; `--verify` also reads every object; `--repair` repairs what is safe
(core/work/consistency.py) and tells what is left. `backup` and `restore` are for SQLite; PostgreSQL has
pg_dump. `restore` wants a stopped service and an empty place.
"""

import argparse
import dataclasses
import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from core.db.migrate import require_current
from core.db.session import Database, is_outage
from core.db.tables import Scrub
from core.errors import PerennialError
from core.private import UMASK
from core.requests.times import rfc3339
from core.settings import Settings
from core.store import Blobs, Store, open_store
from core.work import consistency
from core.work.sweep import sweep
from core.work.sweep_dry_run import Removal, dry_run
from tools import backup


def main(arguments: Sequence[str] | None = None) -> int:
    """0: done, and nothing differs; 1: something differs; 2: it could not be done, told in one sentence."""
    options = _parser().parse_args(arguments)
    settings = Settings()
    os.umask(UMASK)
    try:
        if options.command == "backup":
            print(_told("backed up", backup.backup(settings, options.folder)))
            return 0
        if options.command == "restore":
            print(_told("restored", backup.restore(settings, options.folder)))
            return 0
        db = Database(settings.resolved_database_url)
        try:
            require_current(db)
            store = open_store(settings)
            return (_sweep if options.command == "sweep" else _check)(db, store, settings, options)
        finally:
            db.close()
    except (PerennialError, backup.NotPossible) as error:
        print(error.detail if isinstance(error, PerennialError) else error, file=sys.stderr)
        return 2
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        if isinstance(error, SQLAlchemyError) and not is_outage(error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        print(f"It could not be done: {reason}", file=sys.stderr)
        return 2


def _sweep(db: Database, store: Store, settings: Settings, options: argparse.Namespace) -> int:
    grace_days = options.grace_hours / 24
    if options.dry_run:
        found = dry_run(db, store, settings, grace_days=grace_days)
        _print(found, ("reason", "bytes", "object"), options.json)
        return 0
    sweep(db, store, Blobs(store, settings.folder("cache")), settings, grace_days=grace_days, whole=True)
    return 0


def _check(db: Database, store: Store, settings: Settings, options: argparse.Namespace) -> int:
    found = consistency.check(db, store, settings, verify=options.verify)
    if options.repair and found:
        blobs = Blobs(store, settings.folder("cache"))
        consistency.repair(db, store, blobs, settings, found)
        left = consistency.check(db, store, settings, verify=options.verify)
        if not options.json:
            print(f"{len(found)} found, {len(found) - len(left)} repaired.")
        found = left
    if not options.json:
        print(_scrubbed(db))
    _print(found, ("kind", "bytes", "object", "detail"), options.json)
    return 1 if found else 0


def _scrubbed(db: Database) -> str:
    """How far the scrub is, which hashes all objects while the service runs."""
    with db.read() as session:
        row = session.get(Scrub, 1)
    if row is None:
        return "The scrub has not begun yet."
    ended = "never" if row.ended_at is None else rfc3339(row.ended_at)
    return (
        f"The scrub last hashed everything: {ended}; since ever {row.objects} objects, {row.bytes:,} bytes"
        f"{f'; now at {row.cursor}' if row.cursor else ''}."
    )


def _print(found: Sequence[Removal | consistency.Drift], columns: Sequence[str], as_json: bool) -> None:
    """One line for each, then a line of sums; as JSON one object a line and nothing else."""
    rows: list[dict[str, Any]] = [dataclasses.asdict(one) for one in found]
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    cells = [[str(row[column]) for column in columns] for row in rows]
    widths = [max((len(line[i]) for line in cells), default=0) for i in range(len(columns))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    sums = Counter(str(row[columns[0]]) for row in rows)
    total = sum(int(row["bytes"]) for row in rows)
    print(f"{len(rows)} in all, {total:,} bytes" + "".join(f"; {n} {name}" for name, n in sums.items()) + ".")


def _told(done: str, contents: dict[str, Any]) -> str:
    return f"{done}: {contents['objects']} objects, {contents['bytes']:,} bytes, schema {contents['schema']}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.housekeeping",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    sweeping = commands.add_parser("sweep", help="remove what nobody needs any more")
    sweeping.add_argument("--dry-run", action="store_true", help="only tell what would be removed")
    sweeping.add_argument(
        "--grace-hours",
        type=_hours,
        default=24.0,
        help="age of what nothing names before it goes; 0 only while nobody uploads",
    )
    checking = commands.add_parser("check", help="compare database and store")
    checking.add_argument("--verify", action="store_true", help="read every object and compare its digest")
    checking.add_argument("--repair", action="store_true", help="repair what is safe to repair")
    for each in (sweeping, checking):
        each.add_argument("--json", action="store_true", help="one JSON object a line")
    for name, text in (("backup", "copy it all into an empty folder"), ("restore", "bring a backup back")):
        commands.add_parser(name, help=text).add_argument("folder", type=Path)
    return parser


def _hours(text: str) -> float:
    hours = float(text)
    if not hours >= 0:
        raise argparse.ArgumentTypeError("hours are 0 or more")
    return hours


if __name__ == "__main__":
    sys.exit(main())
