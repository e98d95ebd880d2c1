"""Commands that the service's package adds to `perennial`.

They are serve, worker, migrate, sweep, check, backup, restore, doctor and compare-methods. Each
calls a module that would be tedious to type, with the settings of the service (PERENNIAL_…). They
are registered in pyproject.toml under `perennial.commands`; modules are loaded when their command
is used.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
JSON = click.option("--json", "is_json", is_flag=True, help="Print one JSON object per line.")


@click.command()
@click.option("--host", metavar="ADDRESS", help="Address to listen on; default: 127.0.0.1.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; default: 8000; 0: any free port.",
)
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Data directory; default: ./perennial-data."
)
@click.option(
    "--demo",
    is_flag=True,
    help="Serve a model that has learned sample pictures, from a directory of its own: "
    "perennial-demo beside ./perennial-data. Its first start takes about a minute.",
)
@click.option("--reset", is_flag=True, help="With --demo: build the demo again.")
@click.option(
    "--browser/--no-browser",
    default=None,
    help="With --demo: open its page in a browser; default: where there is one.",
)
def serve(
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    demo: bool,
    reset: bool,
    browser: bool | None,
) -> int:
    """Run the service: API and worker on one console, until Ctrl-C."""
    _exit_on_unsupported_platform()
    if demo:
        return _serve_demo(host, port, data_dir, reset, browser)
    if reset or browser is not None:
        name = "--reset" if reset else "--browser" if browser else "--no-browser"
        raise click.UsageError(f"{name} is an option of the demo. Say --demo too, or leave it out.")
    from worker import launcher

    options = {"PERENNIAL_HOST": host, "PERENNIAL_PORT": port, "PERENNIAL_DATA_DIR": data_dir}
    # The launcher starts API and worker as processes of their own, which inherit these.
    os.environ.update({name: str(value) for name, value in options.items() if value is not None})
    return launcher.main()


def _serve_demo(
    host: str | None, port: int | None, data_dir: Path | None, reset: bool, browser: bool | None
) -> int:
    from tools import serve_demo

    # The demo asks for no key, so only this machine may reach it.
    if host not in (None, "127.0.0.1", "localhost"):
        raise click.UsageError(
            f"--host {host} cannot be served by the demo, which asks for no key. It listens on "
            "127.0.0.1. Leave --host out, or start a service without --demo."
        )
    # The demo starts its service without the settings of this shell, which may name other data.
    own_port = os.environ.get("PERENNIAL_PORT", "")
    if port is None and own_port.isdecimal() and int(own_port) < 65536:
        port = int(own_port)
    chosen = serve_demo.DemoServingOptions(
        serve_demo.choose_demo_data_directory(data_dir), port, reset, browser
    )
    try:
        return serve_demo.serve_demo(chosen)
    except serve_demo.CannotServeDemo as error:
        raise click.ClickException(str(error)) from error


@click.command()
def worker() -> int:
    """Run only one worker, beside an API; with Celery if the settings name a broker."""
    from core.settings import Settings

    if not Settings().is_brokerless:
        from worker.launcher import CELERY

        # Celery takes the place of this process, so that signals reach it.
        os.execv(sys.executable, [sys.executable, *CELERY, "--loglevel", "INFO"])
    from worker import loop

    return loop.main()


@click.command()
@click.option("--no-backup", is_flag=True, help="Do not copy the database first.")
def migrate(no_backup: bool) -> int:
    """Update the tables and create the store's folder or bucket; `serve` does so automatically.

    Before the tables change, the database is copied into the data directory. For PostgreSQL this
    needs `pg_dump`.
    """
    from core.database.migrate import COPIED, read_schema_revision, upgrade_schema
    from core.database.session import Database
    from core.files.permissions import UMASK
    from core.settings import Settings
    from core.storage import open_object_store

    settings = Settings()
    # Keys, images and weights are readable by the service's user alone.
    os.umask(UMASK)
    with (
        _raise_service_errors_as_click_errors(),
        closing(Database(settings.resolved_database_url)) as db,
    ):
        copy = upgrade_schema(db, backups=None if no_backup else settings.data_dir)
        if copy is not None:
            click.echo(COPIED.format(copy))
        open_object_store(settings).create_folder_or_bucket()
        click.echo(f"The tables are at revision {read_schema_revision(db)}.")
    return 0


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be removed, without removing it.")
@click.option(
    "--grace-hours",
    type=click.FloatRange(0),
    default=24.0,
    show_default=True,
    help="Age in hours from which objects without a row are removed.",
)
@JSON
def sweep(dry_run: bool, grace_hours: float, is_json: bool) -> int:
    """Remove data that is no longer needed; workers do so automatically."""
    return _run_housekeeping_command(
        "sweep",
        f"--grace-hours={grace_hours}",
        *_build_command_line_flags(dry_run=dry_run, json=is_json),
    )


@click.command()
@click.option("--verify", is_flag=True, help="Read every object and compare its digest.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired safely.")
@JSON
@click.argument("paths", nargs=-1, metavar="")
def check(verify: bool, repair: bool, is_json: bool, paths: tuple[str, ...]) -> int:
    """Compare database and store; exit with 1 if something differs."""
    # A path is a sign that a batch is to be checked, which is another command.
    if paths:
        batch = shlex.quote(paths[0])
        raise click.UsageError(
            "`perennial check` compares database and store of the service, and takes no path. "
            f"To look at a batch without learning it: perennial submit MODEL {batch} --check"
        )
    return _run_housekeeping_command(
        "check", *_build_command_line_flags(verify=verify, repair=repair, json=is_json)
    )


@click.command()
@FOLDER
def backup(folder: Path) -> int:
    """Copy everything into an empty FOLDER while the service runs (SQLite)."""
    return _run_housekeeping_command("backup", str(folder))


@click.command()
@FOLDER
def restore(folder: Path) -> int:
    """Restore a backup from FOLDER, into an empty target."""
    return _run_housekeeping_command("restore", str(folder))


@click.command()
def doctor() -> int:
    """Check that torch, device, database, store and disk work; exit with 1 if one does not."""
    from tools.doctor import run_and_print_installation_checks

    return run_and_print_installation_checks()


# Not imported from the comparison, which would load PyTorch for every `--help`.
ROWS = ("lda", "logistic", "finetune", "full", "perennial")
"""Rows of the table of `compare-methods`."""


@click.command("compare-methods")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--batches", type=click.IntRange(2), metavar="N", help="Number of batches; default: 3."
)
@click.option(
    "--images",
    type=click.IntRange(5),
    metavar="N",
    help="Most images of a class to learn from; default: 60, fewer with more than 10 classes.",
)
@click.option(
    "--held-out",
    type=click.IntRange(5),
    metavar="N",
    help="Most images of a class to measure on; default: 50, fewer with more than 10 classes.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    metavar="N",
    default=5,
    show_default=True,
    help="Epochs of each training of the network.",
)
@click.option(
    "--without", multiple=True, type=click.Choice(ROWS), help="Leave a row out; can be repeated."
)
@click.option("--base", metavar="NAME", help="Base of the other rows; default: the ImageNet base.")
@click.option(
    "--model",
    metavar="JSON",
    help="Fields of Perennial's model, such as its recipe; default: its defaults.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the split and of each training."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write all figures to.",
)
def compare_methods(
    folder: Path,
    without: tuple[str, ...],
    json_file: Path | None,
    model: str | None,
    **choices: Any,
) -> int:
    """Compare Perennial's default with the usual ways to update a classifier, on your own images.

    DIR holds a folder of images for each class, or another layout that `perennial submit` accepts.
    Its classes are divided into batches of new classes, which each method learns one after the
    other. The methods are frozen features with LDA or logistic regression, fine-tuning on each
    batch alone, full retraining, and Perennial. All are measured on the same held-out images. The
    command first prints an estimate of the time.
    """
    _exit_on_unsupported_platform()
    from tools.compare_methods.base import BASES
    from tools.compare_methods.comparison import ComparisonOptions, compare_and_print_update_methods
    from tools.compare_methods.errors import ComparisonImpossible
    from tools.compare_methods.split import SplitSettings
    from tools.service import ServiceNotReady

    base = choices.pop("base") or BASES[0]
    if base not in BASES:
        raise click.UsageError(
            f"--base {base} is not known. Possible are {' and '.join(BASES)}. Name one of them."
        )
    epochs = choices.pop("epochs")
    rows = tuple(row for row in ROWS if row not in without)
    try:
        # The remaining choices have the names of `SplitSettings`'s fields.
        compare_and_print_update_methods(
            folder,
            ComparisonOptions(
                SplitSettings(**choices), epochs, base, rows, _parse_model_fields(model)
            ),
            json_file,
        )
    except (ComparisonImpossible, ServiceNotReady) as error:
        raise click.ClickException(str(error)) from error
    return 0


def _parse_model_fields(text: str | None) -> dict[str, Any]:
    """Parse the JSON object with a model's fields in the option --model."""
    try:
        fields = json.loads(text or "{}")
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise click.UsageError(
            f"--model {text} is not a JSON object. Fields of a model are allowed: --model "
            f'\'{{"base": "random"}}\'.'
        )
    return fields


@contextmanager
def _raise_service_errors_as_click_errors() -> Iterator[None]:
    """Within the block, print errors of the service as a sentence instead of a traceback."""
    from core.errors import PerennialError

    try:
        yield
    except PerennialError as error:
        raise click.ClickException(error.detail) from error


def _exit_on_unsupported_platform() -> None:
    """Exit with an explanation on an operating system that the service does not support."""
    from core.platforms import require_supported_platform

    require_supported_platform()


def _run_housekeeping_command(*arguments: str) -> int:
    _exit_on_unsupported_platform()
    from tools import housekeeping

    return housekeeping.main(arguments)


def _build_command_line_flags(**flags: bool) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, is_said in flags.items() if is_said]
