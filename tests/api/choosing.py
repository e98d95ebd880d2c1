"""A job whose trials are measured, and which waits until a person chooses one."""

import json

from starlette.testclient import TestClient

from core.contract.jobs.trial import TrialMeasurements, TrialScore
from core.database.session import Database
from core.database.tables import Job, Trial
from tests.api.conftest import Make, create_model

RECIPES = [
    {"method": {"name": "analytic", "head": "lda"}},
    {"method": {"name": "analytic", "head": "ridge"}},
]
FIGURES = [
    TrialMeasurements(
        score=TrialScore(source="left-out", value=value, error=0.01, images=40),
        passed=True,
        accuracy={"1": [right, 10]},
        acc=right / 10,
        bytes=4000,
        images=0,
    )
    for value, right in ((0.8, 7), (0.9, 9))
]


def make_choosing_job(client: TestClient, archive: Make, name: str) -> str:
    """Send a batch with two trials to a new model, mark both trials as measured, and return the
    job.
    """
    path = f"/v1/models/{create_model(client, name)}/tasks"
    query = {"trials": json.dumps(RECIPES), "choose": "manual"}
    sent = client.post(path, params=query, content=archive(cat=9, dog=9))
    assert sent.status_code == 202, sent.text
    job_id: str = sent.json()["job"]["id"]
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        job = session.get_one(Job, job_id)
        job.state, job.choose_until = "choosing", db.now(session) + 1e6
        for number, figures in enumerate(FIGURES, start=1):
            trial = session.get_one(Trial, (job_id, number))
            trial.state, trial.figures, trial.seconds, trial.parent = "measured", figures, 2.5, 0
    return job_id
