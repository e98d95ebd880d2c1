"""A problem of one file and its line learns two tasks through HTTP.

Nothing of the product changes: the service runs a copy of the sources, in which the file lies
beside `classification.py` and the registry has its line (`tests/e2e/extended_sources.py`).
"""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from perennial.errors import Invalid
from tests.rest import Json, Rest

# tests/core/learning/problems/test_digit_sums.py learns the same problem without a service, and
# tests/e2e/test_additions.py starts the service that runs the copy.
pytestmark = [pytest.mark.slow, pytest.mark.campaign]

MODEL: Json = {
    "problem": "digit-sums",
    "architecture": {"name": "mlp", "hidden": [64]},
    "image": {"size": 16, "channels": 1},
    "base": "random",
    "recipe": {"method": "finetune", "epochs": 10, "batch_size": 16, "augment": "none"},
}


@pytest.fixture(scope="module")
def client(extended: Rest) -> Rest:
    """A client of the service whose sources have the problem."""
    return extended


def build_sum_batch(low: int, images: int = 400) -> bytes:
    """Build a batch of images of four digits each, from `low` to `low` + 4.
    Its folders are named by their sums.
    """
    pixels, values = load_digits(return_X_y=True)
    rows = np.flatnonzero((values >= low) & (values < low + 5))
    rows = np.random.default_rng(low).choice(rows, (images, 4))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, four in enumerate(rows):
            quarters = pixels[four].reshape(2, 2, 8, 8).transpose(0, 2, 1, 3).reshape(16, 16)
            png = io.BytesIO()
            Image.fromarray(np.rint(quarters * (255 / 16)).astype(np.uint8)).save(png, "PNG")
            archive.writestr(f"{values[four].sum()}/{number}.png", png.getvalue())
    return out.getvalue()


def test_two_tasks_are_learned_and_measured(client: Rest) -> None:
    model = client.models.create("sums", "class", **MODEL)
    assert client.get(f"/v1/models/{model.id}")["problem"] == "digit-sums"
    for low in (0, 5):
        end = client.wait(client.submit(model.id, build_sum_batch(low)))
        assert end.state == "succeeded", end
    metrics = client.get(f"/v1/models/{model.id}/metrics?version=2")
    _, (on_1, before), (after, on_2) = metrics["accuracy_matrix"]
    assert all(0 <= value <= 1 for value in (on_1, before, after, on_2))
    assert on_1 > 0.7
    assert on_2 > 0.7
    assert before < on_2 - 0.1  # version 1 had never seen such sums
    assert after < on_1  # and fine-tuning forgets
    assert metrics["summary"]["forgetting"] == pytest.approx(on_1 - after)
    assert metrics["summary"]["unmeasured_classes"] == []
    assert "digit-sums" in metrics["definitions"]["accuracy_matrix"]
    first, second = client.read_versions(model.id)[1:]
    assert first["manifest"]["problem"] == second["manifest"]["problem"] == "digit-sums"
    assert second["manifest"]["classes"] == ["sum"]


def test_the_gate_judges_by_the_primary_measure(client: Rest) -> None:
    gate = {"checks": "off", "min_new_task": 0.99}
    model = client.models.create("strict-sums", "class", **MODEL, gate=gate)
    client.wait(client.submit(model.id, build_sum_batch(0)))
    version = client.read_versions(model.id)[-1]
    (check,) = [one for one in version["gate"]["checks"] if one["name"] == "min_new_task"]
    assert version["status"] == "held"
    assert 0.5 < check["value"] < 0.99


def test_what_works_on_classes_alone_is_refused(client: Rest) -> None:
    with pytest.raises(
        Invalid, match="der\\+\\+ does not learn digit-sums: its loss or its memory"
    ):
        client.models.create("replaying", "class", **{**MODEL, "recipe": {"method": "der++"}})
    with pytest.raises(Invalid, match="flip changes what a label of digit-sums says"):
        recipe = {**MODEL["recipe"], "augment": "flip"}
        client.models.create("flipping", "class", **{**MODEL, "recipe": recipe})
    with pytest.raises(Invalid, match="Predictions by this service work for the problem classif"):
        client.call("POST", "/v1/models/sums/versions/1/predict", json={"instances": [[[0]]]})
    with pytest.raises(Invalid, match="Comparisons image by image"):
        client.get("/v1/models/sums/compare?a=1&b=2")


def test_a_label_of_another_kind_fails_the_job(client: Rest) -> None:
    model = client.models.create("cats", "class", **MODEL)
    mixed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(build_sum_batch(0, 40))) as source,
        zipfile.ZipFile(mixed, "w") as out,
    ):
        for number, name in enumerate(source.namelist()):
            label, file = name.split("/")
            target = f"{'cat' if number % 2 else label}/{file}"
            out.writestr(target, source.read(name))
    end = client.wait(client.submit(model.id, mixed.getvalue()))
    assert end.state == "failed"
    assert end.error is not None
    assert "'cat' is no sum of four digits" in str(end.error)
