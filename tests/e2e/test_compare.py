"""Two versions on the same images, over HTTP: against a brute-force predict, the stored changes,
and the store's files."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from perennial import Conflict, NotFound
from perennial.errors import APIError
from tests.before_after import batches
from tests.e2e import small
from tests.rest import Json, Rest
from tools import service

pytestmark = pytest.mark.slow

FAMILIES = {
    "er": ("class", {"name": "er", "buffer": 40}),
    "analytic": ("class", {"name": "analytic", "projection": 100}),
    "icarl": ("class", {"name": "icarl", "exemplars": 40}),
    "heads": ("task", {"name": "finetune"}),
}
BATCHES = ((0, 1, 2), (3, 4), (0, 5, 3))
"""The digits of each batch: two come again."""
IMAGES = 24
"""Of each digit in a batch."""
PAIRS = ((1, 3), (2, 3))
KINDS = ("both_right", "negative", "positive", "both_wrong")


IN_EACH_BUILD = ("heads",)
"""A way to answer that errs at times, by a head per task;
`tests/core/learning/evaluation/test_comparison.py` compares in all scenarios without HTTP.
"""
EACH_FAMILY = pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=() if name in IN_EACH_BUILD else pytest.mark.campaign)
        for name in FAMILIES
    ],
)


@pytest.fixture(scope="module")
def teach(client: Rest) -> Callable[[str], None]:
    """Teach a model of a family all batches, once."""

    @cache
    def teach_once(name: str) -> None:
        scenario, method = FAMILIES[name]
        create_and_learn(client, name, (0, 1, 2), method, scenario=scenario)

    return teach_once


@pytest.fixture
def learned(teach: Callable[[str], None], model: str) -> None:
    """Teach the model of the test."""
    teach(model)


def create_and_learn(
    client: Rest,
    name: str,
    parts: tuple[int, ...],
    method: Any = "finetune",
    epochs: int = 2,
    **fields: Any,
) -> str:
    """Make a model that learned some of the batches, and return its id."""
    recipe = {} if "analytic" in str(method) else {"epochs": epochs, "seed": 0}
    made = small.create_small_model(client, name, method, recipe=recipe, **fields)
    small.learn_batches(client, name, *(build_batch(part) for part in parts))
    return made.id


def build_batch(part: int) -> bytes:
    """Pack some images of each digit of a batch, other ones in each."""
    rows = {
        digit: batches.read_digit_images(digit, IMAGES * part, IMAGES) for digit in BATCHES[part]
    }
    return small.pack_zip(
        {
            f"{digit}/{n:02d}.png": batches.encode_png(image)
            for digit, of in rows.items()
            for n, image in enumerate(of)
        }
    )


def list_compared_images(client: Rest, model: str, a: int, b: int, kind: str) -> list[Json]:
    """Return the images of a kind, over all pages of seven."""
    found: list[Json] = []
    cursor = ""
    while True:
        page = client.get(
            f"/v1/models/{model}/compare/images?a={a}&b={b}&kind={kind}&limit=7{cursor}"
        )
        found += page["items"]
        if page["next_cursor"] is None:
            assert len(found) == page["total"]
            return found
        cursor = f"&cursor={page['next_cursor']}"


def predict_over_http(
    client: Rest, model: str, version: int, task: int, pictures: list[bytes]
) -> list[Json]:
    """Return what a version predicts for pictures, over HTTP."""
    where = f"/v1/models/{model}/versions/{version}/predict?top_k=1"
    if FAMILIES[model][0] == "task":
        where += f"&task={task}"
    said = []
    for start in range(0, len(pictures), 20):
        files = [
            ("image", (f"{i}.png", p, "image/png"))
            for i, p in enumerate(pictures[start : start + 20])
        ]
        answers = client.call("POST", where, files=files).json()["predictions"]
        said += [one["top"][0] if "top" in one else one for one in answers]
    return said


@pytest.mark.usefixtures("learned")
@pytest.mark.parametrize(
    ("model", "pair"),
    [
        pytest.param(
            model,
            pair,
            marks=()
            if model in IN_EACH_BUILD and pair == PAIRS[index % 2]
            else pytest.mark.campaign,
        )
        for (index, model), pair in product(enumerate(FAMILIES), PAIRS)
    ],
)
def test_the_counts_are_those_of_every_image_predicted_by_both_versions(
    client: Rest, model: str, pair: tuple[int, int]
) -> None:
    a, b = pair
    found = client.get(f"/v1/models/{model}/compare?a={a}&b={b}")
    kinds: Counter[tuple[int, str]] = Counter()
    flipped: dict[str, list[tuple[int, int, str, str, str]]] = {kind: [] for kind in KINDS}
    for task in found["tasks"]:
        n = task["task"]
        listed = client.items(f"/v1/models/{model}/tasks/{n}/images")
        where = f"/v1/models/{model}/tasks/{n}/images/held_out"
        pictures = [client.call("GET", f"{where}/{one['index']}.png").content for one in listed]
        both = [predict_over_http(client, model, version, n, pictures) for version in pair]
        for image, old, new in zip(listed, *both, strict=True):
            right = (old["label"] == image["label"], new["label"] == image["label"])
            kind = {
                (1, 1): "both_right",
                (1, 0): "negative",
                (0, 1): "positive",
                (0, 0): "both_wrong",
            }[right]
            kinds[n, kind] += 1
            flipped[kind].append((n, image["index"], image["label"], old["label"], new["label"]))
        assert {kind: task[kind] for kind in KINDS} == {kind: kinds[n, kind] for kind in KINDS}
    assert found["totals"]["n"] == sum(kinds.values()) > 0
    for kind in KINDS[1:]:
        told = list_compared_images(client, model, a, b, kind)
        assert [
            (one["task"], one["index"], one["label"], one["a"]["label"], one["b"]["label"])
            for one in told
        ] == flipped[kind]
        for one in told[:1]:
            assert client.call("GET", one["image"]).headers["content-type"] == "image/png"


@pytest.mark.usefixtures("learned")
@EACH_FAMILY
def test_the_counts_of_a_child_are_the_stored_changes(client: Rest, model: str) -> None:
    for number in (2, 3):
        manifest = client.get(f"/v1/models/{model}/versions/{number}")["manifest"]
        found = client.get(f"/v1/models/{model}/compare?a={number - 1}&b={number}")
        assert {
            str(task["task"]): {
                "regressed": task["negative"],
                "improved": task["positive"],
                "total": task["n"],
            }
            for task in found["tasks"]
        } == manifest["changes"]


@pytest.mark.usefixtures("learned")
@EACH_FAMILY
def test_probabilities_are_those_of_predict(client: Rest, model: str) -> None:
    told = [one for kind in KINDS[1:] for one in list_compared_images(client, model, 1, 3, kind)][
        :8
    ]
    assert told
    for one in told:
        picture = client.call("GET", one["image"]).content
        for side, version in (("a", 1), ("b", 3)):
            said = predict_over_http(client, model, version, one["task"], [picture])[0]
            assert one[side]["label"] == said["label"]
            assert one[side]["probability"] == pytest.approx(said["probability"], abs=1e-3)


def find_answer_files(running: service.RunningService, model: str) -> set[Path]:
    """Find the files of what the versions of a model (by its id) answered."""
    with sqlite3.connect(running.data_dir / "perennial.db", timeout=60) as db:
        found = db.execute(
            "SELECT answers FROM results WHERE model_id = ? AND answers IS NOT NULL", (model,)
        )
        digests = [digest for (digest,) in found]
    return {
        path
        for digest in digests
        for path in (running.data_dir / "store").glob(f"blobs/*/{digest}")
    }


@pytest.mark.campaign  # core/publishing/test_held_out_predictions.py; test_deleted_data.py deletes
def test_answers_take_six_bytes_an_image_and_go_with_the_images(
    client: Rest, running: service.RunningService
) -> None:
    made = find_answer_files(running, create_and_learn(client, "weighed", (0, 1), epochs=1))
    sizes = {path: path.stat().st_size for path in made}
    counts = [
        client.get(f"/v1/models/weighed/tasks/{n}/images?split=held_out")["total"] for n in (1, 2)
    ]
    # One file an update: version 1 on task 1, and version 2 on both tasks.
    assert len(sizes) == 2 and sum(sizes.values()) <= 6 * (2 * counts[0] + counts[1]) + 3 * 1000
    client.tasks.delete_data("weighed", 1)
    left = [path for path in made if path.exists()]
    # What version 2 answers on task 2 stays; nobody can read what is beside it without the deleted
    # key of task 1.
    assert left == [max(sizes, key=sizes.__getitem__)]
    found = client.get("/v1/models/weighed/compare?a=1&b=2")
    assert found["tasks"] == [] and found["totals"]["n"] == 0
    reasons = {one["task"]: one["reason"] for one in found["left_out"]}
    assert reasons == {1: "data_deleted", 2: "not_measured"}
    with pytest.raises(NotFound):
        client.get("/v1/models/weighed/compare?a=1&b=2&task=1")
    client.models.delete("weighed")
    assert not any(path.exists() for path in made)


@pytest.mark.campaign  # tests/core/publishing/test_held_out_predictions.py shows it
def test_a_model_that_keeps_counts_keeps_no_answers(
    client: Rest, running: service.RunningService
) -> None:
    assert (
        find_answer_files(
            running, create_and_learn(client, "counts", (0,), epochs=1, held_out="counts")
        )
        == set()
    )
    found = client.get("/v1/models/counts/compare?a=0&b=1")
    assert found["left_out"][0]["reason"] == "counts_only"


def test_a_gate_holds_a_version_for_its_flips_until_a_person_takes_it(client: Rest) -> None:
    """It compares with production, also where that is not the parent."""
    create_and_learn(client, "gated", (0, 1), epochs=5, gate={"max_negative_flips": 0.05})
    first, held = (client.get(f"/v1/models/gated/versions/{number}") for number in (1, 2))
    check = find_flips_check(first)
    assert first["status"] == "published" and check["value"] is None and check["passed"]
    check = find_flips_check(held)
    totals = client.get("/v1/models/gated/compare?a=production&b=2")["totals"]
    assert held["status"] == "held" and not check["passed"] and check["limit"] == 0.05
    assert check["value"] == totals["nfr"] > 0.05
    assert (check["against"], check["negative"], check["images"]) == (
        1,
        totals["negative"],
        totals["n"],
    )
    waits = client.get("/v1/models/gated")["attention"][0]["detail"]
    said = (
        f"of {totals['n']} images it gets {totals['negative']} wrong that version 1, in "
        f"production then, gets right"
    )
    assert said in waits
    with pytest.raises(APIError):
        client.aliases.set("gated", "production", 2)
    client.aliases.set("gated", "production", 2, reason="the old classes are sold out")
    version = client.get("/v1/models/gated/versions/2")
    assert version["status"] == "published" and version["gate"]["overruled"]["reason"]
    client.aliases.set("gated", "production", 1, reason="it forgets less")
    client.call("PATCH", "/v1/models/gated", json={"gate": {"max_negative_flips": 1.0}})
    small.learn_batches(client, "gated", build_batch(2))
    check = find_flips_check(client.get("/v1/models/gated/versions/3"))
    totals = client.get("/v1/models/gated/compare?a=1&b=3")["totals"]
    assert check["against"] == 1 and check["value"] == totals["nfr"] > 0


def find_flips_check(version: Json) -> Json:
    """Find the check of negative flips of a version's gate."""
    found: Json = next(
        one for one in version["gate"]["checks"] if one["name"] == "max_negative_flips"
    )
    return found


# tests/api/routes/test_compare.py and tests/core/publishing/test_held_out_predictions.py have the parts
@pytest.mark.campaign
def test_a_version_from_before_gets_its_answers_with_the_next_batch(
    client: Rest, running: service.RunningService
) -> None:
    made = create_and_learn(client, "older", (0,))
    with sqlite3.connect(
        running.data_dir / "perennial.db", timeout=60
    ) as db:  # as older code left it
        db.execute(
            "UPDATE results SET answers = NULL, answers_bytes = NULL WHERE model_id = ?", (made,)
        )
    with pytest.raises(Conflict) as refused:
        client.versions.compare("older", 1, 1)
    assert refused.value.code == "answers-missing" and "The next job asks it again" in str(
        refused.value
    )
    small.learn_batches(client, "older", build_batch(1))
    found = client.get("/v1/models/older/compare?a=1&b=2")
    changes = client.get("/v1/models/older/versions/2")["manifest"]["changes"]["1"]
    assert (found["totals"]["negative"], found["totals"]["n"]) == (
        changes["regressed"],
        changes["total"],
    )
    assert client.get("/v1/models/older/compare?a=1&b=1")["totals"]["negative"] == 0
