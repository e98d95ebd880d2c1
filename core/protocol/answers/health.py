"""What needs no key: the health checks and the way in."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class Alive(TypedDict):
    """The process answers."""

    status: Literal["ok"]


class Ready(TypedDict):
    """What the service needs. A dead broker only slows it down; a full store still serves what it holds.

    `workers`, which do not count either: whether one reports, and whether one claims no jobs since it lost its device.
    `detail`: what is damaged of a corrupt database, and what to do.
    """

    status: Literal["ready", "not ready"]
    database: Literal["up", "down", "corrupt"]
    store: Literal["up", "down", "full"]
    broker: Literal["up", "down", "none"]
    workers: Literal["up", "none", "device lost", "unknown"]
    detail: NotRequired[str]


class Start(TypedDict):
    """Where to go: paths of this service, and what else is needed at first."""

    name: str
    version: str
    pages: str
    docs: str
    openapi: str
    health: str
    ready: str
    models: str
    methods: str
    key: str
    readme: str
