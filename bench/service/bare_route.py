"""The reference of `bench.service.api_read`: a bare sync FastAPI route that reads one row through
the ORM.
"""

import os
from typing import Any

from fastapi import FastAPI
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from core.database.tables import Job

engine = create_engine(os.environ["BARE_DATABASE_URL"])
app = FastAPI()


@app.get("/jobs/{job_id}")
def serve_bare_job_row(job_id: str) -> dict[str, Any]:
    """Serve one database row as JSON without key or ETag, as a reference for speed."""
    with Session(engine) as session:
        row = session.get_one(Job, job_id)
        return {
            "id": row.id,
            "model": row.model_id,
            "task": row.task_number,
            "state": row.state,
            "attempt": row.attempt,
            "progress": row.progress,
            "error": row.error,
            "version": row.version,
            "created_at": row.created_at,
            "started_at": row.started_at,
            "finished_at": row.finished_at,
        }
