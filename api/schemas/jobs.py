"""Request bodies about jobs."""

from typing import Annotated

from pydantic import Field

from api.schemas.common import Body
from core.contract.patch import RecipePatch


class Choice(Body):
    """The number of the trial whose result becomes the version."""

    trial: Annotated[int, Field(ge=1, le=8)]


class Retry(Body):
    """A recipe override for a retry; `{}`: the model's recipe, null: the job's previous one."""

    recipe: RecipePatch | None = None
