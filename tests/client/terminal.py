"""A terminal of 80 columns: commands run on it, and every screen that they show is kept."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyte

ROOT = Path(__file__).parents[2]
COLUMNS, ROWS = 80, 40
LIMIT_S = 60
ASLEEP_LOOK_S = 0.05
LEADER = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that ^C reaches this process
from perennial.cli.main import main
main()
"""


@dataclass(frozen=True)
class Recording:
    """Screens of a command: its exit status, and the lines of each screen that differed from the
    last.
    """

    status: int
    screens: list[list[str]]

    @property
    def last(self) -> list[str]:
        """The lines of the screen in the end."""
        return self.screens[-1]

    @property
    def words(self) -> str:
        """The last screen as running text."""
        return " ".join(" ".join(self.last).split())


def wait_until_asleep(pid: int, limit_s: float = LIMIT_S) -> None:
    """Wait until a process sleeps and goes on sleeping: it waits for input or a clock."""
    process = psutil.Process(pid)
    seen = None
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        found = (process.status(), process.num_ctx_switches().voluntary)
        if found == seen and found[0] == psutil.STATUS_SLEEPING:
            return
        seen = found
        time.sleep(ASLEEP_LOOK_S)
    raise TimeoutError(f"process {pid} did not sleep for {ASLEEP_LOOK_S} s within {limit_s} s")


def record_command(
    url: str,
    key: str,
    *arguments: str,
    typed: tuple[str, bytes] | None = None,
    limit_s: float = LIMIT_S,
) -> Recording:
    """Run a command of the client on a terminal.

    Args:
        typed: what must be on the screen before these bytes are typed.
        limit_s: how many seconds to wait for output.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    own = {"PYTHONPATH": str(ROOT / "client"), "TERM": "xterm-256color", "NO_COLOR": "1"}
    own |= {"PERENNIAL_URL": url, "PERENNIAL_API_KEY": key}
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**environment, **own},
    )
    os.close(theirs)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    screens: list[list[str]] = [[]]
    while select.select([ours], [], [], limit_s)[0]:
        try:
            stream.feed(os.read(ours, 1 << 16))
        except OSError:  # the other end is closed
            break
        lines = [line.rstrip() for line in screen.display if line.strip()]
        if lines != screens[-1]:
            screens.append(lines)
        if typed is not None and typed[0] in "\n".join(screen.display):
            # Python's input() overlooks a signal that comes just before it begins to wait.
            wait_until_asleep(process.pid)
            os.write(ours, typed[1])
            typed = None
    os.close(ours)
    return Recording(process.wait(limit_s), screens)
