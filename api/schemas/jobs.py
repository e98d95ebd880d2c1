"""Bodies of requests about jobs."""

from api.schemas.common import Body
from core.protocol.patch import RecipePatch


class Retry(Body):
    """A retry or relearning may bring another recipe override; `{}`: the model's recipe, null: the one it had."""

    recipe: RecipePatch | None = None
