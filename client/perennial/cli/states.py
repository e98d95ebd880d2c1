"""States shown in listings; each can be used as a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

Work = TypeVar("Work", bound=Callable[..., Any])

JOBS: dict[str, str] = {
    **{
        state: state
        for state in (
            *("queued", "validating", "running", "pausing", "paused", "choosing"),
            *("cancelling", "cancelled", "succeeded", "rejected", "failed"),
        )
    },
    "held": "succeeded",
    "waiting": "queued",
    **dict.fromkeys(
        (
            *(
                "validate",
                "prepare",
                "measure",
                "inspect",
                "train",
                "consolidate",
                "evaluate",
                "publish",
            ),
            *("fetch", "load", "export", "check"),
        ),
        "running",
    ),
}
"""States of a job as `perennial.bars.state` names them, and the service's state for each."""
STANDINGS = (
    *("queued", "running", "held", "learned", "rolled_back"),
    *("skipped", "discarded", "rejected", "failed", "cancelled"),
)
"""Standings of a task."""
VERSIONS = ("published", "held")
WEBHOOKS = ("enabled", "failing", "disabled")
WAITS = ("held", "rolled_back", "rejected", "failed", "choosing", "base")
"""Kinds of items in a model that wait for a person."""


def build_state_filter_option(
    flag: str, name: str, states: Iterable[str]
) -> Callable[[Work], Work]:
    """Return a command-line option that filters a list by one of its states."""
    return click.option(
        flag,
        name,
        type=click.Choice(list(states)),
        metavar="STATE",
        help=f"Only these: {', '.join(states)}.",
    )
