"""Path parameters of versions and aliases, and request bodies about them."""

from typing import Annotated

from fastapi import Path
from pydantic import Field

from api.schemas.common import Prose, Reason, StrictRequestBody

VersionPath = Annotated[str, Path(description="Number or alias of the version", max_length=63)]
AliasPath = Annotated[str, Path(description="Name of the alias", max_length=63)]


class VersionPatch(StrictRequestBody):
    """A person's note on a version; null removes it."""

    note: Prose | None


class AliasIn(StrictRequestBody):
    """The version that an alias should point at."""

    version: Annotated[int, Field(ge=0, lt=2**31)]
    reason: Reason | None = None


class RollbackIn(StrictRequestBody):
    """The version to roll an alias back to, and why; null: its previous target that passed the
    gate.
    """

    version: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    reason: Reason | None = None
