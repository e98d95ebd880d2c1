"""Permissions of stored files: keys, images, weights and databases are the service user's alone.

Every process calls `make_data_and_new_files_private` before it writes anything, so that its
files are 0600 and its folders 0700. A data directory with wider permissions is narrowed to that,
unless it has folders that are not the service's (a home, `/srv`). Other programs may need those, so
a message says what to do instead.
"""

import os
import stat
from pathlib import Path

UMASK = 0o077
FOLDERS = frozenset(
    {"cache", "catalogue", "downloads", "pretrained", "spool", "store", "work", "lost+found"}
)
"""Folders that a data directory may have; `lost+found` exists if it is a disk of its own."""


def make_data_and_new_files_private(data_dir: Path) -> str | None:
    """Make new files of this process private to its user, and create the data directory or restrict
    its mode.

    Returns:
        Advice for a person if the directory stays open to others, else None.
    """
    # First, so that the directory is created with it as well.
    os.umask(UMASK)
    data_dir.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(data_dir.stat().st_mode)
    if not mode & UMASK:
        return None
    foreign = sorted(
        entry.name for entry in data_dir.iterdir() if entry.is_dir() and entry.name not in FOLDERS
    )
    # A sticky directory, such as /tmp, is shared on purpose.
    if not foreign and not mode & stat.S_ISVTX:
        try:
            data_dir.chmod(mode & ~UMASK)
            return None
        except OSError:  # the directory belongs to another user
            pass
    return (
        f"Others on this machine can open the data directory {data_dir.absolute()} (mode "
        f"{mode:04o}){f', which also holds {foreign[0]!r}' if foreign else ''}: give Perennial a "
        "directory of its own with PERENNIAL_DATA_DIR, or close this one with `chmod 700`."
    )
