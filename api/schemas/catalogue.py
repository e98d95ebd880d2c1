"""Shapes of the catalogue."""

from api.schemas.common import Json, Shape


class MethodList(Shape):
    """All methods, and what else a recipe may say."""

    items: list[Json]
    next_cursor: str | None
    recipe: Json
    optimizers: Json
    presets: Json


class ArchitectureList(Shape):
    """All architectures."""

    items: list[Json]
    next_cursor: str | None
