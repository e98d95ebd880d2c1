"""The download: a pure function of the manifest, whose own loading code rebuilds the network."""

import hashlib
import importlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from core.contract.architecture import ImageSettings as ModelImage
from core.contract.architecture import Normalisation
from core.contract.manifest import Manifest
from core.export.card_code import build_image_reading_code
from core.export.format import VersionPartFileToExport, VersionToExport
from core.export.formats.safetensors_zip import SafetensorsZipFormat
from core.export.image_reader import build_image_reader_files
from core.export.model_card import build_download_config, render_download_readme
from core.ingest.images import decode_image_to_square_pixels
from core.learning.evaluation import predicting
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.networks.der_net import DerNetwork
from core.learning.networks.dne.network import DneNetwork
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.networks.prompts import PromptedNetwork
from core.learning.precision import InputNormaliser
from core.learning.torchvision_import import import_torchvision_models
from tests.learning_catalogue import copy_catalogue

CATALOGUE = copy_catalogue()
CONFIG = {
    "scenario": "class",
    "architecture": {"name": "small-cnn"},
    "image": {"size": 32, "channels": 3},
}
NORMALISE = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.25, 0.3]}
PIXELS = Normalisation.from_json(NORMALISE)


def digest_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def export_network(
    folder: Path,
    network: Network,
    architecture: dict[str, Any],
    size: int,
    name: str = "out.zip",
    state: dict[str, dict[str, torch.Tensor]] | None = None,
    method: dict[str, Any] | None = None,
    temperature: float | None = None,
    sure: Any = None,
) -> Path:
    parts = []
    state = state or {}
    for part, tensors in {**network.copy_parts_to_cpu(), **state}.items():
        save_file(tensors, folder / part)
        parts.append(VersionPartFileToExport(part, folder / part, digest_file(folder / part)))
    manifest = {
        "model": "mdl_x",
        "version": 3,
        "scenario": network.scenario,
        "architecture": architecture,
        "image": {"size": size, "channels": 3},
        "normalise": NORMALISE,
        "classes": network.classes,
        "heads": [{"task": t, "classes": c} for t, c in network.head_classes.items()],
        "network": network.describe_for_manifest(),
        "method": method or {"name": "finetune", "hyper": {}, "state": {}},
        "parts": [
            {"name": part, "type": part.partition(".")[0], "sha256": "0", "bytes": 1}
            for part in network.copy_parts_to_cpu() | state
        ],
    }
    if temperature is not None:
        manifest["temperature"] = {"value": temperature, "source": "held-out", "images": 90}
    SafetensorsZipFormat().write_download(
        folder / name, VersionToExport(Manifest.from_json(manifest), parts, CATALOGUE, sure=sure)
    )
    return folder / name


def build_random_network(
    architecture: dict[str, Any], size: int, scenario: str = "class"
) -> Network:
    heads = HeadSpec(classes=("cat", "dog", "emu"))
    if scenario == "task":
        heads = HeadSpec(tasks=((1, ("cat", "dog")), (2, ("emu", "fox", "gnu"))))
    network = build_network(architecture, ImageSpec(size, 3), scenario, heads, seed=4)
    torch.manual_seed(4)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.startswith("head"):
                tensor.normal_()
            elif "running_mean" in name:
                tensor.uniform_(-0.1, 0.1)
    return network.eval()


def run_card_code(archive: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the first code block of the model card where the archive was unpacked, and return its
    names.
    """
    with zipfile.ZipFile(archive) as file:
        file.extract("model.safetensors", folder)
        file.extract("config.json", folder)
        card = file.read("README.md").decode()
    code = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0]
    assert "core." not in code and "perennial" not in code.lower()
    monkeypatch.chdir(folder)
    scope: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), scope)
    return scope


CASES = [
    ({"name": "small-cnn"}, 32),
    ({"name": "mlp", "hidden": [24, 16]}, 8),
    ({"name": "resnet20", "width": 8}, 16),
    ({"name": "slim-resnet18", "width": 8}, 16),
    ({"name": "resnet18"}, 32),
    ({"name": "vit", "layers": 2, "hidden": 48, "heads": 4, "mlp": 64}, 30),
    ({"name": "dne", "layers": 3, "head_dim": 8, "heads": 3}, 18),
    ({"name": "dne", "layers": 2, "head_dim": 8, "heads": 3, "attention": "mhsa"}, 16),
]


def make_case(architecture: dict[str, Any], size: int, *more: str, campaign: bool = False) -> Any:
    """Make a case of a test, which is slow if its network is large."""
    marks = [pytest.mark.campaign] * campaign or [pytest.mark.slow] * (
        architecture["name"] == "resnet18"
    )
    name = "-".join((architecture["name"], *more))
    return pytest.param(architecture, size, *more, id=f"{name}-{size}", marks=marks)


@pytest.mark.parametrize(
    ("architecture", "size", "scenario"),
    [
        make_case(*each, scenario, campaign=each[0]["name"] == "resnet18" and scenario == "task")
        for each in CASES
        for scenario in ("class", "task")
    ],
)
def test_the_cards_loading_code_gives_the_same_logits(
    tmp_path, monkeypatch, architecture, size, scenario
):
    import_torchvision_models()  # importable beside a CPU build of torch
    network = build_random_network(architecture, size, scenario)
    scope = run_card_code(
        export_network(tmp_path, network, architecture, size), tmp_path, monkeypatch
    )
    pixels = torch.randint(
        0, 256, (4, size, size, 3), dtype=torch.uint8, generator=torch.manual_seed(0)
    )
    mean, std = (torch.tensor(NORMALISE[k]).view(1, -1, 1, 1) for k in ("mean", "std"))
    x = (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std
    assert torch.allclose(scope["normalise"](pixels), x, atol=1e-6)
    assert torch.equal(
        scope["normalise"](pixels), InputNormaliser(PIXELS, 3, torch.device("cpu"))(pixels)
    )
    task = 2 if scenario == "task" else None
    with torch.inference_mode():
        assert torch.allclose(scope["network"](x, task), network(x, task), atol=1e-5)


@pytest.mark.parametrize("scenario", ["class", "task"])
def test_the_cards_code_answers_with_the_nearest_class_mean(tmp_path, monkeypatch, scenario):
    architecture, task = {"name": "small-cnn"}, 2 if scenario == "task" else None
    network = build_random_network(architecture, 32, scenario)
    means = torch.nn.functional.normalize(
        torch.randn(5 if task else 3, 128, generator=torch.manual_seed(1))
    )
    method = {"name": "icarl", "hyper": {}, "state": {}}
    state = {"own": {"class_means": means}}
    archive = export_network(tmp_path, network, architecture, 32, state=state, method=method)
    scope = run_card_code(archive, tmp_path, monkeypatch)
    pixels = torch.randint(
        0, 256, (40, 32, 32, 3), dtype=torch.uint8, generator=torch.manual_seed(0)
    )
    with zipfile.ZipFile(archive) as file:
        manifest = Manifest.from_json(json.loads(file.read("config.json")))
    method = predicting.load_prediction_method(manifest, {"own": tmp_path / "own"})
    labels, probabilities = predicting.predict_images(
        network,
        pixels.numpy(),
        task,
        PIXELS,
        scoring=predicting.SoftmaxScoring(method.predict_logits),
    )
    with torch.inference_mode():
        theirs = scope["network"](scope["normalise"](pixels), task).softmax(1)
    classes = network.list_classes(task)
    assert [classes[i] for i in theirs.argmax(1)] == labels
    assert torch.allclose(theirs, torch.from_numpy(probabilities), atol=1e-6)
    assert labels != predicting.predict_images(network, pixels.numpy(), task, PIXELS)[0]


@pytest.mark.parametrize(
    ("scenario", "projection", "head"),
    [("class", 0, "ncm"), ("task", 50, "ncm"), ("class", 50, "ridge"), ("task", 0, "lda")],
)
def test_the_cards_code_answers_with_a_classifier_in_closed_form(
    tmp_path, monkeypatch, scenario, projection, head
):
    architecture, task = {"name": "small-cnn"}, 2 if scenario == "task" else None
    network = build_random_network(architecture, 32, scenario)
    draw = torch.manual_seed(1)
    width = projection or 128
    state = {"own": {"weight": torch.randn(5 if task else 3, width, generator=draw)}}
    state["own"]["bias"] = torch.randn(len(state["own"]["weight"]), generator=draw)
    if projection:
        state["projection"] = {"matrix": torch.randn(projection, 128, generator=draw)}
    method = {"name": "analytic", "hyper": {"head": head, "projection": projection}, "state": {}}
    archive = export_network(tmp_path, network, architecture, 32, state=state, method=method)
    scope = run_card_code(archive, tmp_path, monkeypatch)
    pixels = torch.randint(
        0, 256, (40, 32, 32, 3), dtype=torch.uint8, generator=torch.manual_seed(0)
    )
    made_by = predicting.load_prediction_method(
        Manifest.from_json({**CONFIG, "method": method}), {kind: tmp_path / kind for kind in state}
    )
    _, probabilities = predicting.predict_images(
        network,
        pixels.numpy(),
        task,
        PIXELS,
        scoring=predicting.SoftmaxScoring(made_by.predict_logits),
    )
    with torch.inference_mode():
        theirs = scope["network"](scope["normalise"](pixels), task).softmax(1)
    assert torch.allclose(theirs, torch.from_numpy(probabilities), atol=1e-6)
    assert theirs.std(0).max() > 0
    plain = predicting.predict_images(network, pixels.numpy(), task, PIXELS)[1]
    assert not torch.allclose(theirs, torch.from_numpy(plain), atol=0.01)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("scenario", ["class", "task"])
def test_the_cards_code_puts_prompts_in(tmp_path, monkeypatch, scenario, deep):
    import_torchvision_models()
    architecture = {"name": "vit", "layers": 2, "hidden": 48, "heads": 4, "mlp": 64}
    network = PromptedNetwork(
        build_random_network(architecture, 16, scenario),
        3,
        deep,
        () if scenario == "task" else None,
    )
    for task, name in ((1, "cat"), (2, "emu")):
        network.add_task_classes(task, [name], "default", torch.manual_seed(task))
    scope = run_card_code(
        export_network(tmp_path, network.eval(), architecture, 16), tmp_path, monkeypatch
    )
    x = torch.randn(2, 3, 16, 16)
    task = 2 if scenario == "task" else None
    with torch.inference_mode():
        assert torch.allclose(scope["network"](x, task), network(x, task), atol=1e-5)
        assert not torch.allclose(
            network(x, task), Network.logits(network, network.backbone(x), task), atol=1e-5
        )


def build_linearised_network(
    architecture: dict[str, Any], size: int, scenario: str, head_mode: str, *, frozen: bool = True
) -> LinearisedNetwork:
    """Build a linearised network displaced at random, far enough to change every logit."""
    plain, generator = build_random_network(architecture, size, scenario), torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in plain.backbone.named_parameters():
            if ".bn" in name or "downsample.1" in name or name.startswith("bn"):
                parameter.add_(torch.rand(parameter.shape, generator=generator) - 0.5)
    network = LinearisedNetwork(plain, slope=0.1, fixed_head=head_mode == "linear", frozen=frozen)
    if frozen and network.fixed_head:
        heads = (
            {"shared": network.head} if network.head is not None else dict(network.heads.items())
        )
        for name, head in heads.items():
            network.set_reference_rows(name, torch.randn(head.weight.shape, generator=generator))
    with torch.no_grad():
        for name, parameter in network.displacement.named_parameters():
            frozen_weights = network.backbone.get_parameter(name)
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.3 * noise * (frozen_weights.std(unbiased=False) + 0.01))
    return network.eval()


HEADS = [
    ("class", "bilinear"),
    ("task", "bilinear"),
    ("task", "linear"),
    ("data", "bilinear"),
    ("data", "linear"),
]
LINEARISED = [
    make_case(
        architecture,
        min(size, 16),
        *heads,
        campaign=architecture["name"] != "mlp" and place != at % len(HEADS),
    )
    for at, (architecture, size) in enumerate(CASES)
    for place, heads in enumerate(HEADS)
]
"""Every way to answer with the smallest architecture, and one with each of the others."""


@pytest.mark.parametrize(("architecture", "size", "scenario", "head_mode"), LINEARISED)
def test_the_cards_code_expands_a_linearised_network(
    tmp_path, monkeypatch, architecture, size, scenario, head_mode
):
    import_torchvision_models()
    network = build_linearised_network(architecture, size, scenario, head_mode)
    scope = run_card_code(
        export_network(tmp_path, network, architecture, size), tmp_path, monkeypatch
    )
    x = torch.randn(3, 3, size, size, generator=torch.manual_seed(1))
    for task in (1, 2) if scenario == "task" else (None,):
        with torch.inference_mode():
            ours, value = network(x, task), network.logits(network.backbone(x), task)
            theirs = scope["network"](x, task)
        assert float((theirs - ours).abs().max()) <= 1e-5 * max(1.0, float(ours.abs().max()))
        assert not torch.allclose(ours, value, atol=1e-2), "the displacement is not seen"


@pytest.mark.parametrize("name", ["small-cnn", "resnet20"])
def test_the_cards_code_reads_a_network_that_is_linearised_when_its_task_ends(
    tmp_path, monkeypatch, name
):
    """The best state so far of a first task that starts from random weights."""
    network = build_linearised_network({"name": name}, 16, "class", "bilinear", frozen=False)
    scope = run_card_code(
        export_network(tmp_path, network, {"name": name}, 16), tmp_path, monkeypatch
    )
    x = torch.randn(3, 3, 16, 16)
    with torch.inference_mode():
        assert torch.allclose(scope["network"](x), network(x), atol=1e-5)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "size"), [("convnext_tiny", 32), ("resnet50", 32), ("resnet18", 96)]
)
def test_large_families_are_expanded_as_well(tmp_path, monkeypatch, name, size):
    import_torchvision_models()
    network = build_linearised_network({"name": name}, size, "class", "bilinear")
    scope = run_card_code(
        export_network(tmp_path, network, {"name": name}, size), tmp_path, monkeypatch
    )
    x = torch.randn(2, 3, size, size)
    with torch.inference_mode():
        ours, theirs = network(x), scope["network"](x)
    assert float((theirs - ours).abs().max()) <= 1e-4 * float(ours.abs().max())


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "size"), [("convnext_tiny", 32), ("resnet18", 96), ("vit_b_16", 64)]
)
def test_large_families_load_as_well(tmp_path, monkeypatch, name, size):
    import_torchvision_models()
    network = build_random_network({"name": name}, size)
    scope = run_card_code(
        export_network(tmp_path, network, {"name": name}, size), tmp_path, monkeypatch
    )
    x = torch.randn(2, 3, size, size)
    with torch.inference_mode():
        assert torch.allclose(scope["network"](x), network(x), atol=1e-4)


SURE = {"precision": 0.9, "threshold": 0.2, "images": 90, "covered": 40, "right": 39, "needed": 29}


@pytest.mark.parametrize(
    ("temperature", "threshold", "said"),
    [(None, None, []), (2.5, 0.2, ["sure"]), (2.5, 0.99, ["not sure"])],
)
def test_the_cards_second_block_predicts_an_image_file_as_the_service_does(
    tmp_path, monkeypatch, capsys, temperature, threshold, said
):
    network = build_random_network({"name": "small-cnn"}, 32)
    archive = export_network(
        tmp_path,
        network,
        {"name": "small-cnn"},
        32,
        temperature=temperature,
        sure={**SURE, "threshold": threshold},
    )
    pixels = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    scope = run_card_code(archive, tmp_path, monkeypatch)
    with zipfile.ZipFile(archive) as file:
        code = re.findall(r"```python\n(.*?)```", file.read("README.md").decode(), re.DOTALL)[1]
    exec(compile(code, "README.md", "exec"), scope)
    ours = decode_image_to_square_pixels((tmp_path / "cat.png").read_bytes(), 32, 3, 1 << 24)
    assert np.array_equal(scope["read"]("cat.png").numpy(), ours)
    labels, probabilities = predicting.predict_images(
        network,
        ours[None],
        None,
        PIXELS,
        scoring=predicting.SoftmaxScoring(temperature=temperature or 1),
    )
    assert torch.allclose(scope["probabilities"], torch.from_numpy(probabilities), atol=1e-5)
    assert capsys.readouterr().out.splitlines() == [labels[0], *said]


@pytest.mark.parametrize(
    ("family", "architecture"),
    [
        (DneNetwork, {"name": "dne", "layers": 3, "head_dim": 8, "heads": 3}),
        (DerNetwork, {"name": "resnet20", "width": 8}),
        pytest.param(DerNetwork, {"name": "resnet18"}, marks=pytest.mark.campaign),
        (DerNetwork, {"name": "mlp", "hidden": [9]}),
    ],
    ids=["dne", "der-net-resnet20", "der-net-resnet18", "der-net-mlp"],
)
def test_the_cards_code_puts_experts_in_a_chain(tmp_path, monkeypatch, family, architecture):
    import_torchvision_models()
    network = family(build_random_network(architecture, 16))
    for task, size in ((2, 2), (3, 1)):
        network.set_size_of_next_expert(size)
        network.add_task_classes(
            task, [f"new {task}"], "default", torch.Generator().manual_seed(task)
        )
    network.auxiliary = None
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=g))
    network.eval()
    scope = run_card_code(
        export_network(tmp_path, network, architecture, 16), tmp_path, monkeypatch
    )
    x = torch.randn(4, 3, 16, 16, generator=g)
    with torch.inference_mode():
        wanted = network(x)
        assert wanted.shape == (4, 5) and torch.allclose(scope["network"](x), wanted, atol=1e-4)


@pytest.mark.slow
def test_the_cards_code_runs_on_its_own_where_torchvisions_operators_are_missing(tmp_path):
    architecture = {"name": "vit", "layers": 1, "hidden": 24, "heads": 4, "mlp": 16}
    network = build_random_network(architecture, 16)
    with zipfile.ZipFile(export_network(tmp_path, network, architecture, 16)) as file:
        for name in ("model.safetensors", "config.json"):
            (tmp_path / name).write_bytes(file.read(name))
        blocks = re.findall(r"```python\n(.*?)```", file.read("README.md").decode(), re.DOTALL)
    Image.new("RGB", (20, 30), (9, 99, 199)).save(tmp_path / "cat.png")
    (tmp_path / "card.py").write_text("\n".join(blocks) + "print(probabilities[0].tolist())\n")
    done = subprocess.run(
        [sys.executable, "card.py"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    label, told = done.stdout.splitlines()
    pixels = decode_image_to_square_pixels((tmp_path / "cat.png").read_bytes(), 16, 3, 1 << 24)
    labels, probabilities = predicting.predict_images(network, pixels[None], None, PIXELS)
    assert labels == [label]
    assert np.abs(probabilities[0] - json.loads(told)).max() < 1e-6


def test_the_card_has_the_models_name_and_of_before_its_id(tmp_path):
    manifest = {
        "model": "mdl_x",
        "version": 3,
        "scenario": "class",
        "image": {"size": 8, "channels": 3},
    }
    manifest |= {"architecture": {"name": "small-cnn"}, "classes": ["cat"], "heads": []}
    before = VersionToExport(Manifest.from_json(manifest), [], CATALOGUE)
    named = VersionToExport(Manifest.from_json({**manifest, "name": "birds"}), [], CATALOGUE)
    assert render_download_readme(named).startswith(
        "# birds version 3\n"
    ) and "| model | mdl\\_x |" in render_download_readme(named)
    assert build_download_config(named)["name"] == "birds"
    assert render_download_readme(before).startswith(
        "# mdl\\_x version 3\n"
    ) and "name" not in build_download_config(before)


def test_the_card_of_a_version_that_learned_nothing_predicts_nothing(tmp_path):
    manifest = {
        "model": "mdl_x",
        "version": 0,
        "scenario": "task",
        "image": {"size": 8, "channels": 3},
    }
    manifest |= {"architecture": {"name": "small-cnn"}, "classes": [], "heads": []}
    text = render_download_readme(VersionToExport(Manifest.from_json(manifest), [], CATALOGUE))
    assert "## Load it" in text and "## Predict" not in text and "gives features" in text


def test_the_same_manifest_gives_the_same_bytes(tmp_path):
    network = build_random_network({"name": "small-cnn"}, 32)
    one, two = (
        export_network(tmp_path, network, {"name": "small-cnn"}, 32, name)
        for name in ("1.zip", "2.zip")
    )
    assert one.read_bytes() == two.read_bytes()


def test_the_weights_carry_no_metadata_and_the_configuration_names_the_classes(tmp_path):
    network = build_random_network({"name": "small-cnn"}, 32)
    with zipfile.ZipFile(export_network(tmp_path, network, {"name": "small-cnn"}, 32)) as file:
        data, config = file.read("model.safetensors"), json.loads(file.read("config.json"))
    assert b"__metadata__" not in data[:100_000]
    assert config["classes"] == ["cat", "dog", "emu"] and "state" not in config["method"]


def test_an_uploaded_base_is_exported_under_the_backbones_names_without_its_classifier(
    tmp_path, monkeypatch
):
    import_torchvision_models()
    network = build_random_network({"name": "resnet18"}, 32)
    base = {
        k.removeprefix("backbone."): v.clone() for k, v in network.backbone.state_dict().items()
    }
    save_file({**base, "fc.weight": torch.zeros(2, 512)}, tmp_path / "base")
    manifest = {
        "model": "mdl_x",
        "version": 0,
        "scenario": "class",
        "architecture": {"name": "resnet18"},
        "image": {"size": 32, "channels": 3},
        "classes": [],
        "heads": [],
    }
    part = VersionPartFileToExport("base", tmp_path / "base", digest_file(tmp_path / "base"))
    SafetensorsZipFormat().write_download(
        tmp_path / "out.zip", VersionToExport(Manifest.from_json(manifest), [part], CATALOGUE)
    )
    scope = run_card_code(tmp_path / "out.zip", tmp_path, monkeypatch)
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.allclose(scope["network"](x), network.features(x), atol=1e-5)


@pytest.mark.parametrize("size", [160, 96])
def test_the_card_of_a_network_of_timm_gives_the_same_logits(tmp_path, monkeypatch, size):
    import_torchvision_models()
    architecture = {"name": "timm", "model": "test_vit.r160_in1k"}
    network = build_random_network(architecture, size)
    scope = run_card_code(
        export_network(tmp_path, network, architecture, size), tmp_path, monkeypatch
    )
    x = torch.randn(2, 3, size, size, generator=torch.manual_seed(0))
    with torch.inference_mode():
        assert torch.allclose(scope["network"](x), network(x), atol=1e-6)


def test_a_label_cannot_break_out_of_the_card(tmp_path):
    network = build_random_network({"name": "small-cnn"}, 32)
    network.classes[0] = "``` | <b>\n# title"
    with zipfile.ZipFile(export_network(tmp_path, network, {"name": "small-cnn"}, 32)) as file:
        card = file.read("README.md").decode()
    assert (
        "\n# title" not in card
        and "<b>" not in card.replace("\\<", "")
        and card.count("\n```") == 4
    )


def test_the_card_reads_images_with_nothing_left_open(tmp_path):
    network = build_random_network({"name": "small-cnn"}, 32)
    with zipfile.ZipFile(export_network(tmp_path, network, {"name": "small-cnn"}, 32)) as file:
        text = file.read("README.md").decode()
    assert build_image_reading_code(ModelImage(size=32, channels=3)) in text and not re.search(
        r"\{(task|classes|small)\}", text
    )


def test_the_files_that_cards_are_made_of_are_modules_that_run(tmp_path, monkeypatch):
    import_torchvision_models()
    network = build_random_network({"name": "mlp", "hidden": [4]}, 8)
    with zipfile.ZipFile(
        export_network(tmp_path, network, {"name": "mlp", "hidden": [4]}, 8)
    ) as file:
        for name in ("model.safetensors", "config.json"):
            (tmp_path / name).write_bytes(file.read(name))
    monkeypatch.chdir(tmp_path)
    root = Path(__file__).parents[3]
    files = set((root / "core" / "export" / "loading").rglob("[!_]*.py"))
    # Programs: the tests of ONNX downloads run them.
    files -= {root / "core/export/loading" / name for name in ("onnx_run.py", "onnx_run_2.py")}
    for name, text in build_image_reader_files(
        ModelImage(size=8, channels=1, decoding=2)
    ).items():  # beside it, as in a download
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert len(files) > 15
    for path in sorted(files):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("image_file")]:
        monkeypatch.delitem(sys.modules, name)
