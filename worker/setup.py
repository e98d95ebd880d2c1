"""Everything that must be true before the service starts: schema, store, admin key, catalogue.

Run by the launcher as a process of its own, `python -m worker.setup`, because the memory it takes is
given back when it ends. Prints one JSON line: what the launcher needs to know.
"""

import json
import sys
from typing import Any

from core.catalogue import load_catalogue
from core.db.migrate import upgrade
from core.db.session import Database
from core.errors import PerennialError
from core.logging import configure
from core.requests.keys import ensure_admin_key
from core.settings import Settings
from core.store import open_store


def prepare(settings: Settings) -> dict[str, Any]:
    """Bring database, store, key and catalogue up to date; safe to repeat.

    Returns:
        `host`, `port`, `embedded`, `grace_s`, `data_dir`, and `admin_key`: the secret on the first
        start, otherwise None.

    Raises:
        PerennialError: database or store do not answer.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    db = Database(settings.resolved_database_url)
    try:
        upgrade(db)
        open_store(settings).prepare()
        secret = ensure_admin_key(db, settings.data_dir.absolute())
    finally:
        db.close()
    load_catalogue(settings)  # made here once, so that the API serves from its first second
    return {
        "host": settings.host,
        "port": settings.port,
        "embedded": settings.embedded,
        "grace_s": settings.grace_s,
        "data_dir": str(settings.data_dir.absolute()),
        "auth": settings.auth,
        "admin_key": secret,
    }


def main() -> int:
    """Prepare with the settings of the environment; 1 after a typed error, told in one sentence."""
    configure("setup", level="WARNING")
    try:
        told = prepare(Settings())
    except PerennialError as error:
        print(error.detail, file=sys.stderr)
        return 1
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
