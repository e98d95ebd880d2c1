"""A classifier that was made elsewhere becomes version 1 of a model, and goes on from there."""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from operator_command import run_housekeeping
from PIL import Image
from safetensors.torch import save, save_file

from perennial.cli.models.references import (
    pack_reference_images_into_batches,
    train_and_compare_closed_form_model,
)
from perennial.errors import APIError, ConfigError
from tests.e2e.adopted import load_version
from tests.e2e.holder import Holder
from tests.e2e.plain_resnet import MEAN, STD, PlainResNet, normalise_images, train_briefly
from tests.rest import Json, Rest
from tools.service import RunningService

pytestmark = pytest.mark.slow

SIDE, WIDTH = 16, 8
OLD, NEW = ("apple", "fig", "kiwi", "lime"), ("plum", "pear")
QUERY = {
    "architecture": json.dumps({"name": "resnet20", "width": WIDTH}),
    "image_size": SIDE,
    "config": json.dumps({"mean": MEAN, "std": STD, "crop": 1}),
}
COLOURS = dict(
    zip(
        (*OLD, *NEW),
        (
            (220, 40, 40),
            (40, 40, 220),
            (120, 80, 30),
            (40, 220, 40),
            (150, 30, 160),
            (210, 210, 60),
        ),
        strict=True,
    )
)
Pixels = npt.NDArray[np.uint8]


def draw_class_pictures(label: str, count: int, seed: int) -> list[Pixels]:
    """Draw noisy pictures of a class, which has a colour of its own."""
    rng = np.random.default_rng([seed, *label.encode()])
    noise = rng.normal(0, 45, (count, SIDE, SIDE, 3))
    return list((noise + COLOURS[label]).clip(0, 255).astype(np.uint8))


def encode_png(pixels: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def pack_class_folders(parts: Mapping[str, Mapping[str, list[Pixels]]]) -> bytes:
    """Build a zip of part/class/number.png."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for part, classes in parts.items():
            for label, pictures in classes.items():
                for number, pixels in enumerate(pictures):
                    archive.writestr(f"{part}/{label}/{number}.png", encode_png(pixels))
    return file.getvalue()


@pytest.fixture(scope="module")
def net() -> PlainResNet:
    """The classifier of a team: trained by its own script."""
    torch.manual_seed(0)
    made = PlainResNet(len(OLD), WIDTH)
    pictures = [pixels for label in OLD for pixels in draw_class_pictures(label, 24, 1)]
    labels = torch.arange(len(OLD)).repeat_interleave(24)
    train_briefly(made, normalise_images(torch.from_numpy(np.stack(pictures))), labels, 4)
    return made


@pytest.fixture(scope="module")
def weights(net: PlainResNet) -> bytes:
    return save({name: tensor.contiguous() for name, tensor in net.state_dict().items()})


@pytest.fixture
def held_out() -> bytes:
    return pack_class_folders({"test": {label: draw_class_pictures(label, 12, 2) for label in OLD}})


def upload_base(client: Rest, body: bytes, classes: str = "\n".join(OLD), **query: Any) -> Any:
    params = {**QUERY, "classes": classes, **query}
    headers = {"Content-Type": "application/safetensors"}
    return client.http.post("/v1/bases", params=params, content=body, headers=headers)


def adopt_model(client: Rest, name: str, body: bytes, **fields: Any) -> Json:
    base = upload_base(client, body).json()["id"]
    body_json = {"name": name, "scenario": "class", "base": base, **fields}
    made: Json = client.call("POST", "/v1/models", json=body_json).json()
    return made


def send_and_wait(client: Rest, model: str, archive: bytes) -> Json:
    """Send a batch and return its job once that has ended."""
    headers = {"Content-Type": "application/zip"}
    path = f"/v1/models/{model}/tasks"
    job = client.call("POST", path, content=archive, headers=headers).json()["job"]["id"]
    return client.get(f"/v1/jobs/{client.job(job).wait(check=False).id}")


def count_stored_bytes(admin: Rest, client: Rest) -> int:
    owner = client.me().owner
    items = admin.get("/v1/usage?limit=200")["items"]
    return sum(sum(one["bytes"].values()) for one in items if one["owner"] == owner)


def test_version_one_is_the_classifier_that_came(
    client: Rest, running: RunningService, net: PlainResNet, weights: bytes, tmp_path: Path
) -> None:
    model = adopt_model(client, "whole", weights)
    assert model["aliases"] == {"latest": 1, "production": 1}
    assert model["base"] == "adopted" and model["recipe"]["depth"] == 1
    method = model["recipe"]["method"]
    assert (method["name"], method["lambda_o"]) == ("lwf", 1.5)
    # Fewer than 100 in all: after so many images, the service would write the version's graph.
    pictures = [pixels for label in OLD for pixels in draw_class_pictures(label, 20, 3)]
    with torch.inference_mode():
        x = normalise_images(torch.from_numpy(np.stack(pictures)))
        expected = net(x)
        assert torch.equal(load_version(client, running.data_dir, "whole", 1)(x), expected)
    answers = client.predict("whole", [encode_png(pixels) for pixels in pictures])
    rows = expected.argmax(1).tolist()
    assert [one.label for one in answers.predictions] == [OLD[row] for row in rows]
    sure = expected.softmax(1).max(1).values.tolist()
    found = [one.probability for one in answers.predictions]
    assert found == pytest.approx(sure, abs=1e-5)
    target = tmp_path / "whole.zip"
    client.download("whole", 1, target)
    assert target.is_file()


def test_jpegs_get_the_logits_of_the_network_itself(
    client: Rest, running: RunningService, net: PlainResNet, weights: bytes
) -> None:
    adopt_model(client, "jpegs", weights)
    files, tensors = [], []
    for label in OLD:
        for pixels in draw_class_pictures(label, 20, 8):
            file = io.BytesIO()
            # Larger than the network's images, as photos are.
            Image.fromarray(pixels).resize((22, 22)).save(file, "JPEG", quality=90)
            files.append(file.getvalue())
            with Image.open(file) as opened:
                resized = opened.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            tensors.append(torch.from_numpy(np.array(resized)))
    x = normalise_images(torch.stack(tensors))
    with torch.inference_mode():
        expected = net(x)
        assert torch.equal(load_version(client, running.data_dir, "jpegs", 1)(x), expected)
    answers = client.predict("jpegs", files, top_k=len(OLD))
    for one, logits in zip(answers.predictions, expected, strict=True):
        found = torch.tensor([dict(one.probabilities)[label] for label in OLD])
        # A softmax drops what all logits have in common.
        assert torch.allclose(found.log(), logits.log_softmax(0), atol=1e-4)


def test_a_sweep_leaves_images_that_are_only_counted_until_they_are_measured(
    client: Rest, running: RunningService, holder: Holder, weights: bytes, held_out: bytes
) -> None:
    adopt_model(client, "counted", weights, held_out="counts")
    holder.arm("job-done")
    headers = {"Content-Type": "application/zip"}
    sent = client.call("POST", "/v1/models/counted/tasks", content=held_out, headers=headers)
    holder.wait()
    environment = {"PERENNIAL_DATA_DIR": str(running.data_dir)}
    run_housekeeping(environment, "sweep", "--grace-hours", "0")
    path = "/v1/models/counted/tasks/1"
    assert len(client.get(f"{path}/images?split=held_out")["items"]) == 48
    holder.release()
    assert client.wait(sent.json()["job"]["id"]).state == "succeeded"
    assert client.get(path)["accuracy_now"] is not None
    with pytest.raises(APIError, match="keeps counts"):
        client.get(f"{path}/images?split=held_out")


def test_held_out_images_alone_measure_it_and_the_gate_sees_a_loss(
    client: Rest, net: PlainResNet, weights: bytes, held_out: bytes
) -> None:
    fast = {"epochs": 3, "batch_size": 8, "method": "finetune", "optimizer": {"lr": 0.1}}
    adopt_model(client, "gated", weights, recipe=fast)
    job = send_and_wait(client, "gated", held_out)
    assert (job["kind"], job["state"], job["version"]) == ("measure", "succeeded", None)
    task = client.get("/v1/models/gated/tasks/1")
    pictures = torch.from_numpy(
        np.stack([p for label in OLD for p in draw_class_pictures(label, 12, 2)])
    )
    with torch.inference_mode():
        right = net(normalise_images(pictures)).argmax(1) == torch.arange(
            len(OLD)
        ).repeat_interleave(12)
    assert task["n_held_out"] == 48 and task["n_train"] == 0
    assert task["accuracy_now"] == task["accuracy_when_learned"] == right.double().mean().item()
    assert job["report"]["valid"] is True
    with pytest.raises(APIError, match="No training image of it was ever here"):
        client.call("POST", "/v1/models/gated/tasks/1/relearn")
    with pytest.raises(APIError, match="measured already"):
        send_and_wait(
            client,
            "gated",
            pack_class_folders({"test": {"apple": draw_class_pictures("apple", 3, 7)}}),
        )
    # The same batch again changes nothing.
    again = send_and_wait(client, "gated", held_out)
    assert again["id"] == job["id"]

    new = {label: draw_class_pictures(label, 24, 4) for label in NEW}
    test = {label: draw_class_pictures(label, 12, 5) for label in NEW}
    send_and_wait(client, "gated", pack_class_folders({"train": new, "test": test}))
    version = client.get("/v1/models/gated/versions/2")
    assert version["status"] == "held"
    failed = {check["name"] for check in version["gate"]["checks"] if not check["passed"]}
    assert "forgotten" in failed
    assert client.get("/v1/models/gated")["aliases"]["production"] == 1


@pytest.mark.campaign
def test_the_default_keeps_more_of_the_old_classes_than_fine_tuning(
    client: Rest, weights: bytes, held_out: bytes
) -> None:
    new = {label: draw_class_pictures(label, 24, 4) for label in NEW}
    batch = pack_class_folders(
        {"train": new, "test": {label: draw_class_pictures(label, 12, 5) for label in NEW}}
    )
    kept = {}
    for method, fields in (("lwf", {}), ("finetune", {"method": "finetune"})):
        recipe = {**fields, "epochs": 5, "batch_size": 8}
        adopt_model(client, f"by-{method}", weights, recipe=recipe, gate={"checks": "off"})
        send_and_wait(client, f"by-{method}", held_out)
        send_and_wait(client, f"by-{method}", batch)
        kept[method] = client.get(f"/v1/models/by-{method}/metrics")["accuracy_matrix"][2][0]
    assert kept["lwf"] > kept["finetune"]


@pytest.mark.campaign  # the model that is gated above learns new classes, too
def test_without_held_out_images_it_learns_new_classes(client: Rest, weights: bytes) -> None:
    adopt_model(client, "blind", weights, recipe={"epochs": 2, "batch_size": 8})
    new = {label: draw_class_pictures(label, 16, 4) for label in NEW}
    job = send_and_wait(
        client,
        "blind",
        pack_class_folders({"train": new, "test": {k: v[:4] for k, v in new.items()}}),
    )
    assert (job["state"], job["version"]) == ("succeeded", 2)
    assert client.get("/v1/models/blind/versions/2")["manifest"]["classes"] == [*OLD, *sorted(NEW)]


def test_a_method_of_sums_is_refused_and_nothing_stays(client: Rest, weights: bytes) -> None:
    base = upload_base(client, weights).json()["id"]
    asked = {"name": "sums", "scenario": "class", "base": base, "recipe": {"method": "analytic"}}
    with pytest.raises(APIError, match="Send no method, or lwf") as refused:
        client.call("POST", "/v1/models", json=asked)
    assert refused.value.status == 422
    client.call("DELETE", f"/v1/bases/{base}")
    adopt_model(client, "later", weights)
    with pytest.raises(APIError, match="no other base could learn them"):
        client.call("POST", "/v1/models/later/rebase", json={"base": "perennial/resnet20-cifar100"})
    with pytest.raises(APIError, match="Send no method, or lwf"):
        client.call("PATCH", "/v1/models/later", json={"recipe": {"method": "analytic"}})


def test_the_adopted_base_and_then_the_model_leave_no_bytes(
    admin: Rest, client: Rest, weights: bytes
) -> None:
    before = count_stored_bytes(admin, client)
    adopt_model(client, "gone", weights)
    assert client.get("/v1/bases")["items"] == []
    assert count_stored_bytes(admin, client) - before == pytest.approx(len(weights), rel=0.3)
    client.call("DELETE", "/v1/models/gone")
    assert count_stored_bytes(admin, client) == before


def test_a_batch_of_held_out_images_is_refused_where_nothing_waits_for_it(
    client: Rest, weights: bytes, held_out: bytes
) -> None:
    client.call("POST", "/v1/models", json={"name": "own", "scenario": "class"})
    with pytest.raises(APIError, match="no training images"):
        send_and_wait(client, "own", held_out)
    adopt_model(client, "strict", weights)
    with pytest.raises(APIError, match="does not know “plum”"):
        send_and_wait(
            client,
            "strict",
            pack_class_folders({"test": {"plum": draw_class_pictures("plum", 2, 1)}}),
        )
    assert client.get("/v1/models/strict/tasks/1")["n_held_out"] == 0


def change_tensors(body: dict[str, torch.Tensor], **tensors: torch.Tensor | None) -> bytes:
    """Return the file with other tensors; None leaves one out."""
    changed = {**body, **tensors}
    return save({name: tensor for name, tensor in changed.items() if tensor is not None})


def build_bad_files(net: PlainResNet) -> Iterator[tuple[str, bytes, str, str]]:
    """Yield fault, file, its classes, and words of the answer."""
    state = {name: tensor.contiguous() for name, tensor in net.state_dict().items()}
    good, names = save(state), "\n".join(OLD)
    pickled = io.BytesIO()
    torch.save(net.state_dict(), pickled)
    yield "zip of a pickle", pickled.getvalue(), names, "save_file({name: tensor.contiguous()"
    old = io.BytesIO()
    torch.save(net.state_dict(), old, _use_new_zipfile_serialization=False)
    yield "raw pickle", old.getvalue(), names, "from safetensors.torch import save_file"
    yield "cut off", good[:-10], names, "the file at"
    yield "empty", b"", names, "empty"
    head = {"fc.weight": None, "fc.bias": None}
    yield "no head", change_tensors(state, **head), names, "one linear layer after the backbone"
    yield "too few", good, "\n".join(OLD[:-1]), "has 4 rows, and classes has 3 names"
    yield "too many", good, "\n".join([*OLD, "nut"]), "has 4 rows, and classes has 5 names"
    yield "one class", good, "apple", "2 to"
    yield "twice", good, "a\nb\nc\na", "names “a” in row 1 and in row 4"
    yield "empty name", good, "a\n\nc\nd", "row 2 of classes is empty"
    yield "long name", good, f"a\nb\nc\n{'d' * 101}", "longer than 100 characters"
    yield "NUL", good, json.dumps(["a", "b", "c", "d\0"]), "row 4 of classes"
    yield "newline", good, json.dumps(["a", "b", "c", "d\nd"]), "row 4 of classes"
    yield "no list", good, '{"a": 1, "b": 1}', "each once"
    wide = {"conv1.weight": torch.zeros(WIDTH, 3, 5, 5)}
    yield "other shape", change_tensors(state, **wide), names, "'conv1.weight' has shape 8×3×5×5"
    broken = {"fc.weight": torch.full((4, 4 * WIDTH), torch.nan)}
    yield "NaN", change_tensors(state, **broken), names, "'fc.weight' holds NaN"
    half = {"fc.weight": torch.zeros(4, 4 * WIDTH).half()}
    yield "half", change_tensors(state, **half), names, "has dtype F16"


def test_each_bad_file_or_list_gets_its_own_answer_and_leaves_nothing(
    admin: Rest, client: Rest, net: PlainResNet
) -> None:
    before = count_stored_bytes(admin, client)
    for what, body, classes, words in build_bad_files(net):
        answer = upload_base(client, body, classes)
        assert answer.status_code == 422, (what, answer.text)
        assert words in answer.json()["detail"], (what, answer.json()["detail"])
    unknown = upload_base(client, b"", architecture="resnet21")
    assert unknown.status_code == 422 and "resnet" in unknown.json()["detail"]
    assert client.get("/v1/bases")["items"] == [] and count_stored_bytes(admin, client) == before


def test_the_client_adopts_from_files_and_removes_what_was_refused(
    client: Rest, net: PlainResNet, tmp_path: Path
) -> None:
    file, classes = tmp_path / "weights.safetensors", tmp_path / "classes.json"
    state = {name: tensor.contiguous() for name, tensor in net.state_dict().items()}
    # Many scripts save a head without a bias, and no counters.
    del state["fc.bias"]
    save_file({k: v for k, v in state.items() if "num_batches" not in k}, file)
    classes.write_text(json.dumps({name: row for row, name in enumerate(OLD)}))
    options = {"image_size": SIDE, "config": {"mean": MEAN, "std": STD, "crop": 1}}
    architecture = {"name": "resnet20", "width": WIDTH}
    made = client.models.adopt("from-files", file, architecture, classes, **options)
    assert made.aliases["production"] == 1
    with pytest.raises(APIError):
        client.models.adopt("from-files", file, architecture, classes, **options)
    assert client.get("/v1/bases")["items"] == []
    (answer,) = client.predict(
        "from-files", [encode_png(draw_class_pictures("kiwi", 1, 9)[0])]
    ).predictions
    assert answer.label in OLD


def write_reference_images(folder: Path, count: int) -> None:
    for label in OLD:
        (folder / label).mkdir(parents=True)
        for number, pixels in enumerate(draw_class_pictures(label, count, 6)):
            (folder / label / f"{number}.png").write_bytes(encode_png(pixels))


def test_a_closed_form_starts_from_references_and_the_better_one_is_advised(
    client: Rest, weights: bytes, tmp_path: Path
) -> None:
    write_reference_images(tmp_path, 8)
    references = pack_reference_images_into_batches(tmp_path, OLD)
    assert references.images == 32
    adopt_model(client, "referred", weights)
    found = train_and_compare_closed_form_model(client, "referred", references)
    task = client.get("/v1/models/referred/tasks/1")
    other = client.get("/v1/models/referred-references/tasks/1")
    assert (task["n_train"], task["n_held_out"]) == (0, 8)
    assert (other["n_train"], other["n_held_out"]) == (24, 8)
    accuracies = task["accuracy_now"], other["accuracy_now"]
    assert (found.classifier_accuracy, found.closed_form_accuracy) == accuracies
    is_better = accuracies[1] > accuracies[0]
    assert found.advised == ("referred-references" if is_better else "referred")
    recipe = client.get("/v1/models/referred-references")["recipe"]
    assert recipe["method"]["name"] == "analytic"


@pytest.mark.parametrize(
    ("count", "extra", "words"),
    [(4, "", "4 images of apple"), (5, "nut", "not named after a class")],
)
def test_a_folder_of_references_that_does_not_fit_is_refused_before_anything_is_sent(
    tmp_path: Path, count: int, extra: str, words: str
) -> None:
    write_reference_images(tmp_path, count)
    (tmp_path / extra).mkdir(exist_ok=True)
    with pytest.raises(ConfigError, match=words):
        pack_reference_images_into_batches(tmp_path, OLD)


def test_the_page_brings_a_classifier_and_says_what_is_wrong_with_a_file(
    client: Rest, weights: bytes
) -> None:
    fields = {
        **{"name": "by-page", "architecture": QUERY["architecture"], "image_size": str(SIDE)},
        **{"prepared": "named", "config": QUERY["config"], "classes": "\r\n".join(OLD)},
    }

    def post_weights(body: bytes) -> Any:
        files = {"file": ("weights.safetensors", body)}
        origin = {"Origin": str(client.http.base_url).rstrip("/")}
        return client.http.post("/ui/models/adopt", data=fields, files=files, headers=origin)

    refused = post_weights(weights[:-8])
    assert refused.status_code == 422 and "the file at" in refused.text
    assert client.get("/v1/bases")["items"] == []
    made = post_weights(weights)
    assert made.status_code == 303
    page = client.http.get(made.headers["Location"])
    assert "It came with the model." in page.text and "Nothing has measured it yet" in page.text
    task = client.http.get(f"{made.headers['Location']}/tasks/1")
    assert "no training image of them was ever here" in task.text
