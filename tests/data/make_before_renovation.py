"""Makes `before-renovation.tar.gz`: a data directory of schema 0011, and what its code answers
about it.

`DIR` is a checkout of that code, whose last commit is 678d427 (it has no
`migrations/versions/0012_…`):

    python -m tests.data.make_before_renovation --code DIR tests/data/before-renovation.tar.gz

The archive holds `data` (database and store, without keys: the next start makes one; one job is
paused, with its snapshot) and in `recorded` the answers of that code to `reading.read_all`, and its
parts. The database of the archive that is kept was later brought to schema 0035 by the migrations
of bbaca810; its store is as it was.
"""

import argparse
import json
import sqlite3
import tarfile
import tempfile
from pathlib import Path

from tests.before_after import scenario
from tests.before_after.player import Player
from tests.before_after.reading import read_everything
from tests.before_after.record import SETTINGS
from tests.before_after.stored_parts import read_stored_parts
from tools import service


def main() -> None:
    """Make it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    if list((given.code / "migrations" / "versions").glob("0012_*.py")):
        raise SystemExit(
            "--code is to be a checkout of the code before the change (see the top of this file)."
        )
    with tempfile.TemporaryDirectory() as folder:
        made, recorded = Path(folder) / "made", Path(folder) / "recorded"
        with service.run_temporary_service(made, SETTINGS, code=given.code) as running:
            scenario.play_short_scenario(Player(running.url, running.key))
        _delete_keys(made / "perennial.db")
        with tarfile.open(given.target, "w:gz") as archive:
            for name in ("perennial.db", "store"):
                archive.add(made / name, f"data/{name}", filter=_remove_owner)
            _record_answers(made, recorded, given.code)
            archive.add(recorded, "recorded", filter=_remove_owner)
    print(f"{given.target}: {given.target.stat().st_size:,} bytes")


def _delete_keys(database: Path) -> None:
    with sqlite3.connect(database, isolation_level=None) as connection:
        connection.execute("DELETE FROM keys")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    connection.close()


def _record_answers(made: Path, recorded: Path, code: Path) -> None:
    """Record what the code answers when it is started on what it has made."""
    (made / "admin-key").unlink()
    with service.run_temporary_service(made, SETTINGS, code=code) as running:
        player = Player(running.url, running.key)
        read_everything(player, "served", whole=None)
    recorded.mkdir()
    for name, content in (("answers", player.answers), ("parts", read_stored_parts(made))):
        (recorded / f"{name}.json").write_text(
            json.dumps(content, ensure_ascii=False), encoding="utf-8"
        )


def _remove_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
