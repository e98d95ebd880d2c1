"""Base class and field types of request bodies, and path parameters."""

from typing import Annotated

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from perennial.characters import (
    MAX_NAME_CHARS,
    MAX_PROSE_CHARS,
    validate_and_normalise_name,
    validate_and_normalise_reason,
)

ModelPath = Annotated[str, Path(description="Id or name of the model", max_length=63)]
JobPath = Annotated[str, Path(description="Id of the job", max_length=40)]


FreeName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_NAME_CHARS),
    AfterValidator(validate_and_normalise_name),
]
"""A name that a person chose, in any script (`perennial.characters`)."""
Prose = Annotated[
    str,
    StringConstraints(max_length=MAX_PROSE_CHARS),
    AfterValidator(validate_and_normalise_reason),
]
"""A text that a person wrote, in any script, of one or more lines."""
Reason = Prose
"""A person's reason for an action."""


class StrictRequestBody(BaseModel):
    """A request body that refuses unknown fields and does not coerce types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
