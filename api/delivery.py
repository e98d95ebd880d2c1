"""Whether a client takes what it is sent, judged by what its side has acknowledged.

What the server has handed to the system says little: the system takes megabytes at once, and more only after a third
of them has gone. A client that reads a byte a second looks like one that reads nothing, and like an honest one on a
slow line. The system counts what has been acknowledged (TCP_INFO, Linux); elsewhere only what the server itself still
holds can be looked at.
"""

import asyncio
import contextlib
import socket
import struct
import sys

_LINUX = sys.platform.startswith("linux")
_ACKNOWLEDGED = 120
"""Where `tcpi_bytes_acked` stands in `struct tcp_info` (Linux 4.1; `include/uapi/linux/tcp.h`); `tcpi_notsent_bytes`
at 144, `tcpi_bytes_sent` and `tcpi_bytes_retrans` at 200 and 208 (4.19)."""
_INFO_BYTES = 216
_LOOKS = 10
"""How often a connection is measured in `idle_s`."""
UNSENT_BYTES = 256 << 10
"""What the system may hold of a connection beyond what is on its way; it would take 4 MB for one that reads nothing."""


class Delivery:
    """Judges one connection by a token bucket of seconds: it runs dry in `idle_s` without progress, and each byte that
    is taken buys `1 / min_rate` of them.

    Args:
        idle_s: seconds without progress. A system says what its reader has taken only in pieces of up to 128 KiB: less
            than two minutes would end honest readers of 1 KiB/s.
        min_rate: bytes per second that must be taken in the long run.
    """

    def __init__(self, transport: asyncio.Transport, idle_s: float, min_rate: int) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._is_counted = _LINUX and self._socket.family in (socket.AF_INET, socket.AF_INET6)
        self._idle_s, self._min_rate = idle_s, min_rate
        self._left_s = idle_s
        self._at: float | None = None
        self._waiting = self._taken = 0
        if self._is_counted:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)

    def stalled(self, now: float) -> bool:
        """Whether too little has been taken for too long of what waits; to be asked every second or so.

        Args:
            now: the event loop's time in seconds.
        """
        if self._at is not None and now - self._at < self._idle_s / _LOOKS:
            return False
        waiting, taken = self._measured()
        progress = taken - self._taken
        if self._at is None or progress >= self._waiting:
            self._left_s = self._idle_s
        else:
            left = self._left_s + progress / self._min_rate - (now - self._at)
            self._left_s = min(self._idle_s, left)
        self._at, self._waiting, self._taken = now, waiting, taken
        return self._left_s <= 0

    def pause(self) -> None:
        """Nothing is to be sent now."""
        self._at = None

    def reset(self) -> None:
        """End the connection, and have the system forget what it still holds of it."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _measured(self) -> tuple[int, int]:
        """Bytes that wait, and bytes taken since the connection began (a number that only grows)."""
        held = self._transport.get_write_buffer_size()
        if self._is_counted:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            if len(info) >= _INFO_BYTES:
                (acknowledged,) = struct.unpack_from("Q", info, _ACKNOWLEDGED)
                (unsent,) = struct.unpack_from("I", info, 144)
                sent, again = struct.unpack_from("QQ", info, 200)
                return held + unsent + max(0, sent - again - acknowledged), acknowledged
        # Any change is taken for progress: a held buffer changes only when some of it has gone, or more came.
        return held, self._taken + (self._waiting if held != self._waiting else 0)
