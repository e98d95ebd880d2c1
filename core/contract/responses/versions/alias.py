"""Aliases."""

from typing_extensions import TypedDict


class LostTask(TypedDict):
    """A task that the production version knew before production moved, and does not know now.

    `training_data_until`: end of the time in which it can be learned again, while `can_relearn`.
    """

    task: int
    name: str | None
    classes: list[str]
    lost_classes: list[str]
    standing: str | None
    training_data_until: str | None
    can_relearn: bool


class AliasOut(TypedDict):
    """An alias of a model, such as `production`, and the version that it points to.

    For `production` it also says whether the alias follows the lineage, and what its move has cost.
    """

    name: str
    version: int
    updated_at: str
    follows: bool | None
    line_head: int | None
    lost_tasks: list[LostTask]
    warnings: list[str]


class AliasMoveOut(TypedDict):
    """One move of an alias from a version to another.

    `cause` is create, publish, set, rollback or follow; `key` is null for a worker.
    """

    id: int
    version: int
    previous: int | None
    cause: str
    key: str | None
    reason: str | None
    at: str


class AliasHistory(TypedDict):
    """A page of an alias's moves, oldest first."""

    items: list[AliasMoveOut]
    next_cursor: str | None
