"""Detection of clients that do not read, from what their side has acknowledged.

The bytes handed to the operating system say little: it buffers megabytes at once, and accepts more
only after a third of them has gone. A client that reads one byte a second would look like one that
reads nothing, and like a legitimate one on a slow line. Linux counts acknowledged bytes (TCP_INFO);
elsewhere only the server's own write buffer can be measured.
"""

import asyncio
import contextlib
import socket
import struct
import sys

_LINUX = sys.platform.startswith("linux")
_ACKNOWLEDGED = 120
"""Offset of `tcpi_bytes_acked` in `struct tcp_info` (Linux 4.1; `include/uapi/linux/tcp.h`).
`tcpi_notsent_bytes` is at 144, `tcpi_bytes_sent` and `tcpi_bytes_retrans` are at 200 and 208
(4.19).
"""
_INFO_BYTES = 216
_LOOKS = 10
"""Number of measurements of a connection in `idle_s`."""
UNSENT_BYTES = 256 << 10
"""Bytes that the system may buffer for a connection beyond those in flight; its default is 4 MB."""


class SlowReaderDetector:
    """Token bucket, in seconds, that detects a client that reads too slowly.

    The bucket runs empty after `idle_s` without progress. Each byte that is read adds `1 /
    min_rate` seconds.

    Args:
        idle_s: seconds without progress. A system reports reading only in pieces of up to 128 KiB.
            Less than two minutes would therefore end legitimate readers of 1 KiB/s.
        min_rate: bytes per second that a client must read in the long run.
    """

    def __init__(self, transport: asyncio.Transport, idle_s: float, min_rate: int) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.get_extra_info("socket")
        # A UNIX socket acknowledges nothing.
        self._is_counted = _LINUX and self._socket.family in (socket.AF_INET, socket.AF_INET6)
        self._idle_s, self._min_rate = idle_s, min_rate
        self._left_s = idle_s
        self._at: float | None = None
        self._waiting = self._taken = 0
        if self._is_counted:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)

    def record_progress_and_detect_stall(self, now: float) -> bool:
        """Return True if the client has read too little for too long; call it about once a second.

        Args:
            now: the event loop's time in seconds.
        """
        if self._at is not None and now - self._at < self._idle_s / _LOOKS:
            return False
        waiting, acknowledged = self._measure_unread_and_read_bytes()
        progress = acknowledged - self._taken
        # All that waited at the last look has been read: what waits now is newer.
        if self._at is None or progress >= self._waiting:
            self._left_s = self._idle_s
        else:
            remaining_s = self._left_s + progress / self._min_rate - (now - self._at)
            self._left_s = min(self._idle_s, remaining_s)
        self._at, self._waiting, self._taken = now, waiting, acknowledged
        return self._left_s <= 0

    def reset_stall_timing(self) -> None:
        """Pause the measurement of reading speed while there is nothing to send."""
        self._at = None

    def abort_connection(self) -> None:
        """Abort the connection, and let the system discard what it still buffers for it."""
        with contextlib.suppress(OSError):
            # With a linger time of 0 the system sends RST and discards its buffer.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _measure_unread_and_read_bytes(self) -> tuple[int, int]:
        """Return bytes not yet read by the client, and bytes read since the connection began."""
        buffered = self._transport.get_write_buffer_size()
        if self._is_counted:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            # Older kernels have a shorter struct, without all of these counters.
            if len(info) >= _INFO_BYTES:
                (acknowledged,) = struct.unpack_from("Q", info, _ACKNOWLEDGED)
                (unsent,) = struct.unpack_from("I", info, 144)
                # Bytes in flight wait, too; the kernel counts a byte as sent each time that it is resent.
                sent, resent = struct.unpack_from("QQ", info, 200)
                return buffered + unsent + max(0, sent - resent - acknowledged), acknowledged
        # Count any change as progress: the buffer changes only when the client has read or more was
        # sent.
        return buffered, self._taken + (self._waiting if buffered != self._waiting else 0)
