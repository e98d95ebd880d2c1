"""The container's health check: `python deploy/health.py api|worker`; exit status 0 is healthy.

The API is asked over HTTP. A worker busy with a job answers no message, so its chores thread
touches a file, and the age of that file tells whether the process still lives. A worker that has
lost its GPU claims no jobs and says so in a file of its own, which makes the check fail.
"""

import os
import socket
import sys
import time
import urllib.request
from pathlib import Path

# The chores touch the file every 5 s by default: a dozen rounds without it are no coincidence.
MAX_AGE_S = 60.0


def api() -> None:
    """Raise OSError unless `/healthz` answers with a success."""
    port = int(os.environ.get("PERENNIAL_PORT", "8000"))
    # Less than the 5 s after which the container runtime ends the check without a reason.
    urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=4).close()


def worker() -> None:
    """Raise OSError where a worker of this host has lost its device, or their file was not touched
    lately.
    """
    folder = Path(os.environ.get("PERENNIAL_DATA_DIR", "perennial-data"))
    touched = folder / "worker-alive"
    # Workers of other hosts may share the folder.
    for lost_mark in folder.glob(f"device-lost-{socket.gethostname()}_*"):
        # A worker that was killed could not remove its mark.
        if time.time() - lost_mark.stat().st_mtime <= MAX_AGE_S:
            raise OSError(f"device lost: {lost_mark.read_text().strip()}")
    age_s = time.time() - touched.stat().st_mtime
    if age_s > MAX_AGE_S:
        raise OSError(f"{touched} was last touched {age_s:.0f} s ago")


def main() -> None:
    """Check what the one argument names."""
    checks = {"api": api, "worker": worker}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(f"usage: health.py {'|'.join(checks)}")
    try:
        checks[sys.argv[1]]()
    except OSError as error:
        sys.exit(f"unhealthy: {error}")


if __name__ == "__main__":
    main()
