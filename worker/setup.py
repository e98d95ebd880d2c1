"""Preparations before the service starts: torch, schema, store, catalogue, admin key.

The launcher runs this in a process of its own, `python -m worker.setup`, so that its memory is
released when it ends. It prints one JSON line with the facts that the launcher needs.
"""

import json
import sys

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from core.database.migrate import COPIED, upgrade_schema
from core.database.session import Database
from core.errors import PerennialError
from core.files import disk_reserve
from core.keys.keys import ensure_admin_key_and_write_file
from core.logging import configure_logging
from core.processes.start_requirements import prepare_data_directory_and_check_startup
from core.recipe.catalogue import load_recipe_catalogue
from core.settings import Settings
from core.storage import open_object_store
from worker.devices.torch_check import (
    FIRST_START,
    check_torch_while_block_runs,
    has_torch_check_passed,
)
from worker.setup_report import PreparedServiceSettings


def prepare_service_data(settings: Settings) -> PreparedServiceSettings:
    """Migrate the database and create the store, first admin key and catalogue. Safe to repeat.

    Raises:
        PerennialError: torch cannot be imported, or database or store do not respond.
    """
    db = Database(settings.resolved_database_url)
    try:
        # The imports take seconds, in which the schema and the store are prepared.
        with check_torch_while_block_runs(settings):
            copy = upgrade_schema(db, backups=settings.data_dir)
            if copy is not None:
                print(COPIED.format(copy), file=sys.stderr)
            open_object_store(settings).create_folder_or_bucket()
            load_recipe_catalogue(
                settings
            )  # made here once, so that the API serves from its first second
        # last, since it is shown only once
        secret = ensure_admin_key_and_write_file(db, settings.data_dir.absolute())
    finally:
        db.close()
    return {
        "host": settings.host,
        "port": settings.port,
        "embedded": settings.is_brokerless,
        "grace_s": settings.grace_s,
        "data_dir": str(settings.data_dir.absolute()),
        "auth": settings.auth,
        "admin_key": secret,
    }


def main() -> int:
    """Prepare the service's data with the settings of the environment.

    Return 1 after an invalid setting or another error, printed in one sentence.
    """
    configure_logging("setup", level="WARNING")
    try:
        settings = Settings()
    except ValidationError as error:
        for one in error.errors():
            name = f"PERENNIAL_{'_'.join(map(str, one['loc'])).upper()}"
            print(f"{name}: {one['msg'].removeprefix('Value error, ')}", file=sys.stderr)
        return 1
    try:
        open_to_others = prepare_data_directory_and_check_startup(settings)
        if open_to_others is not None:
            print(open_to_others, file=sys.stderr)
        if not has_torch_check_passed(settings):
            print(FIRST_START, file=sys.stderr, flush=True)
        prepared = prepare_service_data(settings)
        disk_reserve.make_disk_reserve_file(settings.data_dir, settings.reserve_bytes)
    except PerennialError as error:
        print(error.detail, file=sys.stderr)
        return 1
    except (SQLAlchemyError, OSError) as error:
        if not disk_reserve.is_data_disk_full(settings.data_dir):
            raise
        reason = str(getattr(error, "orig", error))
        print(
            f"The disk of the data directory {settings.data_dir.absolute()} is full ({reason}): "
            "make room there, and start again. A service that runs lets models and tasks be "
            "deleted on a full disk.",
            file=sys.stderr,
        )
        return 1
    # The launcher reads the last line of the output, so nothing may follow it.
    print(json.dumps(prepared))
    return 0


if __name__ == "__main__":
    sys.exit(main())
