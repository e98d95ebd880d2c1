"""Request bodies about jobs."""

from typing import Annotated

from pydantic import Field

from api.schemas.common import StrictRequestBody
from core.contract.patch import RecipePatch


class Choice(StrictRequestBody):
    """The number of the trial whose result becomes the version."""

    trial: Annotated[int, Field(ge=1, le=8)]


class Retry(StrictRequestBody):
    """A recipe override for a retry; `{}`: the model's recipe, null: the job's previous one."""

    recipe: RecipePatch | None = None
