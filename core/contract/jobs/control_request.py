"""Requests of a worker to a running job process: one byte each on its control pipe."""

from enum import StrEnum


class JobControlRequest(StrEnum):
    """A request to the running job process, such as to stop, carried out between two training
    steps.
    """

    SNAPSHOT = "s"
    """Write a snapshot and continue."""
    ANYTIME = "a"
    """Write the best validated state, to be used while the run continues."""
    STOP = "p"
    """Write a snapshot and stop."""
