"""Catalogue of the learning code: methods, architectures and presets, read without torch.

The learning code writes its names, JSON Schemas and defaults to a file, once per version of its
sources. The API and the other processes read that file, so they know what to accept and never load
torch.
"""

import functools
import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path

from core.contract.catalogue import RecipeCatalogue as Content
from core.errors import Unavailable
from core.processes import helper_process
from core.recipe.code_version import compute_learning_code_digest
from core.settings import Settings

WRITE_TIMEOUT_S = 120.0


def load_recipe_catalogue(settings: Settings) -> Content:
    """Load the recipe catalogue (methods, architectures, problems) of this code version.

    If it is missing, a subprocess writes it first (seconds).

    Raises:
        Unavailable: the learning code cannot be loaded.
    """
    folder = settings.make_folder("catalogue")
    # Named by the code that it describes, so that a catalogue of another release is never read.
    path = folder / f"{compute_learning_code_digest()}.json"
    try:
        return _read_recipe_catalogue(path)
    except FileNotFoundError:
        _generate_catalogue_file_in_subprocess(path)
        return _read_recipe_catalogue(path)


def _read_recipe_catalogue(path: Path) -> Content:
    # Strict, so that a file that was deleted after it was cached is noticed and written again.
    return _parse_recipe_catalogue(path.resolve(strict=True))


@functools.lru_cache(maxsize=2)
def _parse_recipe_catalogue(path: Path) -> Content:
    """Parse a recipe catalogue file, once per process.

    The cache is safe because the file of a code version never changes. It pays because each job
    reads the file.
    """
    value: Content = json.loads(path.read_bytes())
    return value


def _generate_catalogue_file_in_subprocess(path: Path) -> None:
    # Written beside its place and renamed: processes that start at the same time must not read half
    # a file.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-", suffix=".json")
    # The subprocess opens the file itself, by its name.
    os.close(descriptor)
    try:
        # In another process, because the learning code imports torch.
        done = helper_process.run_module_in_helper_process(
            "core.learning.catalogue", name, WRITE_TIMEOUT_S
        )
        if done.returncode != 0:
            # The end of a traceback names the error.
            raise Unavailable(f"The learning code cannot be loaded: {done.stderr.strip()[-500:]}")
        Path(name).replace(path)
    except subprocess.TimeoutExpired:
        raise Unavailable("The learning code takes too long to load; try again.") from None
    finally:
        Path(name).unlink(missing_ok=True)


class LazyRecipeCatalogue:
    """The recipe catalogue, loaded on first use and cached. Concurrent first calls load it once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._value: Content | None = None

    @property
    def content_if_loaded(self) -> Content | None:
        """The recipe catalogue if it is loaded already, else None. Does not wait."""
        return self._value

    def __call__(self) -> Content:
        """Return the catalogue of methods and architectures, and load it if necessary.

        Raises:
            Unavailable: the learning code cannot be loaded.
        """
        with self._lock:
            if self._value is None:
                self._value = load_recipe_catalogue(self._settings)
            return self._value
