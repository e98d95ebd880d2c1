"""Classes are merged and dropped in models that keep neither images nor features."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from perennial.errors import Conflict, Invalid
from tests.e2e.edited import FIELDS, edit_model
from tests.e2e.small import WEEKS, create_small_model, learn_batches
from tests.e2e.test_edits import read_accuracies
from tests.rest import Json, Rest
from tools.service import RunningService

pytestmark = pytest.mark.slow

SUMS: Json = {"name": "analytic", "projection": 64, "keep": "sums"}
METHODS: dict[str, Json] = {
    "sums": SUMS,
    "sums by ridge": {**SUMS, "head": "ridge"},
    "sums by lda": {**SUMS, "head": "lda", "projection": 0},
    "sums by ncm": {**SUMS, "head": "ncm"},
    "finetune": {"name": "finetune"},
    "lwf": {"name": "lwf"},
    "ewc": {"name": "ewc"},
    "ewc-online": {"name": "ewc-online"},
    "kfac": {"name": "ewc-online", "curvature": "kfac"},
    "si": {"name": "si"},
    "mas": {"name": "mas"},
    "l2-sp": {"name": "l2-sp"},
    "slca": {"name": "slca"},
    "er": {"name": "er", "buffer": 30},
    "er-ace": {"name": "er-ace", "buffer": 30},
    "der": {"name": "der", "buffer": 30},
    "der++": {"name": "der++", "buffer": 30},
    "gem": {"name": "gem", "memory": 10},
    "a-gem": {"name": "a-gem", "buffer": 30},
    "icarl": {"name": "icarl", "exemplars": 30},
    "der-net": {"name": "der-net", "exemplars": 30},
    "dlcft": {"name": "dlcft", "buffer": 30},
    "dne": {"name": "dne", "exemplars": 30},
}
PATCH: list[Json] = [
    {"merge": {"from": ["0", "2"], "into": "round"}},
    {"drop": {"class": "5"}},
]
QUICK = ("der++",)
CASES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.campaign) for name in METHODS
]


def create_learned_model(client: Rest, name: str, method: str, weeks: int = 3) -> str:
    """Create a model that learned some batches and keeps no image of them."""
    model = f"patched-{name.replace(' ', '-')}"
    options = FIELDS.get(METHODS[method]["name"], {})
    create_small_model(client, model, METHODS[method], training_data_days=0, **options)
    learn_batches(client, model, *WEEKS[:weeks])
    return model


@pytest.mark.parametrize("method", CASES)
def test_classes_are_merged_and_dropped_without_images(client: Rest, method: str) -> None:
    model = create_learned_model(client, f"both-{method.replace('+', 'p')}", method)
    made = edit_model(client, model, PATCH)
    assert (made["way"], made["version"]) == ("patch", 4)
    newest = client.read_versions(model)[-1]["manifest"]
    assert newest["classes"] == ["round", "1", "3", "4"]
    tasks = {one["number"]: one for one in client.items(f"/v1/models/{model}/tasks")}
    assert tasks[1]["classes"] == {"1": 32, "round": 32}
    assert tasks[3]["classes"] == {"4": 32} and tasks[3]["n_train"] == 24
    found = read_accuracies(client, model)[4]
    assert found.keys() == {1, 2, 3} and None not in found.values()
    # The state fits the classes: the next batch is learned, and a former name is the class.
    learn_batches(client, model, WEEKS[3])
    later = client.read_versions(model)[-1]
    assert later["manifest"]["classes"] == ["round", "1", "3", "4", "6", "7"]
    for operation in (
        {"relabel": {"task": 1, "image": 0, "label": "1"}},
        {"remove": {"task": 1, "image": 0}},
    ):
        with pytest.raises(Conflict, match=r'What would have been needed.*"keep": "features"'):
            client.call("POST", f"/v1/models/{model}/edits", json={"operations": [operation]})


def read_sums(
    client: Rest, running: RunningService, model: str
) -> dict[tuple[int, str], np.ndarray]:
    """Return the sums by task and class, and each task's G as "gram".
    The newest parts have them.
    """
    sums: dict[tuple[int, str], np.ndarray] = {}
    newest = {
        part["name"]: (part, one["manifest"]["classes"])
        for one in client.read_versions(model)
        for part in one["manifest"]["parts"]
    }
    # A part has the numbers of the version that stored it, before or after the merge.
    for name, (part, former) in newest.items():
        classes = ["round" if label in "02" else label for label in former]
        if part["type"] == "statistics":
            task, tensors = int(name.split(".")[1]), load_file(find_blob(running, part["sha256"]))
            sums[task, "gram"] = tensors[f"{task}.gram"]
            for column, row in enumerate(tensors[f"{task}.rows"]):
                sums[task, classes[row]] = tensors[f"{task}.cross"][:, column]
                sums[task, f"count of {classes[row]}"] = tensors[f"{task}.counts"][column]
    return sums


def find_blob(running: RunningService, digest: str) -> Path:
    (path,) = (running.data_dir / "store").glob(f"blobs/*/{digest}")
    return path


@pytest.mark.campaign  # tests/core/edits/test_rewrite.py moves rows; the next test reads both
@pytest.mark.parametrize(
    ("method", "weeks"),
    # Without images, the head that they chose stays. With two weeks, `auto` would choose another.
    [("sums", 3), ("sums by ridge", 2), ("sums by ncm", 2)],
)
def test_sums_of_merged_classes_are_those_of_the_merged_batches(
    client: Rest, running: RunningService, method: str, weeks: int
) -> None:
    model = create_learned_model(client, f"merged-{method}", method, weeks)
    plan = client.call(
        "POST", f"/v1/models/{model}/edits?validate=only", json={"operations": PATCH[:1]}
    ).json()
    assert plan["way"] == "patch" and "exact but for rounding" in plan["approximation"]
    edit_model(client, model, PATCH[:1])
    parts = client.read_versions(model)[-1]["manifest"]["parts"]
    # No task has both classes, so that the sums of each stay as they are.
    assert {part["type"] for part in parts}.isdisjoint({"statistics", "features"})
    # A model whose first batch is merged at once keeps features to recompute from.
    other = f"{model}-with-features"
    create_small_model(client, other, {**METHODS[method], "keep": "features"}, training_data_days=0)
    learn_batches(client, other, *WEEKS[:weeks])
    assert edit_model(client, other, PATCH[:1])["way"] == "recompute"
    found, expected = (read_sums(client, running, each) for each in (model, other))
    assert found.keys() == expected.keys()
    for name, sums in expected.items():
        assert np.allclose(found[name], sums, rtol=1e-12, atol=1e-9), name
    assert read_accuracies(client, model)[weeks + 1] == read_accuracies(client, other)[weeks + 1]


# tests/core/execution/test_class_numbers.py shows how their rows are read, and test_former_edits.py
# reads those of a former edit.
@pytest.mark.campaign
def test_sums_that_a_patch_left_where_they_are_are_read_as_merged(client: Rest) -> None:
    model = create_learned_model(client, "left", "sums")
    edit_model(client, model, PATCH)
    learn_batches(client, model, WEEKS[3])
    client.call("POST", f"/v1/models/{model}/aliases/production/rollback", json={"version": 4})
    # The totals are those of version 5, so that the parts of all tasks are read.
    learn_batches(client, model, WEEKS[3], again=True)
    totals, parts = (one["manifest"] for one in client.read_versions(model)[-2:])
    assert totals["classes"] == parts["classes"] == ["round", "1", "3", "4", "6", "7"]
    found, expected = (
        {part["name"]: part["sha256"] for part in manifest["parts"] if part["type"] == "own"}
        for manifest in (parts, totals)
    )
    assert found == expected and found


def test_a_task_whose_images_were_deleted_loses_its_last_class_and_is_discarded(
    client: Rest,
) -> None:
    model = "patched-last"
    create_small_model(client, model, "finetune")
    learn_batches(client, model, *WEEKS[:2])
    client.call("DELETE", f"/v1/models/{model}/tasks/1/data")
    plan = client.call(
        "POST",
        f"/v1/models/{model}/edits?validate=only",
        json={"operations": [{"drop": {"class": "0"}}]},
    ).json()
    assert (plan["way"], plan["can_undo"], plan["classes_after"]) == ("patch", False, 3)
    merge = [{"merge": {"from": ["0", "1"], "into": "both"}}]
    assert edit_model(client, model, merge)["way"] == "patch"
    assert client.get(f"/v1/models/{model}/tasks/1")["classes"] == {"both": 64}
    assert client.call("POST", f"/v1/models/{model}/edits/1/undo").json()["undone_at"]
    assert client.get(f"/v1/models/{model}/tasks/1")["classes"] == {"0": 32, "1": 32}
    made = edit_model(client, model, [{"drop": {"class": name}} for name in "01"])
    assert made["undo_until"] is None
    newest = client.read_versions(model)[-1]["manifest"]
    assert (newest["classes"], newest["tasks"]) == (["2", "3"], [2])
    assert client.get(f"/v1/models/{model}/tasks/1")["standing"] == "discarded"
    with pytest.raises(Invalid, match="at least one class"):
        operations = [{"drop": {"class": name}} for name in "23"]
        client.call("POST", f"/v1/models/{model}/edits", json={"operations": operations})
