"""Request bodies about jobs."""

from api.schemas.common import Body
from core.contract.patch import RecipePatch


class Retry(Body):
    """A recipe override for a retry; `{}`: the model's recipe, null: the job's previous one."""

    recipe: RecipePatch | None = None
