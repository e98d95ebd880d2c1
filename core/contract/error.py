"""Errors of a request (a problem, RFC 9457) and of a job."""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.contract.responses.base import ModelRef


class JobError(TypedDict):
    """The reason why a job ended without success.

    - `kind`: data, code, memory, disk, time, non-finite, weights, export or lost.
    - `code`: that of a problem, or `job-<kind>`.
    """

    kind: str
    code: str
    detail: str


class FieldProblem(TypedDict):
    """One field of a request that is wrong, and why."""

    field: str
    message: str


class AliasState(TypedDict):
    """The version that an alias points to now."""

    alias: str
    version: int


class NamedModel(TypedDict):
    """One of several models that share a name, with its owner's name."""

    id: str
    owner: str


class FittingBase(TypedDict):
    """The architecture and images that an uploaded base fits, and the query of POST /v1/bases."""

    architecture: ArchitectureChoice
    image: ImageOut
    query: str


class Problem(TypedDict):
    """An error response: what is wrong and what to do about it (RFC 9457).

    Optional fields belong to particular problems.
    """

    type: Annotated[
        str,
        Field(
            description="Stable path that names the kind of problem",
            examples=["/problems/not-found"],
        ),
    ]
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]
    state: Annotated[
        NotRequired[str | AliasState],
        Field(description="Of what refused: a job's, a task's or an alias's"),
    ]
    standing: Annotated[NotRequired[str], Field(description="Where the task stands")]
    targets: Annotated[
        NotRequired[list[int]], Field(description="Versions that the alias can be put on")
    ]
    models: Annotated[
        NotRequired[list[NamedModel | ModelRef]],
        Field(description="Those of the ambiguous name, or those that need what was to be deleted"),
    ]
    training_data_deleted_at: NotRequired[str | None]
    used: Annotated[NotRequired[int], Field(description="Bytes in the store")]
    needed: Annotated[NotRequired[int], Field(description="Bytes or parameters that it would take")]
    limit: Annotated[NotRequired[int], Field(description="Bytes or parameters at most")]
    unknown: Annotated[
        NotRequired[list[str]], Field(description="Classes that the model does not know")
    ]
    classes: Annotated[NotRequired[list[str]], Field(description="Those that it knows")]
    fits: NotRequired[FittingBase]
    object: Annotated[NotRequired[str], Field(description="The damaged object's key in the store")]
    task: Annotated[NotRequired[int], Field(description="Of the damaged batch")]
    job: Annotated[NotRequired[str], Field(description="Of the damaged batch or snapshot")]
    part: Annotated[NotRequired[str], Field(description="The damaged part's name")]
    version: Annotated[NotRequired[int], Field(description="Of the damaged part")]
    request: Annotated[
        NotRequired[str], Field(description="Id of the request in the service's log")
    ]
