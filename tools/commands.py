"""Commands that the service's own package adds to `perennial`: serve, worker, migrate, sweep, check, backup,
restore, doctor.

Each says with the settings of the service (PERENNIAL_…) what a module does that nobody wants to type. Named in
pyproject.toml under `perennial.commands`; modules are loaded when their command is used.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
JSON = click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")


@click.command()
@click.option("--host", metavar="ADDRESS", help="Where it listens; default: 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Default: 8000; 0: any that is free.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Default: ./perennial-data.")
def serve(host: str | None, port: int | None, data_dir: Path | None) -> int:
    """Run the service: API and worker on one console, until Ctrl-C."""
    from worker import launcher

    said = {"PERENNIAL_HOST": host, "PERENNIAL_PORT": port, "PERENNIAL_DATA_DIR": data_dir}
    os.environ.update({name: str(value) for name, value in said.items() if value is not None})
    return launcher.main()


@click.command()
def worker() -> int:
    """Run one worker alone, beside an API: by Celery where the settings name a broker."""
    from core.settings import Settings

    if not Settings().embedded:
        from worker.launcher import CELERY

        os.execv(sys.executable, [sys.executable, *CELERY, "--loglevel", "INFO"])
    from worker import loop

    return loop.main()


@click.command()
def migrate() -> int:
    """Bring the tables up to date and make the store's folder or bucket; `serve` does so by itself."""
    from core.db.migrate import current, upgrade
    from core.db.session import Database
    from core.private import UMASK
    from core.settings import Settings
    from core.store import open_store

    settings = Settings()
    os.umask(UMASK)
    with _told(), closing(Database(settings.resolved_database_url)) as db:
        upgrade(db)
        open_store(settings).prepare()
        click.echo(f"The tables are at revision {current(db)}.")
    return 0


@click.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would be removed.")
@click.option(
    "--grace-hours", type=click.FloatRange(0), default=24.0, show_default=True, help="Of what nothing names."
)
@JSON
def sweep(dry_run: bool, grace_hours: float, is_json: bool) -> int:
    """Remove what nobody needs any more; workers do so by themselves."""
    return _housekeeping("sweep", f"--grace-hours={grace_hours}", *_flags(dry_run=dry_run, json=is_json))


@click.command()
@click.option("--verify", is_flag=True, help="Read every object and compare its digest.")
@click.option("--repair", is_flag=True, help="Repair what is safe to repair.")
@JSON
def check(verify: bool, repair: bool, is_json: bool) -> int:
    """Compare database and store; ends with 1 where something differs."""
    return _housekeeping("check", *_flags(verify=verify, repair=repair, json=is_json))


@click.command()
@FOLDER
def backup(folder: Path) -> int:
    """Copy everything into an empty FOLDER, while the service works (SQLite)."""
    return _housekeeping("backup", str(folder))


@click.command()
@FOLDER
def restore(folder: Path) -> int:
    """Bring a backup from FOLDER back, into an empty place."""
    return _housekeeping("restore", str(folder))


@click.command()
def doctor() -> int:
    """Whether torch, database, tables, store and disk are as the service needs them; ends with 1 where one is not."""
    from tools.doctor import examine

    return examine()


@contextmanager
def _told() -> Iterator[None]:
    """An error of ours is a sentence, not a traceback."""
    from core.errors import PerennialError

    try:
        yield
    except PerennialError as error:
        raise click.ClickException(error.detail) from error


def _housekeeping(*arguments: str) -> int:
    from tools import housekeeping

    return housekeeping.main(arguments)


def _flags(**said: bool) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, is_said in said.items() if is_said]
