"""Route for the accuracy matrix of a model."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Query, Response
from pydantic import JsonValue

from api.dependencies import Read, Service
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import is_etag_in_if_none_match
from api.schemas.common import ModelPath
from core.contract.responses.versions.metrics import MetricsOut
from core.versions import metrics
from core.versions.metrics import MatrixWindow

router = make_tagged_api_router("metrics")

# The largest value of PostgreSQL's type integer, which these numbers have.
_MOST = 2**31 - 1
_responses: dict[int | str, dict[str, JsonValue]] = {
    200: {
        "headers": {
            "ETag": {"schema": {"type": "string"}, "description": "Strong: of this very answer"}
        }
    },
    304: {"description": "Not modified since that ETag"},
}

Version = Annotated[
    str, Query(description="Number or alias whose ancestors the summary follows", max_length=63)
]
From = Annotated[int, Query(alias="from", description="First version with a row", ge=0, le=_MOST)]
To = Annotated[int, Query(description="Last version with a row", ge=0, le=_MOST)]
Tasks = Annotated[
    str | None,
    Query(
        description="First and last task with a column, such as 1,100; all by default",
        pattern=r"^[0-9]{1,9},[0-9]{1,9}$",
    ),
]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match")]


@dataclass(frozen=True)
class MatrixQuery:
    """Query of the accuracy matrix: its window, and the version whose ancestors are summarised."""

    version: str
    window: MatrixWindow


async def _gather_matrix_query_parameters(
    version: Version = "latest", from_: From = 0, to: To = _MOST, tasks: Tasks = None
) -> MatrixQuery:
    columns = (0, _MOST)
    if tasks is not None:
        first, last = tasks.split(",")
        columns = (int(first), int(last))
    return MatrixQuery(version, MatrixWindow((from_, to), columns))


@router.get(
    "/v1/models/{model}/metrics",
    summary="Model Metrics",
    response_model=MetricsOut,
    responses=_responses,
)
def read_model_metrics(
    model: ModelPath,
    actor: Read,
    service: Service,
    query: Annotated[MatrixQuery, Depends(_gather_matrix_query_parameters)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the accuracy of every version on every task, and its summary.

    `from`, `to` and `tasks` restrict the rows and columns, but not the summary.
    """
    cached_response = metrics.get_or_build_metrics_json(
        service.db,
        actor,
        model,
        service.kept_metrics,
        version=query.version,
        window=query.window,
    )
    headers = {"ETag": cached_response.tag}
    if if_none_match is not None and is_etag_in_if_none_match(if_none_match, cached_response.tag):
        return Response(status_code=304, headers=headers)
    return Response(cached_response.body, 200, headers, "application/json")
