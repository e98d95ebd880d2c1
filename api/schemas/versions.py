"""Paths of versions and aliases, and bodies of requests about aliases."""

from typing import Annotated

from fastapi import Path
from pydantic import Field

from api.schemas.common import Body, Prose, Reason

VersionPath = Annotated[str, Path(description="Number or alias of the version", max_length=63)]
AliasPath = Annotated[str, Path(description="Name of the alias", max_length=63)]


class VersionPatch(Body):
    """What a person says of a version; null removes it."""

    note: Prose | None


class AliasIn(Body):
    """Where an alias shall point."""

    version: Annotated[int, Field(ge=0, lt=2**31)]
    reason: Reason | None = None


class RollbackIn(Body):
    """Where an alias goes back to (null: its previous target whose gate passed), and why."""

    version: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    reason: Reason | None = None
