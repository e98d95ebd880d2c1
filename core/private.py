"""What the service keeps is for its own user alone: keys, images, weights and databases of every owner lie in it.

Every process calls `keep_private` before it writes anything: its files are then 0600 and its folders 0700. A data
directory from before, or from an operator, is narrowed to that. Not so one that holds folders which are not the
service's (a home, `/srv`): there other programs may have their own, so a sentence says what to do instead.
"""

import os
import stat
from pathlib import Path

UMASK = 0o077
FOLDERS = frozenset({"cache", "catalogue", "downloads", "pretrained", "spool", "store", "work", "lost+found"})
"""What a data directory has: the last one where it is a disk of its own."""


def keep_private(data_dir: Path) -> str | None:
    """Let all that this process writes be its user's alone, and make or narrow the data directory.

    Returns:
        What a person should know and do, where the directory stays open to others; else None.
    """
    os.umask(UMASK)
    data_dir.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(data_dir.stat().st_mode)
    if not mode & UMASK:
        return None
    foreign = sorted(
        entry.name for entry in data_dir.iterdir() if entry.is_dir() and entry.name not in FOLDERS
    )
    if not foreign and not mode & stat.S_ISVTX:
        try:
            data_dir.chmod(mode & ~UMASK)
            return None
        except OSError:  # another user's
            pass
    return (
        f"Others on this machine can open the data directory {data_dir.absolute()} (mode {mode:04o})"
        f"{f', which also holds {foreign[0]!r}' if foreign else ''}: give Perennial a directory of its own with"
        " PERENNIAL_DATA_DIR, or close this one with `chmod 700`."
    )
