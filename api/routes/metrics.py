"""The accuracy matrix of a model."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.answers import json_answer
from api.dependencies import Db, Read
from api.schemas.common import ModelPath
from api.schemas.versions import MetricsOut
from core.requests import metrics

router = APIRouter(tags=["metrics"])

Version = Annotated[
    str, Query(description="Number or alias whose ancestors the summary follows", max_length=63)
]


@router.get("/v1/models/{model}/metrics", response_model=MetricsOut)
def model_metrics(model: ModelPath, actor: Read, db: Db, version: Version = "latest") -> Response:
    """Every version measured on every task, and what follows from it."""
    return json_answer(metrics.model_metrics(db, actor, model, version=version))
