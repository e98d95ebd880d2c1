"""What all shapes share: strict bodies, lists, and path parameters."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict

Json = dict[str, Any]

ModelPath = Annotated[str, Path(description="Id or name of the model", max_length=63)]
JobPath = Annotated[str, Path(description="Id of the job", max_length=40)]


class Body(BaseModel):
    """A request's body: unknown fields and coerced types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Shape(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="allow")
