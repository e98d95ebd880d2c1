"""Shapes of the health checks."""

from typing import Literal

from api.schemas.common import Shape


class Alive(Shape):
    """The process answers."""

    status: Literal["ok"]


class Ready(Shape):
    """What the service needs. A dead broker only slows it down; a full store still serves what it holds."""

    status: Literal["ready", "not ready"]
    database: Literal["up", "down"]
    store: Literal["up", "down", "full"]
    broker: Literal["up", "down", "none"]
