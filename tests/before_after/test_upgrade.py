"""An older data directory still gives the same answers, and its models learn further.

`tests/data/make_before_renovation.py` describes the content of `before-renovation.tar.gz` and how
it was made. What the models then learn is compared with the earlier code by `record` and `compare`,
on one machine.
"""

import json
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.before_after import scenario
from tests.before_after.compare import Comparison
from tests.before_after.contract import watch_contract
from tests.before_after.player import Player
from tests.before_after.reading import read_everything
from tests.before_after.record import SETTINGS
from tests.before_after.stored_parts import read_stored_parts
from tools import service

pytestmark = pytest.mark.slow

BEFORE = Path(__file__).parents[1] / "data" / "before-renovation.tar.gz"
GO_ON = ("ewc-online", "icarl", "rolled", scenario.PAUSED)
"""A model of each method, with `der++` as the paused one, and a model that was rolled back."""
ASKED = {("derpp", 0), ("derpp", 2), ("icarl", 2), ("ewc-online", 2), ("rolled", 6), ("paused", 1)}
"""(model, version): one without any class, and one for each method and way to store it."""
MOVED = ("tasks", "gate", "warnings", "parts", "accuracy", "manifest")
"""Fields that lists of versions had in the past.

Now only each version itself has them, and this is compared too.
"""
Json = dict[str, Any]


@pytest.fixture(
    scope="module",
    params=[ASKED, pytest.param(None, marks=pytest.mark.campaign)],
    ids=["some", "all"],
)
def asked(request: pytest.FixtureRequest) -> set[tuple[str, int]] | None:
    """Return the versions that predict; None means all.

    The others differ from these only in their weights.
    """
    found: set[tuple[str, int]] | None = request.param
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, asked: set[tuple[str, int]] | None) -> Path:
    """Return the unpacked archive, with times as if it had been made today.

    It is unpacked once for each choice of versions that predict.
    """
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(BEFORE) as archive:
        archive.extractall(folder)
    _shift_times_to_today(folder / "data" / "perennial.db")
    return folder


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[service.RunningService]:
    """Run the present service on the old data directory, which the launcher migrates."""
    with service.run_temporary_service(folder / "data", SETTINGS) as found:
        yield found


@pytest.fixture(scope="module")
def player(running: service.RunningService) -> Player:
    """Return a client of the service that keeps all answers."""
    return Player(running.url, running.key)


@pytest.fixture(scope="module")
def unnamed(player: Player) -> set[str]:
    """Return the set that collects what `/openapi.json` does not describe in the answers so far."""
    return watch_contract(player.http)


@pytest.fixture(scope="module")
def served(player: Player, unnamed: set[str], asked: set[tuple[str, int]] | None) -> Json:
    """Return the service's answers about all existing data, before anything is learned."""
    read_everything(
        player, "served", whole=None, is_asked=lambda *version: asked is None or version in asked
    )
    return dict(player.answers)


def _shift_times_to_today(database: Path) -> None:
    """Shift the times of what is swept after some days, so that the recording ends today."""
    with sqlite3.connect(database) as connection:
        ((last,),) = connection.execute("SELECT max(at) FROM events")
        late = (time.time() - last,)
        connection.execute("UPDATE events SET at = at + ?", late)
        connection.execute("UPDATE jobs SET finished_at = finished_at + ?", late)
        connection.execute("UPDATE tasks SET train_until = train_until + ?", late)
    connection.close()


def read_recording(folder: Path, name: str) -> Json:
    found: Json = json.loads((folder / "recorded" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def drop_answers(answers: Json, word: str) -> Json:
    return {title: answer for title, answer in answers.items() if word not in title}


def remove_moved_fields(answers: Json) -> Json:
    """Remove the fields from lists of versions that only the versions themselves have now."""
    for title, answer in answers.items():
        if "/versions?" in title:
            for item in answer["body"]["items"]:
                for name in MOVED:
                    del item[name]
    return answers


def test_every_answer_has_the_fields_and_values_and_every_download_the_bytes_of_before(
    folder: Path, served: Json
) -> None:
    found = Comparison()
    before = remove_moved_fields(drop_answers(read_recording(folder, "answers"), "/predict"))
    found.value("served", before, drop_answers(served, "/predict"))
    assert found.different == []


def test_every_version_predicts_as_before(
    folder: Path, served: Json, asked: set[tuple[str, int]] | None
) -> None:
    before = {
        title: answer
        for title, answer in read_recording(folder, "answers").items()
        if "/predict" in title
    }
    assert len(before) > 40
    if asked is not None:
        paths = {f"/v1/models/{name}/versions/{number}/predict" for name, number in asked}
        before = {title: answer for title, answer in before.items() if title.split()[2] in paths}
        assert len(before) == 2 * len(asked), "files and arrays of each"
    found = Comparison()
    for title, answer in before.items():
        probabilities = take_probabilities(answer), take_probabilities(served[title])
        found.value(title, answer, served[title])
        for one, other in zip(*probabilities, strict=True):
            assert other == pytest.approx(one, abs=1e-4), (
                title
            )  # another processor may round otherwise
    assert found.different == []


def take_probabilities(answer: Json) -> list[dict[str, float]]:
    """Remove the probabilities of each image from an answer, and return them by label.

    The sentences of errors are removed too.
    """
    for image in answer["body"].get("predictions", []):
        image.get("error", {}).pop("detail", None)  # which names the formats that can be read today
    images = [image for image in answer["body"].get("predictions", []) if "error" not in image]
    for image in images:
        del image["probability"]
    return [image.pop("probabilities") for image in images]


def test_every_part_has_the_digest_and_every_memory_the_rows_of_before(
    folder: Path, served: Json
) -> None:
    assert read_stored_parts(folder / "data") == read_recording(folder, "parts")


def test_openapi_names_every_field_of_what_was_stored_before(
    served: Json, unnamed: set[str]
) -> None:
    assert len(served) > 350
    assert sorted(unnamed) == []


@pytest.mark.campaign  # tests/e2e/test_upgrade.py goes on learning from an older directory
def test_the_paused_job_and_models_of_each_method_go_on_in_answers_that_openapi_names(
    player: Player, served: Json, unnamed: set[str]
) -> None:
    paused = player.http.get(f"/v1/models/{scenario.PAUSED}/tasks/2").json()["job"]
    scenario.resume_paused_job(player)
    events = player.http.get(f"/v1/jobs/{paused}/events", params={"type": "log"}).json()["items"]
    said = [event["data"]["message"] for event in events]
    assert [text for text in said if text.startswith("Going on from a snapshot: epoch 19")], said
    scenario.learn_next_batches(player, GO_ON)
    for name in GO_ON:
        job = player.http.get(f"/v1/jobs?model={name}").json()["items"][0]
        assert (job["state"], job["outcome"]) == ("succeeded", "published"), job
    read_everything(player, "went on", whole=set(), names=("icarl", scenario.PAUSED))
    for path in ("/", "/v1/usage?by=owner", "/v1/models/derpp/metrics?from=1&to=2&tasks=1,2"):
        player.ask("GET", path)
    assert sorted(unnamed) == []
