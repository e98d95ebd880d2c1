"""Request bodies about edits."""

from pydantic import Field

from api.schemas.common import Reason, StrictRequestBody
from core.edits.operations import MAX_OPERATIONS, Operation


class EditIn(StrictRequestBody):
    """Operations that are checked together and applied by one job.

    `parent`: the version that the numbers of images refer to; the edit is refused if the lineage
    continues from another one.
    """

    operations: list[Operation] = Field(min_length=1, max_length=MAX_OPERATIONS)
    reason: Reason | None = None
    parent: int | None = Field(default=None, ge=1, lt=2**31)


class UndoIn(StrictRequestBody):
    """The reason why an edit is undone."""

    reason: Reason | None = None
