"""Several recipes for one batch through HTTP: the best becomes the version, bit for bit as alone."""

import json
import signal
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from perennial.errors import Conflict, Invalid, NotFound
from tests.e2e.holder import Holder
from tests.e2e.small import WEEKS, create_small_model, learn_batches, thin_out, wait_until
from tests.rest import Json, Rest

_NUMBERS = count()
RIDGE: Json = {"method": {"name": "analytic", "head": "ridge"}}
LDA: Json = {"method": {"name": "analytic", "head": "lda"}}
HEADS = [LDA, RIDGE]
TRAINED: list[Json] = [
    {"method": {"name": "er", "buffer": 20}, "epochs": 2},
    {"method": {"name": "finetune"}, "epochs": 1},
]


def create_numbered_model(client: Rest, method: str | Json = "analytic", **fields: Any) -> str:
    """Create a new model, and return its name."""
    name = f"tried-{next(_NUMBERS)}"
    create_small_model(client, name, method, **fields)
    return name


def submit_trials(
    client: Rest, model: str, batch: bytes, trials: Any = "auto", **query: Any
) -> Json:
    """Send a batch with trials, and return the response."""
    text = trials if isinstance(trials, str) else json.dumps(trials)
    path = f"/v1/models/{model}/tasks"
    return client.call("POST", path, params={"trials": text, **query}, content=batch).json()


def read_parts(client: Rest, model: str, version: int) -> dict[str, str]:
    """Return the digests of a version's parts by name."""
    parts = client.get(f"/v1/models/{model}/versions/{version}")["parts"]
    return {part["name"]: part["sha256"] for part in parts}


def read_trials_table(client: Rest, job: str) -> Json:
    return client.get(f"/v1/jobs/{job}/trials")


def assert_equals_single_recipe(
    client: Rest, model: str, table: Json, batches: Sequence[bytes], **fields: Any
) -> None:
    """Assert that trials give the same newest version as the chosen recipe alone.
    That recipe is sent alone to another model.
    """
    chosen = table["items"][table["chosen"] - 1]["recipe"]
    alone = create_numbered_model(client, **fields)
    learn_batches(client, alone, *batches[:-1])
    learn_batches(client, alone, batches[-1], recipe=chosen)
    version = len(batches)
    assert read_parts(client, model, version) == read_parts(client, alone, version)
    tried, expected = (
        client.get(f"/v1/models/{name}/versions/{version}")["manifest"] for name in (model, alone)
    )
    for field in ("recipe", "method", "classes", "tasks", "parts", "datasets", "temperature"):
        assert tried[field] == expected[field], field


@pytest.mark.slow
def test_the_better_head_is_chosen_by_left_out_answers_and_is_as_if_sent_alone(
    client: Rest,
) -> None:
    model = create_numbered_model(client)
    learn_batches(client, model, WEEKS[0])
    accepted = submit_trials(client, model, WEEKS[1], HEADS)
    end = client.wait(accepted["job"]["id"])
    assert (end.state, end.version) == ("succeeded", 2), end.error
    table = read_trials_table(client, end.id)
    assert [one["state"] for one in table["items"]] == ["measured", "measured"]
    assert table["source"] == "left-out"
    assert table["chosen"] == table["best"]
    for one in table["items"]:
        assert one["score"]["source"] == "left-out"
        assert 0 < one["score"]["value"] <= 1
        assert one["seconds"] > 0
        assert set(one["accuracy"]) == {"1", "2"}
        assert (one["why_lost"] is None) == (one["trial"] == table["chosen"])
    assert_equals_single_recipe(client, model, table, WEEKS[:2])


@pytest.mark.campaign  # the next test compares them through a kill
@pytest.mark.slow
def test_trained_candidates_are_compared_on_images_that_none_learns(client: Rest) -> None:
    fields = {"method": "finetune", "selection": True}
    model = create_numbered_model(client, **fields)
    learn_batches(client, model, WEEKS[0])
    accepted = submit_trials(client, model, WEEKS[1], TRAINED)
    end = client.wait(accepted["job"]["id"])
    assert (end.state, end.version) == ("succeeded", 2), end.error
    table = read_trials_table(client, end.id)
    assert [one["score"]["source"] for one in table["items"]] == ["selection"] * 2
    # One of 24 training images of each of four digits.
    assert [one["score"]["images"] for one in table["items"]] == [4, 4]
    assert [one["images"] for one in table["items"]] == [20, 0]
    assert client.get(f"/v1/models/{model}/tasks/2")["n_train"] == 46
    assert_equals_single_recipe(client, model, table, WEEKS[:2], **fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "job-consolidate",
        pytest.param("trial-begun", marks=pytest.mark.campaign),
        pytest.param("trial-stored", marks=pytest.mark.campaign),
        pytest.param("trial-chosen", marks=pytest.mark.campaign),
    ],
)
def test_a_job_that_is_killed_in_its_second_trial_goes_on_with_it(
    client: Rest, holder: Holder, kill_points: Path, point: str
) -> None:
    model = create_numbered_model(client, "finetune", selection=True)
    # The point is reached in the first trial as well, so it is armed when that is measured.
    holder.arm("trial-measured")
    job = submit_trials(client, model, WEEKS[0], TRAINED)["job"]["id"]
    holder.wait()
    first = read_trials_table(client, job)["items"][0]
    assert first["state"] == "measured"
    (kill_points / point).write_text(str(int(signal.SIGKILL)))
    holder.release()
    end = client.wait(job)
    assert not (kill_points / point).exists(), "a process died there"
    assert (end.state, end.attempt) == ("succeeded", 2), end.error
    table = read_trials_table(client, job)
    assert [one["score"]["source"] for one in table["items"]] == ["selection"] * 2
    kept = ("state", "score", "accuracy", "bytes", "seconds")
    assert [table["items"][0][name] for name in kept] == [first[name] for name in kept]
    begun = [line for line in _read_log(client, job) if line.startswith("Trial 1 of 2 begins")]
    assert len(begun) == 1, "the first trial is learned once"
    assert_equals_single_recipe(client, model, table, WEEKS[:1], method="finetune", selection=True)


def _read_log(client: Rest, job: str) -> list[str]:
    return [line["message"] for line in client.items(f"/v1/jobs/{job}/logs")]


@pytest.mark.slow
def test_a_person_chooses_and_later_batches_wait(client: Rest) -> None:
    model = create_numbered_model(client)
    job = submit_trials(client, model, WEEKS[0], HEADS, choose="manual")["job"]["id"]
    wait_until(lambda: client.get(f"/v1/jobs/{job}")["state"] == "choosing")
    later = client.submit(model, WEEKS[1])
    table = read_trials_table(client, job)
    assert table["chosen"] is None
    assert table["until"] is not None
    other = 3 - table["best"]
    with pytest.raises(NotFound, match="has no trial 7"):
        client.call("POST", f"/v1/jobs/{job}/choose", json={"trial": 7})
    assert client.get(f"/v1/jobs/{later.id}")["state"] == "queued"
    for _ in range(2):  # the second time changes nothing
        client.call("POST", f"/v1/jobs/{job}/choose", json={"trial": other})
    assert client.wait(job).version == 1
    assert client.wait(later).version == 2
    table = read_trials_table(client, job)
    assert (table["chosen"], table["until"]) == (other, None)
    assert (
        client.get(f"/v1/models/{model}/versions/1")["manifest"]["recipe"]["method"]["head"]
        == ("lda", "ridge")[other - 1]
    )
    with pytest.raises(Conflict, match="is chosen already"):
        client.call("POST", f"/v1/jobs/{job}/choose", json={"trial": table["best"]})


@pytest.mark.campaign  # tests/core/trials/test_rows.py shows most of it
def test_a_waiting_choice_is_cancelled_or_forgotten_with_the_data_it_rests_on(
    client: Rest,
) -> None:
    model = create_numbered_model(client)
    learn_batches(client, model, WEEKS[0])
    job = submit_trials(client, model, WEEKS[1], HEADS, choose="manual")["job"]["id"]
    wait_until(lambda: client.get(f"/v1/jobs/{job}")["state"] == "choosing")
    client.call("DELETE", f"/v1/models/{model}/tasks/1/data")
    wait_until(lambda: client.get(f"/v1/jobs/{job}")["state"] == "choosing")
    begun = [line for line in _read_log(client, job) if " of 2 begins" in line]
    assert len(begun) == 4, "both were learned again without the data"
    client.call("POST", f"/v1/jobs/{job}/cancel")
    assert client.wait(job).state == "cancelled"
    client.call("POST", f"/v1/jobs/{job}/retry", json={"recipe": LDA})
    assert client.wait(job).version == 2
    with pytest.raises(NotFound, match="learns one recipe"):
        read_trials_table(client, job)


@pytest.mark.slow
def test_auto_finds_candidates_that_fit_the_model(client: Rest) -> None:
    model = create_numbered_model(client, "analytic", base=None, selection=True)
    path = f"/v1/models/{model}/tasks"
    query = {"trials": "auto", "validate": "only"}
    plan = client.call("POST", path, params=query, content=WEEKS[0]).json()["trials"]
    methods = [one["recipe"]["method"]["name"] for one in plan]
    assert 3 <= len(plan) <= 5
    assert "slca" in methods
    assert all(one["reason"].endswith(".") for one in plan)
    job = submit_trials(client, model, WEEKS[0])["job"]["id"]
    table = read_trials_table(client, job)
    client.call("POST", f"/v1/jobs/{job}/cancel")  # the tests above learn all candidates
    assert [one["recipe"] for one in table["items"]] == [one["recipe"] for one in plan]


@pytest.mark.slow
def test_trials_beyond_the_budget_are_listed_and_not_run(client: Rest) -> None:
    model = create_numbered_model(client)
    job = submit_trials(client, model, WEEKS[0], HEADS, max_seconds=0.001)["job"]["id"]
    assert client.wait(job).version == 1
    table = read_trials_table(client, job)
    assert [one["state"] for one in table["items"]] == ["measured", "skipped"]
    assert table["chosen"] == 1
    assert table["max_seconds"] == 0.001
    assert table["items"][1]["why_lost"].startswith("It was not run: the budget of 0.001 s")


REFUSALS: dict[str, tuple[Json, Any, str]] = {
    "one recipe": ({}, [LDA], "Trials compare 2 to 8"),
    "nine recipes": ({}, [{"seed": seed} for seed in range(9)], "Trials compare 2 to 8"),
    "equal recipes": ({}, [LDA, RIDGE, LDA], "Recipes 1 and 3 of the list are equal"),
    "no list": ({}, {"epochs": 2}, 'trials is "auto", or a JSON list'),
    "an unknown method": ({}, [LDA, {"method": "magic"}], "Recipe 2 of the list"),
    "resources": ({}, [LDA, {"resources": {"gpus": 2}}], "resources cannot differ"),
    "nothing to compare": ({}, [LDA, {"method": "finetune"}], "keeps no selection images"),
    "too few images": ({"selection": True}, HEADS, "no class of this batch has 8 images"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_trials_that_nothing_can_decide_are_refused(client: Rest, case: str) -> None:
    fields, trials, message = REFUSALS[case]
    model = create_numbered_model(client, **fields)
    batch = thin_out(WEEKS[0]) if case == "too few images" else WEEKS[0]
    with pytest.raises(Invalid, match=message):
        submit_trials(client, model, thin_out(batch) if case == "too few images" else batch, trials)
    assert client.items(f"/v1/models/{model}/tasks") == []


def test_choose_without_trials_and_a_recipe_beside_them_are_refused(client: Rest) -> None:
    path = f"/v1/models/{create_numbered_model(client)}/tasks"
    with pytest.raises(Invalid, match="send trials as well"):
        client.call("POST", path, params={"choose": "manual"}, content=WEEKS[0])
    with pytest.raises(Invalid, match="max_seconds limits trials"):
        client.call("POST", path, params={"max_seconds": 60}, content=WEEKS[0])
    headers = {"Perennial-Recipe": json.dumps(LDA)}
    with pytest.raises(Invalid, match="one recipe, or trials of several"):
        client.call("POST", path, params={"trials": "auto"}, content=WEEKS[0], headers=headers)


def test_a_model_that_keeps_counts_alone_cannot_have_selection_images(client: Rest) -> None:
    with pytest.raises(Invalid, match="selection keeps images of each batch"):
        create_numbered_model(client, selection=True, held_out="counts")
