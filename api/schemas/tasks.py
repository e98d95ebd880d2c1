"""Bodies of requests about tasks."""

from pydantic import Field

from api.schemas.common import Body, FreeName, Reason
from core.protocol.patch import RecipePatch


class Settle(Body):
    """Why a task is passed over or discarded."""

    reason: Reason | None = None


class FromUpload(Body):
    """A batch that was uploaded in pieces (`/v1/uploads`): which, its name, and a recipe override for it."""

    upload: str = Field(max_length=40)
    name: FreeName | None = None
    recipe: RecipePatch | None = None
