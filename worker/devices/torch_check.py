"""Check that torch and torchvision can be imported together, before anything is started.

A mismatched pair is otherwise noticed only when a job fails. The imports take seconds, so they are
tried in a process of its own (`python -m worker.devices.torch_check`), in parallel with the other
preparations. A pair that passed is not tried again until one of its files changes.
"""

import hashlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from typing import NoReturn

from core.errors import Unavailable
from core.processes import helper_process
from core.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CHECK_S = 600.0
"""Seconds for the imports. The first ones compile PyTorch's files, which takes minutes on a busy
machine.
"""
ERROR_CHARACTERS = 300
FIRST_START = (
    "First start: PyTorch is imported, to check it. This can take minutes if its files were never "
    "compiled before; later starts take seconds."
)
_IMPORTS = ("torch", "torchvision")
_SHIM = ROOT / "core" / "learning" / "torchvision_import.py"


@contextmanager
def check_torch_while_block_runs(settings: Settings) -> Iterator[None]:
    """Check within the block, in another process, that the installed torch can be imported.

    An error of the check replaces any error of the block, which may follow from it.

    Raises:
        Unavailable: the pair cannot be imported; the message has the reason and the command that
            repairs it.
    """
    if has_torch_check_passed(settings):
        yield
        return
    passed_file = _get_torch_check_marker_file(settings)
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.devices.torch_check"],
        cwd=ROOT,
        env=helper_process.build_helper_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        _require_torch_check_success(process)
        # Only after the check has passed: a failed one is repeated at the next start.
        passed_file.touch()


def has_torch_check_passed(settings: Settings) -> bool:
    """Return True if the installed torch and torchvision have passed the import check before."""
    return _get_torch_check_marker_file(settings).exists()


def _get_torch_check_marker_file(settings: Settings) -> Path:
    """Return the file whose existence says that the installed torch has passed the import check."""
    return settings.make_folder("catalogue") / f"torch-{_compute_torch_fingerprint()}"


def main() -> int:
    """Import torch and torchvision as a job does; print which one failed and why.

    Return 0 if both can be imported.
    """
    for name in _IMPORTS:
        try:
            if name == "torch":
                importlib.import_module("torch")
            else:  # as the networks do, since it needs help with a CPU build of torch
                importlib.import_module(
                    "core.learning.torchvision_import"
                ).import_torchvision_models()
        except Exception as error:  # noqa: BLE001 - any error of these imports is reported
            print(json.dumps({"name": name, "error": _get_first_error_line(error)}))
            return 1
    return 0


def _require_torch_check_success(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the process that checks if torch can be imported.

    Raises:
        Unavailable: it failed.
    """
    try:
        output, _ = process.communicate(timeout=CHECK_S)
    except subprocess.TimeoutExpired:
        # Read once more after the kill, or the process would stay a zombie.
        process.kill()
        process.communicate()
        _raise_torch_unusable("torch", f"the import takes longer than {CHECK_S:.0f} s")
    if process.returncode == 0:
        return
    try:
        failure = json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        _raise_torch_unusable("torch", f"the import ended with status {process.returncode}")
    _raise_torch_unusable(failure["name"], failure["error"])


def _raise_torch_unusable(name: str, error: str) -> NoReturn:
    python = sys.executable
    install = f"{python} -m pip install"
    if any(_get_installed_package_version(one) is None for one in _IMPORTS):
        missing = " and ".join(
            one for one in _IMPORTS if _get_installed_package_version(one) is None
        )
        problem = f"{missing} {'are' if ' and ' in missing else 'is'} not installed for {python}"
    else:
        pair = " and ".join(f"{one} {_get_installed_package_version(one)}" for one in _IMPORTS)
        problem = f"{pair} do not work together: importing {name} says “{error.rstrip('.')}”"
        # Both are installed, so pip would do nothing; their dependencies may stay as they are.
        install += " --force-reinstall --no-deps"
    raise Unavailable(
        f"Perennial cannot start: {problem}. The two must be built for each other. Run\n\n"
        f"    {install} {' '.join(_list_torch_requirements())}\n\n"
        "(with --index-url URL for the index of a CPU-only or CUDA build), then start again."
    )


def _list_torch_requirements() -> list[str]:
    """Return requirement strings of torch and torchvision, with the versions the service pins, if
    any.
    """
    try:
        required = metadata.requires("perennial-service") or ()
    except metadata.PackageNotFoundError:
        required = ()
    pins = {requirement.partition("==")[0]: requirement for requirement in required}
    return [pins.get(name, name) for name in _IMPORTS]


def _get_installed_package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _compute_torch_fingerprint() -> str:
    """Return a digest of the Python, torch's installed files and our import code.

    Nothing is imported for it.
    """
    digest = hashlib.sha256(f"{sys.executable} {sys.version}".encode())
    # Our own import code decides, too, whether the pair can be imported.
    digest.update(_SHIM.read_bytes())
    for name in _IMPORTS:
        spec = util.find_spec(name)
        origin = Path(spec.origin) if spec is not None and spec.origin is not None else None
        for path in () if origin is None else (origin, origin.with_name("version.py")):
            file_status = path.stat() if path.exists() else None
            digest.update(
                f"{path} {file_status and (file_status.st_size, file_status.st_mtime_ns)}\n".encode()
            )
    return digest.hexdigest()[:32]


def _get_first_error_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:ERROR_CHARACTERS]


if __name__ == "__main__":
    sys.exit(main())
