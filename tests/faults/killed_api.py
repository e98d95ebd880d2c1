"""An API process that dies by SIGKILL at a chosen await of the request that sends a piece of an
upload.

    PYTHONPATH=. python tests/faults/killed_api.py DATA_DIR PORT

Reads numbers from standard input, each on a line. For each it serves from a child process, which
has imported everything already: `serving PID`, and once it is gone `gone -9`. The child counts how
often the request is suspended, and dies before it is resumed for the time of that number.
"""

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from api.app import create_app
from api.server.connection import LimitedHttpConnection
from api.uploads import piece
from core.settings import Settings
from core.uploads import uploads


class Suspended:
    """Awaits a coroutine, and calls `step` before each of its parts runs."""

    def __init__(self, work: Any, step: Any) -> None:
        self._work, self._step = work, step

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._work.__await__()
        resume, value = inner.send, None
        while True:
            self._step()
            try:
                asked = resume(value)
            except StopIteration as done:
                return done.value
            try:
                resume, value = inner.send, (yield asked)
            except BaseException as error:  # noqa: BLE001 - handed on as it is
                resume, value = inner.throw, error


class KillAt:
    """ASGI middleware: the process dies in the request of a piece, before its part
    `number` runs.
    """

    def __init__(self, app: ASGIApp, number: int, counted: Path) -> None:
        self._app, self._number, self._counted = app, number, counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "PATCH":
            await self._app(scope, receive, send)
            return
        parts = 0

        def count_part_or_kill() -> None:
            nonlocal parts
            if parts == self._number:
                os.kill(os.getpid(), signal.SIGKILL)
            parts += 1

        await Suspended(self._app(scope, receive, send), count_part_or_kill)
        self._counted.write_text(str(parts))


def serve_until_killed(data_dir: Path, port: int, number: int) -> None:
    """Serve until killed."""
    uploads.LEAST_BYTES = piece.LEAST_BYTES = 100
    uploads.LEASE_S, uploads.RENEW_S = 0.4, 0.1
    settings = Settings(data_dir=data_dir, host="127.0.0.1", port=port)
    app = KillAt(create_app(settings), number, data_dir / "awaits")
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        http=LimitedHttpConnection,
        log_level="error",
        access_log=False,
    )


def main() -> int:
    """Serve once for each number."""
    data_dir, port = Path(sys.argv[1]), int(sys.argv[2])
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            serve_until_killed(data_dir, port, int(line))
            os._exit(0)
        print(f"serving {child}", flush=True)
        _, status = os.waitpid(child, 0)
        print(f"gone {os.waitstatus_to_exitcode(status)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
