"""The accuracy matrix of a model."""

from typing import Annotated

from fastapi import Header, Query, Response
from pydantic import JsonValue

from api.answers import matches
from api.dependencies import Db, MetricsKept, Read
from api.described import make_router
from api.schemas.common import ModelPath
from core.protocol.answers.metrics import MetricsOut
from core.requests import metrics
from core.requests.metrics import Window

router = make_router("metrics")

_MOST = 2**31 - 1
_responses: dict[int | str, dict[str, JsonValue]] = {
    200: {"headers": {"ETag": {"schema": {"type": "string"}, "description": "Strong: of this very answer"}}},
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


@router.get("/v1/models/{model}/metrics", response_model=MetricsOut, responses=_responses)
def model_metrics(
    model: ModelPath,
    actor: Read,
    db: Db,
    kept: MetricsKept,
    version: Version = "latest",
    from_: From = 0,
    to: To = _MOST,
    tasks: Tasks = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Every version measured on every task, and what follows from it; `from`, `to` and `tasks` show a part of the rows
    and columns, and leave the summary whole."""
    columns = (0, _MOST)
    if tasks is not None:
        first, last = tasks.split(",")
        columns = (int(first), int(last))
    window = Window((from_, to), columns)
    found = metrics.kept_metrics(db, actor, model, kept, version=version, window=window)
    headers = {"ETag": found.tag}
    if if_none_match is not None and matches(if_none_match, found.tag):
        return Response(status_code=304, headers=headers)
    return Response(found.body, 200, headers, "application/json")
