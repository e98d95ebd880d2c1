"""Responses that need no key: the health checks and the entry point."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class Alive(TypedDict):
    """The process responds."""

    status: Literal["ok"]


class Ready(TypedDict):
    """State of the service's dependencies.

    A broker that is down only slows the service, and a full store still serves its objects.

    - `workers`: whether one reports, and whether one claims no jobs since it lost its device. It
      does not affect `status`.
    - `detail`: damage of a corrupt database, and what to do.
    """

    status: Literal["ready", "not ready"]
    database: Literal["up", "down", "corrupt"]
    store: Literal["up", "down", "full"]
    broker: Literal["up", "down", "none"]
    workers: Literal["up", "none", "device lost", "unknown"]
    detail: NotRequired[str]


class Start(TypedDict):
    """Paths of this service, and other information for the first steps."""

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
