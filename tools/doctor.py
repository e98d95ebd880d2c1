"""Checks of `perennial doctor`: torch, device, database, store, disk and base."""

import shutil
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version

import click
from sqlalchemy.exc import SQLAlchemyError

from core.database.migrate import read_schema_revision, require_current_schema
from core.database.session import Database
from core.errors import PerennialError
from core.packaged import imagenet_base, packaged_base
from core.settings import Settings
from core.storage import open_object_store
from worker.devices.device_check import (
    check_device_in_subprocess,
    is_gpu_requested_or_present,
    read_driver_version,
)
from worker.devices.torch_check import check_torch_while_block_runs

LEAST_FREE_BYTES = 1 << 30


def run_and_print_installation_checks() -> int:
    """Check the installation, print the result of each check, and return the exit status."""
    settings, bad = Settings(), 0
    for name, look in LOOKS.items():
        try:
            click.echo(f"ok       {name}: {look(settings)}")
        # Caught for each check, so that one run names every problem.
        except (PerennialError, SQLAlchemyError, OSError) as error:
            bad += 1
            detail = (
                error.detail if isinstance(error, PerennialError) else str(error).partition("\n")[0]
            )
            click.echo(f"problem  {name}: {detail}")
    return 1 if bad else 0


def _check_torch(settings: Settings) -> str:
    with check_torch_while_block_runs(settings):
        return f"{version('torch')} with torchvision {version('torchvision')}"


def _check_device(settings: Settings) -> str:
    """Check the compute device of this machine, and describe it.

    Raises:
        OSError: it is not the device in PERENNIAL_DEVICE, or there is a driver but no usable GPU.
    """
    driver = read_driver_version()
    # Without a driver or a request for a GPU there is nothing to check.
    if not is_gpu_requested_or_present(settings.device):
        why = f"PERENNIAL_DEVICE={settings.device}" + ("" if driver else ", no NVIDIA driver")
        return f"cpu, threads of a job: {settings.threads} ({why})"
    report = check_device_in_subprocess(settings.device)
    if report["problem"] is not None:
        driver_note = f"the NVIDIA driver ({driver}) is there, but " if driver else ""
        raise OSError(
            f"PERENNIAL_DEVICE={settings.device}: {driver_note}no GPU can be used: "
            f"{report['problem']}"
        )
    gib = 1 << 30
    free, total = (report["free_bytes"] or 0) / gib, (report["total_bytes"] or 0) / gib
    return (
        f"{report['name']}, {report['gpus']} visible, {free:.1f} of {total:.1f} GiB free, "
        f"driver {driver or 'unknown'}, torch {report['torch']}"
    )


def _check_database_schema(settings: Settings) -> str:
    with closing(Database(settings.resolved_database_url)) as db:
        require_current_schema(db)
        return f"revision {read_schema_revision(db)}"


def _check_that_store_answers(settings: Settings) -> str:
    # One object shows that the store answers; a whole listing may take minutes.
    first_object = next(iter(open_object_store(settings).list("")), None)
    return f"{settings.resolved_store_url.partition('?')[0]} answers" + (
        "" if first_object else "; it is empty"
    )


def _check_imagenet_base(settings: Settings) -> str:
    if settings.default_base != imagenet_base.NAME:
        return f"{settings.default_base} (PERENNIAL_DEFAULT_BASE)"
    problem = imagenet_base.explain_missing_imagenet_base()
    if problem:
        raise OSError(f"{problem}; new models start from {packaged_base.PACKAGED} until then.")
    return f"{imagenet_base.NAME}, from the package {imagenet_base.PACKAGE}"


def _check_disk_space(settings: Settings) -> str:
    # The data directory does not exist before the first start; its disk does.
    folder_on_disk = next(
        folder
        for folder in (settings.data_dir.absolute(), *settings.data_dir.absolute().parents)
        if folder.exists()
    )
    free = shutil.disk_usage(folder_on_disk).free
    if free < LEAST_FREE_BYTES:
        raise OSError(
            f"{free:,} bytes are free on the disk of {folder_on_disk}; a job needs more than 1 GiB."
        )
    return f"{free / (1 << 30):.0f} GiB are free on the disk of {folder_on_disk}"


LOOKS: dict[str, Callable[[Settings], str]] = {
    "torch": _check_torch,
    "device": _check_device,
    "database": _check_database_schema,
    "store": _check_that_store_answers,
    "disk": _check_disk_space,
    "base for photos": _check_imagenet_base,
}
