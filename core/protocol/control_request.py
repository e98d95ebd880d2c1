"""What a worker asks of a running job process: one byte each on its control pipe."""

from enum import StrEnum


class ControlRequest(StrEnum):
    """To be granted between two steps."""

    SNAPSHOT = "s"
    """Write a snapshot, and go on."""
    ANYTIME = "a"
    """Write the best validated state, to be used while the run goes on."""
    STOP = "p"
    """Write a snapshot and stop."""
