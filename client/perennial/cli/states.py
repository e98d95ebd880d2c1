"""States that listings show, each of which can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

Work = TypeVar("Work", bound=Callable[..., Any])

JOBS: dict[str, str] = {
    **{
        state: state
        for state in (
            *("queued", "validating", "running", "pausing", "paused"),
            *("cancelling", "cancelled", "succeeded", "rejected", "failed"),
        )
    },
    "held": "succeeded",
    "waiting": "queued",
    **dict.fromkeys(
        (
            *("validate", "prepare", "measure", "inspect", "train", "consolidate", "evaluate", "publish"),
            *("fetch", "load", "export", "check"),
        ),
        "running",
    ),
}
"""What `perennial.bars.state` says of a job, and the state that the service knows it by."""
STANDINGS = (
    *("queued", "running", "held", "learned", "rolled_back"),
    *("skipped", "discarded", "rejected", "failed", "cancelled"),
)
"""Of a task."""
VERSIONS = ("published", "held")
WEBHOOKS = ("enabled", "failing", "disabled")
WAITS = ("held", "rolled_back", "rejected", "failed", "base")
"""What waits for a person in a model."""


def state_option(flag: str, name: str, states: Iterable[str]) -> Callable[[Work], Work]:
    """Make an option that takes one of the states that a listing shows."""
    return click.option(
        flag, name, type=click.Choice(list(states)), metavar="STATE", help=f"Only those: {', '.join(states)}."
    )
