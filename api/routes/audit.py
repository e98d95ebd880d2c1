"""The audit trail, for administrators."""

from fastapi import APIRouter, Response

from api.answers import json_answer
from api.dependencies import LIMIT, Admin, Cursor, Db, Limit
from core.protocol.answers.audit import AuditPage
from core.requests.audit import list_audit

router = APIRouter(tags=["audit"])


@router.get("/v1/audit", response_model=AuditPage)
def read(actor: Admin, db: Db, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """Who changed what, oldest first."""
    return json_answer(list_audit(db, actor, limit=limit, cursor=cursor))
