"""Stage 4 of predict: the client of the process that holds torch (`core.predictions.helper.helper`).

The process is started at first use, and ended when a turn takes too long. If it dies, the current
request is answered with 503 and the next one starts a new process.
"""

import json
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from core.errors import Invalid, PerennialError, StoredObjectDamaged, Unavailable
from core.files.spool import ScratchFolder
from core.processes import helper_process
from core.processes.messages import read_framed_message, write_framed_message
from core.settings import Settings

log = structlog.get_logger(__name__)

# The helper imports torch first, which takes long from a cold disk.
START_S = 120.0
_ERRORS: dict[str, type[PerennialError]] = {"gone": StoredObjectDamaged}
"""Error types by the helper's kind of refusal; other kinds are Invalid."""


@dataclass
class EncodedPredictions:
    """Predictions encoded as JSON, one per image, and the engines that computed them.

    See `core.contract.responses.versions.predict.EngineName`.
    """

    items: list[bytes] = field(default_factory=list)
    engines: set[str] = field(default_factory=set)

    def append_predictions(self, more: "EncodedPredictions") -> None:
        """Append the predictions of further images."""
        if more.items:
            self.items += more.items
            self.engines |= more.engines


class PredictionProcess:
    """The helper process that runs networks to predict. For one thread at a time.

    Args:
        command: command line that starts it; replaced in tests.
    """

    def __init__(self, settings: Settings, command: Sequence[str] | None = None) -> None:
        self._settings = settings
        self._command = list(
            command
            or [sys.executable, "-m", "core.predictions.helper.helper", str(settings.threads)]
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: ScratchFolder | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the helper that runs networks, or None if none is running."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the helper process for good; further predictions fail."""
        self._closed = True
        self._end_network_process()

    def predict_images_until_turn_ends(
        self, header: bytes, manifest: bytes, pixels: Sequence[bytes]
    ) -> EncodedPredictions:
        """Have the helper process predict the first of the images, at least one.

        Args:
            header: JSON, see `core.predictions.helper.serving`.
            manifest: manifest of the version, JSON.
            pixels: for each image, uint8 [size, size, channels].

        Raises:
            Invalid: the question cannot be answered.
            StoredObjectDamaged: a file of the version is gone.
            Unavailable: the process died or took too long.
        """
        process = self.ensure_process_running()
        assert process.stdin is not None and process.stdout is not None
        watchdog, expired = self._start_kill_timer(process, self._settings.predict_answer_s)
        try:
            for message in (header, manifest, b"".join(pixels)):
                write_framed_message(process.stdin, message)
            status = json.loads(read_framed_message(process.stdout))
            items = read_framed_message(process.stdout).split(b"\n") if status.get("ok") else []
            engines = {str(status["engine"])} if items else set()
        except (EOFError, OSError, ValueError, KeyError, struct.error):
            # Whatever it sent, it is out of step now: the next question needs another process.
            self._end_network_process()
            log.error("predict helper gone", exit=process.returncode, timeout=expired.is_set())
            if expired.is_set():
                raise Unavailable(
                    f"Predicting took longer than {self._settings.predict_answer_s:.0f} s; send "
                    f"fewer images."
                ) from None
            raise Unavailable("The predict helper stopped while it answered; try again.") from None
        finally:
            watchdog.cancel()
        if not status.get("ok"):
            raise _ERRORS.get(str(status.get("kind")), Invalid)(status["detail"])
        # The helper may predict only the first images; with none, the caller would ask forever.
        if not 1 <= len(items) <= len(pixels):
            raise Unavailable("The predict helper did not answer what it was asked; try again.")
        for note in status.get("notes", ()):
            log.info("predictions stay with torch", **note)
        return EncodedPredictions(items, engines)

    def end_process(self) -> None:
        """End the helper process; the next prediction starts another."""
        self._end_network_process()

    def ensure_process_running(self) -> subprocess.Popen[bytes]:
        """Return the running helper process, starting it if necessary. Raises Unavailable."""
        if self._closed:
            raise Unavailable("The service is shutting down.")
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end_network_process()
        # The helper stores graphs of versions here, and is killed in the end, so it cannot remove
        # them itself.
        self._folder = ScratchFolder(self._settings.make_folder("predict"))
        process = subprocess.Popen(
            self._command,
            cwd=helper_process.ROOT,
            env=helper_process.build_helper_environment(
                TMPDIR=str(self._folder.create_scratch_folder())
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._process = process
        assert process.stdout is not None
        watchdog, _ = self._start_kill_timer(process, START_S)
        try:
            read_framed_message(process.stdout)
        except (EOFError, OSError, struct.error):
            self._end_network_process()
            raise Unavailable("The predict helper could not be started; try again.") from None
        finally:
            watchdog.cancel()
        return process

    def _start_kill_timer(
        self, process: "subprocess.Popen[bytes]", seconds: float
    ) -> tuple[threading.Timer, threading.Event]:
        # Reading from a pipe has no time limit: killing the process ends it.
        expired = threading.Event()

        def kill_process() -> None:
            # Before the kill, so that the reader of the closed pipe knows why it was closed.
            expired.set()
            process.kill()

        timer = threading.Timer(seconds, kill_process)
        timer.daemon = True
        timer.start()
        return timer, expired

    def _end_network_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            helper_process.kill_helper_process(process)
        # After the kill, since a running process could still write there.
        if self._folder is not None:
            self._folder.remove_scratch_folder()
