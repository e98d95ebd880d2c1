"""The first advice on a held version is the one that works: it is sent as it is, and the new
version passes.
"""

from typing import Any

import pytest

from perennial import words
from tests.e2e import small
from tests.rest import Json, Rest

pytestmark = pytest.mark.slow

FORGETS = {"method": "finetune", "epochs": 20, "batch_size": 8}
REPLAY = {"method": {"name": "er", "buffer": 100}, "epochs": 20, "batch_size": 8}
FEW = {**REPLAY, "method": {"name": "er", "buffer": 2}, "seed": 2}
"""Two retained images. Of the seeds 0 to 3, the first request mends 2 and 3; the gate holds the
results of 0 and 1.
"""


def create_model(client: Rest, name: str, **fields: Any) -> None:
    client.models.create(name, "class", **{**small.MODEL, **fields})


def get_first_action(client: Rest, model: str) -> Json:
    """Return the first request of what waits in a model, which is held."""
    (entry,) = client.get(f"/v1/models/{model}")["attention"]
    assert entry["kind"] == "held"
    action: Json = entry["actions"][0]
    return action


def follow_action(client: Rest, action: Json) -> Json:
    """Send a request as it is, and return the version that its job has made."""
    made = client.call(action["method"], action["path"], json=action["body"]).json()
    job = client.wait(made["id"])
    found: Json = client.get(f"/v1/models/{made['model']}/versions/{job.version}")
    return found


def read_mean_accuracy(client: Rest, model: str, version: int) -> float:
    """Return the mean accuracy of a version over all tasks."""
    return float(client.get(f"/v1/models/{model}/metrics?version={version}")["summary"]["acc"])


@pytest.mark.parametrize(
    ("name", "recipe", "override", "advised"),
    [
        ("gentle", FORGETS, None, {"method": {"name": "lwf"}, "depth": 1}),
        # tests/core/models/test_held_actions.py shows when these are advised
        pytest.param("own", REPLAY, FORGETS, {}, marks=pytest.mark.campaign),
        pytest.param("few", FEW, None, {"method": {"name": "slca"}}, marks=pytest.mark.campaign),
    ],
)
def test_a_version_that_forgot_is_mended_by_the_first_request(
    client: Rest, name: str, recipe: Json, override: Json | None, advised: Json
) -> None:
    model = f"first-{name}"
    create_model(client, model, recipe=recipe)
    small.learn_batches(client, model, small.WEEKS[0])
    small.learn_batches(
        client, model, small.WEEKS[1], **({} if override is None else {"recipe": override})
    )
    held = client.get(f"/v1/models/{model}/versions/2")
    assert held["status"] == "held"
    action = get_first_action(client, model)
    assert action["body"] == {"recipe": advised}
    mended = follow_action(client, action)
    assert mended["status"] == "published"
    before, after = (
        read_mean_accuracy(client, model, version) for version in (2, mended["number"])
    )
    assert after > before + 0.05


@pytest.mark.campaign  # tests/core/models/test_held_actions.py shows when it is advised
def test_a_version_that_learned_too_little_is_mended_by_the_first_request(client: Rest) -> None:
    once = {"method": "finetune", "epochs": 1, "batch_size": 8, "optimizer": {"lr": 0.03}}
    create_model(client, "first-weak", recipe=once, gate={"checks": "off", "min_new_task": 0.8})
    small.learn_batches(client, "first-weak", small.WEEKS[4])
    action = get_first_action(client, "first-weak")
    assert action["body"] == {"recipe": {"epochs": 5}}
    mended = follow_action(client, action)
    assert mended["status"] == "published"
    before, after = (read_mean_accuracy(client, "first-weak", version) for version in (1, 2))
    assert after > before + 0.05


@pytest.mark.campaign  # tests/core/models/test_held_actions.py has the order
def test_the_command_line_prints_it_first(client: Rest) -> None:
    create_model(client, "first-said", recipe=FORGETS)
    job = small.learn_batches(client, "first-said", *small.WEEKS[:2])[-1]
    model = client.models.retrieve("first-said")
    held, url = client.versions.retrieve("first-said", 2), client.connection.url
    said = words.describe_held_version(model, held, model.attention[0], job.id, url)
    first = next(line for line in said.split("\n") if line.startswith("  perennial "))
    assert (
        first
        == f'  perennial jobs retry {job.id} --recipe \'{{"method": {{"name": "lwf"}}, "depth": '
        f"1}}'"
    )
