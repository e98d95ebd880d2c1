"""The service as one package of an environment; its programs begin by importing this.

In the repository `api`, `core`, `migrations`, `tools` and `worker` lie at the root. A wheel has them
in this package, so that nothing of the service lies at the top of an environment. Importing this
package makes `import core` work in both places, here and in the processes that this one starts
(docs/design/decisions.md §12).
"""

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
FOLDER = _HERE if (_HERE / "core").is_dir() else _HERE.parent
"""Folder that holds `core`: this one in an environment, the repository's root in a checkout."""


def _list_paths_with_own_folder_first(paths: list[str]) -> list[str]:
    """Return the paths with `FOLDER` before the others."""
    return [str(FOLDER), *(path for path in paths if path != str(FOLDER))]


# First, because the current directory may have a folder `core` of its own.
sys.path[:] = _list_paths_with_own_folder_first(sys.path)
os.environ["PYTHONPATH"] = os.pathsep.join(
    _list_paths_with_own_folder_first(
        [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    )
)
