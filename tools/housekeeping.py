"""Manual tasks of an operator beside a running service: sweep, check, back up, restore.

    python -m tools.housekeeping sweep [--dry-run] [--grace-hours 24] [--json]
    python -m tools.housekeeping check [--verify] [--repair] [--json]
    python -m tools.housekeeping backup FOLDER
    python -m tools.housekeeping restore FOLDER

The settings of the service (PERENNIAL_…) apply. `run_sweep` does at once what every worker does
each minute and, for unreferenced blobs, each day. `--dry-run` only reports it, with reason and
bytes, and changes nothing.

`check` compares database and store in both directions, reports damage found by the scrub, and ends
with 1 if something differs. `--verify` also reads every object. `--repair` repairs what is safe
(core/upkeep/consistency.py) and reports what is left.

`create_backup` and `restore_backup` are for SQLite; PostgreSQL has pg_dump. `restore_backup`
requires a stopped service and an empty place.
"""

import argparse
import dataclasses
import json
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from core.database.migrate import require_current_schema
from core.database.session import Database, is_database_outage
from core.database.tables import IntegrityScrubProgress
from core.errors import PerennialError
from core.files.permissions import UMASK
from core.requests.timestamps import format_rfc3339
from core.settings import Settings
from core.storage import Blobs, ObjectStorage, open_object_store
from core.text.counts import format_count_with_noun
from core.upkeep import consistency
from core.upkeep.sweep import SweepOptions, run_sweep
from core.upkeep.sweep_dry_run import SweepRemoval, list_sweep_removals
from tools import backup
from tools.drift_words import describe_store_inconsistency, summarise_store_comparison


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a housekeeping command (sweep or check); return its exit status.

    Returns:
        0 if it succeeded and nothing differs, 1 if something differs, 2 if it failed, with a
            sentence on standard error.
    """
    options = _build_argument_parser().parse_args(arguments)
    settings = Settings()
    # Keys, images and weights are readable by the service's user alone.
    os.umask(UMASK)
    try:
        if options.command == "backup":
            print(
                _format_backup_summary("backed up", backup.create_backup(settings, options.folder))
            )
            return 0
        if options.command == "restore":
            print(
                _format_backup_summary("restored", backup.restore_backup(settings, options.folder))
            )
            return 0
        db = Database(settings.resolved_database_url)
        try:
            require_current_schema(db)
            store = open_object_store(settings)
            return (_run_sweep_command if options.command == "sweep" else _run_store_check_command)(
                db, store, settings, options
            )
        finally:
            db.close()
    except (PerennialError, backup.BackupNotPossible) as error:
        print(error.detail if isinstance(error, PerennialError) else error, file=sys.stderr)
        return 2
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        # A bug needs its traceback, an outage only a sentence.
        if isinstance(error, SQLAlchemyError) and not is_database_outage(error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        print(f"It could not be done: {reason}", file=sys.stderr)
        return 2


def _run_sweep_command(
    db: Database, store: ObjectStorage, settings: Settings, options: argparse.Namespace
) -> int:
    grace_days = options.grace_hours / 24
    if options.dry_run:
        _print_planned_removals(
            list_sweep_removals(db, store, settings, grace_days=grace_days), options.json
        )
        return 0
    blobs = Blobs(store, settings.make_folder("cache"))
    run_sweep(db, store, blobs, settings, SweepOptions(grace_days, whole=True))
    return 0


def _run_store_check_command(
    db: Database, store: ObjectStorage, settings: Settings, options: argparse.Namespace
) -> int:
    drifts = consistency.find_store_inconsistencies(db, store, settings, verify=options.verify)
    if options.repair and drifts:
        blobs = Blobs(store, settings.make_folder("cache"))
        consistency.repair_store_and_run_sweep(db, store, blobs, settings, drifts)
        # Compared again, since not everything can be repaired.
        remaining = consistency.find_store_inconsistencies(
            db, store, settings, verify=options.verify
        )
        if not options.json:
            print(
                f"{format_count_with_noun(len(drifts), 'difference')} found, {len(drifts) - len(remaining)} "
                f"repaired."
            )
        drifts = remaining
    if options.json:
        _print_records_as_json_lines(drifts)
        return 1 if drifts else 0
    print(_describe_scrub_progress(db))
    for drift in drifts:
        print(describe_store_inconsistency(drift))
    # As a set, because several rows may name one object.
    objects = len({named.key for named in consistency.iterate_referenced_objects(db)})
    print(summarise_store_comparison(drifts, objects, is_verified=options.verify))
    return 1 if drifts else 0


def _describe_scrub_progress(db: Database) -> str:
    """Describe how far the scrub (the periodic check of all stored objects) has come."""
    with db.read() as session:
        row = session.get(IntegrityScrubProgress, 1)
    if row is None:
        return "The daily scrub, which reads all objects while the service runs, has not begun yet."
    ended = (
        "has not read everything yet"
        if row.ended_at is None
        else f"read everything by {format_rfc3339(row.ended_at)}"
    )
    now = f" It is at {row.cursor} now." if row.cursor else ""
    return (
        f"The daily scrub {ended}; so far it has read {format_count_with_noun(row.objects, 'object')}, "
        f"{row.bytes:,} bytes.{now}"
    )


def _print_planned_removals(removals: Sequence[SweepRemoval], is_json: bool) -> None:
    """Print a line for each object that the sweep removes, then a sentence with the sums."""
    if is_json:
        _print_records_as_json_lines(removals)
        return
    cells = [(one.reason, f"{one.bytes:,}", one.object) for one in removals]
    widths = [max((len(row[i]) for row in cells), default=0) for i in range(3)]
    for row in cells:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    total = sum(one.bytes for one in removals)
    print(
        f"{format_count_with_noun(len(removals), 'object')} would be removed, {total:,} bytes."
        if removals
        else "Nothing would be removed."
    )


def _print_records_as_json_lines(
    records: Sequence[SweepRemoval | consistency.StoreInconsistency],
) -> None:
    """Print records as JSON, one object per line."""
    for one in records:
        print(json.dumps(dataclasses.asdict(one)))


def _format_backup_summary(done: str, contents: dict[str, Any]) -> str:
    return (
        f"{done}: {contents['objects']} objects, {contents['bytes']:,} bytes, schema "
        f"{contents['schema']}"
    )


def _build_argument_parser() -> argparse.ArgumentParser:
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
        type=_parse_hours,
        default=24.0,
        help="age of what nothing names before it goes; 0 only while nobody uploads",
    )
    checking = commands.add_parser("check", help="compare database and store")
    checking.add_argument(
        "--verify", action="store_true", help="read every object and compare its digest"
    )
    checking.add_argument("--repair", action="store_true", help="repair what is safe to repair")
    for each in (sweeping, checking):
        each.add_argument("--json", action="store_true", help="one JSON object a line")
    for name, text in (
        ("backup", "copy it all into an empty folder"),
        ("restore", "bring a backup back"),
    ):
        commands.add_parser(name, help=text).add_argument("folder", type=Path)
    return parser


def _parse_hours(text: str) -> float:
    hours = float(text)
    # In this form, NaN is refused as well.
    if not hours >= 0:
        raise argparse.ArgumentTypeError("hours are 0 or more")
    return hours


if __name__ == "__main__":
    sys.exit(main())
