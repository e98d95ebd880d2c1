"""Responses that need no key: the health checks and the entry point."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class Alive(TypedDict):
    """Response of the liveness probe: the process responds."""

    status: Literal["ok"]


class Ready(TypedDict):
    """Response of the readiness probe: the state of each dependency of the service.

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
    """Entry document of the API: its paths, and other information for the first steps."""

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
