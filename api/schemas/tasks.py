"""Request bodies about tasks."""

from pydantic import Field

from api.schemas.common import Body, FreeName, Reason
from core.contract.patch import RecipePatch


class Settle(Body):
    """The reason why a task is skipped or discarded."""

    reason: Reason | None = None


class FromUpload(Body):
    """A batch that was uploaded in pieces (`/v1/uploads`): id, name, and a recipe override."""

    upload: str = Field(max_length=40)
    name: FreeName | None = None
    recipe: RecipePatch | None = None
