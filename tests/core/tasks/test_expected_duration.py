"""Expected seconds of a batch's job: by the passes of its recipe, and by what the model's earlier
jobs took.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from core.database.tables import Model
from core.packaged import packaged_base
from core.recipe.duration_estimate import PASSES
from core.recipe.resolve import resolve_recipe
from core.tasks.expected_duration import estimate_job_seconds
from tests.core.office import Office
from tests.core.rows import make_job_row, make_task_row
from tests.learning_catalogue import copy_catalogue

CATALOGUE = copy_catalogue()
FORWARD_S = PASSES[packaged_base.PACKAGED][0].forward_s
TRAINING_S = PASSES[packaged_base.PACKAGED][0].training_s


def resolve_method_recipe(method: str, epochs: int = 1) -> Any:
    return resolve_recipe(CATALOGUE, "class", {"method": method, "epochs": epochs}).recipe


def add_job_with_task(
    office: Office, model_id: str, number: int, seconds: float, **values: Any
) -> None:
    """Add a job of the model that has learned 80 images and held out 20."""
    with office.db.write() as session:
        task = make_task_row(f"tsk_{number}", model_id, number, n_train=80, n_held_out=20)
        session.add(task)
        session.flush()
        ended = {
            "state": "succeeded",
            "attempt": 1,
            "started_at": 100.0,
            "finished_at": 100.0 + seconds,
        }
        of = (f"job_{number}", model_id, office.actor.owner_id, task.id, number)
        session.add(
            make_job_row(*of, **{**ended, "recipe": resolve_method_recipe("analytic"), **values})
        )


@pytest.fixture
def known(office: Office, model: str) -> str:
    """The id of a model on the small base."""
    with office.db.write() as session:
        session.get_one(Model, model).base = packaged_base.PACKAGED
    return model


def estimate_seconds(
    office: Office, model_id: str, learned: int, held_out: int, recipe: Mapping[str, Any]
) -> Any:
    with office.db.read() as session:
        model = session.get_one(Model, model_id)
        return estimate_job_seconds(session, CATALOGUE, model, recipe, learned, held_out)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "seconds"),
    [("analytic", 1_200 * FORWARD_S), ("finetune", 1_000 * 2 * TRAINING_S + 200 * FORWARD_S)],
)
def test_before_any_job_the_passes_on_the_base_are_counted(
    office: Office, known: str, method: str, seconds: float
) -> None:
    found = estimate_seconds(office, known, 1_000, 200, resolve_method_recipe(method, epochs=2))
    assert found == pytest.approx(seconds, abs=0.05)


def test_a_network_that_nobody_measured_is_not_guessed(office: Office, model: str) -> None:
    assert estimate_seconds(office, model, 100, 20, resolve_method_recipe("finetune")) is None


def test_the_models_own_jobs_count_more(office: Office, known: str) -> None:
    for number, seconds in ((1, 50.0), (2, 60.0), (3, 700.0)):
        add_job_with_task(office, known, number, seconds)
    # The passes of those jobs: 80 images learned, and the images held out so far. The middle rate
    # counts.
    rate = sorted((50 / 100, 60 / 120, 700 / 140))[1]
    assert estimate_seconds(
        office, known, 80, 80, resolve_method_recipe("analytic")
    ) == pytest.approx(160 * rate, abs=0.05)


@pytest.mark.both_databases
def test_an_unmeasured_network_is_compared_with_its_own_jobs(office: Office, model: str) -> None:
    add_job_with_task(office, model, 1, 10.0, recipe=resolve_method_recipe("finetune", epochs=1))
    # Learning an image costs three passes, answering it one: 80 × 3 + 20, and 80 × 3 × 2 + 20 + 20.
    found = estimate_seconds(office, model, 80, 40, resolve_method_recipe("finetune", epochs=2))
    assert found == pytest.approx(10 * 520 / 260, abs=0.05)


@pytest.mark.parametrize("values", [{"attempt": 2}, {"state": "failed"}, {"finished_at": None}])
def test_jobs_that_were_interrupted_do_not_count(
    office: Office, model: str, values: dict[str, Any]
) -> None:
    add_job_with_task(office, model, 1, 10.0, **values)
    assert estimate_seconds(office, model, 80, 20, resolve_method_recipe("finetune")) is None


def test_check_and_submit_say_it(office: Office, known: str) -> None:
    del known
    expected = office.submission().preview_submission()["expected_s"]
    assert expected is not None
    assert office.submit()["expected_s"] == expected
