"""The worker's scratch folder, and the folders that dead workers left.

Each worker locks a file of its folder for its lifetime. The zygote and the job processes inherit
the lock and hold it too, and the kernel releases it when the last of them ends, in whatever way. A
lock that can be acquired therefore belongs to no process. Several workers may share one data
directory.

A free lock proves death only on the same kernel: a network file system may lose the lock of another
host that is alive. The file therefore names the boot of its host. Jobs of workers on another host
wait until their lease runs out.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import structlog

log = structlog.get_logger(__name__)

_LOCK = ".lock"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_RETRY_S = 0.01


class ProcessIdentity(TypedDict):
    """Unique identity of a process: boot of its host, PID namespace, PID, start in clock ticks."""

    boot: str
    namespace: str
    pid: int
    started: str


class WorkerScratchFolder:
    """The scratch folder of one worker, locked while the worker or a child of it lives.

    Args:
        root: the `work` folder of the data directory.
        worker: name of this worker.
    """

    def __init__(self, root: Path, worker: str) -> None:
        self._root = root
        self.path = root / worker
        self.lock_fd: int | None = None
        """Descriptor of the lock; processes that inherit it keep the lock."""

    def create_locked_work_folder(self) -> None:
        """Create and lock the worker's scratch folder."""
        while self.lock_fd is None:  # another worker may remove the folder before it is locked
            self.path.mkdir(parents=True, exist_ok=True)
            fd = _try_lock_folder(self.path)
            if fd is not None and not _is_lock_on_folder(fd, self.path):
                os.close(fd)
                fd = None
            if fd is None:
                time.sleep(_RETRY_S)
            self.lock_fd = fd
        identity = read_process_identity(os.getpid())
        if identity is not None:
            os.write(self.lock_fd, json.dumps(identity).encode())

    def return_jobs_and_remove_dead_folders(self, give_back: Callable[[str], object]) -> None:
        """Remove the scratch folders of workers on this host that have died.

        Args:
            give_back: called with the name of each worker that is certainly dead, before its folder
                is removed; the folder stays if this raises.
        """
        for folder in self._root.iterdir():
            if folder == self.path or not folder.is_dir():
                continue
            fd = _try_lock_folder(folder)
            if fd is None:
                continue
            try:
                if not _is_lock_on_folder(fd, folder):
                    continue  # removed and created again meanwhile, so its worker lives
                # Jobs first: with the folder gone, nobody would find them before their lease ends.
                if _is_worker_dead(fd):
                    give_back(folder.name)
                log.info("removing an abandoned work folder", folder=folder.name)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(fd)

    def remove_work_folder(self) -> None:
        """Remove the worker's scratch folder and release its lock."""
        if self.lock_fd is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self.lock_fd)
            self.lock_fd = None


def read_process_identity(pid: int) -> ProcessIdentity | None:
    """Return what identifies a running process uniquely, also after its PID is reused.

    Return None if it does not run, or the system cannot tell.
    """
    try:
        # The name of the program is in parentheses and may contain spaces; state and start time
        # follow the last one.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # A zombie still has its number, but does nothing any more.
        if state in "ZX":
            return None
        return {
            "boot": _BOOT.read_text().strip(),
            "namespace": str(Path("/proc/self/ns/pid").readlink()),
            "pid": pid,
            # Numbers of processes are reused; together with the start time they are unique.
            "started": fields[18],
        }
    except OSError:
        return None


def _is_worker_dead(fd: int) -> bool:
    """Return True if the worker that wrote this lock file has certainly ended."""
    try:
        owner: ProcessIdentity = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return False  # it died before it wrote its identity, and therefore before it claimed a job
    own_identity = read_process_identity(os.getpid())
    if own_identity is None or owner["boot"] != own_identity["boot"]:
        return False
    # In another PID namespace, as in another container, the number would mean another process; the
    # lock suffices.
    return (
        owner["namespace"] != own_identity["namespace"]
        or read_process_identity(owner["pid"]) != owner
    )


def _try_lock_folder(folder: Path) -> int | None:
    """Lock a worker's folder; return the descriptor of the lock, or None if another process holds
    it.
    """
    try:
        fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _is_lock_on_folder(fd: int, folder: Path) -> bool:
    """Return True if the locked file is still the one in the folder, which may have been replaced."""
    try:
        return os.path.samestat(os.fstat(fd), (folder / _LOCK).stat())
    except FileNotFoundError:
        return False
