"""The predict helper: a version answers by its method, whatever the network's head says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.networks.dne.network import DneNetwork
from core.predictions.helper import networks as kept
from core.predictions.helper.graphs import OnnxGraphMaker
from core.predictions.helper.networks import LoadedVersion, LoadedVersionCache
from core.predictions.helper.serving import PredictionRefused, predict_request_images_within_turn

ARCHITECTURE = {"name": "mlp", "hidden": [5]}
ASKED = {"owner": "own", "task": None, "top_k": 10, "turn_s": 60}


def predict_images(networks: LoadedVersionCache, header: dict, pixels: np.ndarray) -> list[dict]:
    """Return a version's predictions for images. The header also holds its manifest."""
    manifest = json.dumps(header["manifest"]).encode()
    items, _ = predict_request_images_within_turn(networks, header, manifest, pixels.tobytes())
    return [json.loads(item) for item in items]


def load_helper_version(networks: LoadedVersionCache, header: dict) -> LoadedVersion:
    manifest = json.dumps(header["manifest"]).encode()
    return networks.load_version(header["owner"], header["version_id"], manifest, header["parts"])


def test_a_version_of_icarl_answers_with_its_nearest_class_mean(tmp_path: Path) -> None:
    network = build_network(
        ARCHITECTURE, ImageSpec(4, 1), "class", HeadSpec(("ant", "bee")), seed=2
    )
    pixels = torch.randint(0, 256, (6, 4, 4, 1), dtype=torch.uint8, generator=torch.manual_seed(0))
    features = network.features((pixels.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25).detach()
    parts = {
        **network.copy_parts_to_cpu(),
        "own": {"class_means": torch.nn.functional.normalize(features[:2])},
    }
    paths = {name: str(tmp_path / name) for name in parts}
    for name, tensors in parts.items():
        save_file(tensors, paths[name])
    manifest = {
        "version": 1, "architecture": ARCHITECTURE, "image": {"size": 4, "channels": 1}, "scenario": "class",
        "classes": ["ant", "bee"], "heads": [], "method": {"name": "icarl", "hyper": {"exemplars": 9}},
    }  # fmt: skip
    header = {"version_id": "ver", "version": 1, "manifest": manifest, "parts": paths, **ASKED}
    networks = LoadedVersionCache(OnnxGraphMaker(1))
    for _ in range(2):  # loaded, and then kept
        found = predict_images(networks, header, pixels.numpy())
        assert [p["label"] for p in found[:2]] == ["ant", "bee"] and len(found) == 6
        assert all(abs(sum(p["probabilities"].values()) - 1) < 1e-5 for p in found)
    head = {**manifest, "method": {"name": "finetune", "hyper": {}}}
    other = {**header, "version_id": "other", "manifest": head}
    plain = predict_images(networks, other, pixels.numpy())
    assert {p["label"] for p in plain} == {"ant"}  # a zero head: always the first class


def test_a_version_whose_file_was_deleted_is_refused_and_does_not_end_the_helper(
    tmp_path: Path,
) -> None:
    manifest = {
        "image": {"size": 4, "channels": 1},
        "architecture": ARCHITECTURE,
        "scenario": "class",
    }
    header = {
        "version_id": "ver", "version": 1, "manifest": manifest, **ASKED,
        "parts": {"head": str(tmp_path / "deleted")},
    }  # fmt: skip
    with pytest.raises(PredictionRefused) as refused:
        predict_images(
            LoadedVersionCache(OnnxGraphMaker(1)), header, np.zeros((1, 4, 4, 1), np.uint8)
        )
    assert refused.value.kind == "gone"


def test_versions_of_one_chain_are_in_memory_once_and_answer_as_each_does_alone(
    tmp_path: Path,
) -> None:
    architecture = {"name": "dne", "layers": 2, "head_dim": 4, "heads": 2}
    network = DneNetwork(
        build_network(architecture, ImageSpec(8, 1), "class", HeadSpec(("0", "1")))
    )
    headers = []
    for version in (1, 2, 3):
        if version > 1:
            network.set_size_of_next_expert(1)
            generator = torch.Generator().manual_seed(version)
            network.add_task_classes(version, [f"{version}a", f"{version}b"], "default", generator)
        parts = {name: str(tmp_path / name) for name in network.copy_parts_to_cpu()}
        parts["head"] = str(tmp_path / f"head-{version}")
        for name, tensors in network.copy_parts_to_cpu().items():
            save_file(tensors, parts[name])
        manifest = {
            "version": version, "architecture": architecture, "image": {"size": 8, "channels": 1},
            "scenario": "class", "classes": list(network.classes), "heads": [],
            "network": network.describe_for_manifest(),
        }  # fmt: skip
        headers.append({"version_id": f"v{version}", "version": version, "manifest": manifest, "parts": parts,
                        **ASKED})  # fmt: skip
    pixels = torch.arange(5 * 64).remainder(251).reshape(5, 8, 8, 1).to(torch.uint8).numpy()
    together = LoadedVersionCache(OnnxGraphMaker(1))
    for header in (*headers, *headers[::-1]):
        assert predict_images(together, header, pixels) == predict_images(
            LoadedVersionCache(OnnxGraphMaker(1)), header, pixels
        )
    networks = [load_helper_version(together, header).network for header in headers]
    places = {t.data_ptr() for one in networks for t in one.state_dict().values()}
    assert (
        len(places) == len(networks[-1].state_dict()) + 2 * 2
    )  # weight and bias of two earlier classifiers


def test_what_no_kept_version_uses_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "KEPT_VERSIONS", 1)
    networks = LoadedVersionCache(OnnxGraphMaker(1))
    for seed in (1, 2):
        network = build_network(
            ARCHITECTURE, ImageSpec(4, 1), "class", HeadSpec(("ant", "bee")), seed=seed
        )
        parts = {name: str(tmp_path / f"{name}-{seed}") for name in network.copy_parts_to_cpu()}
        for name, tensors in network.copy_parts_to_cpu().items():
            save_file(tensors, parts[name])
        manifest = {
            "version": 1, "architecture": ARCHITECTURE, "image": {"size": 4, "channels": 1},
            "scenario": "class", "classes": ["ant", "bee"], "heads": [],
        }  # fmt: skip
        load_helper_version(
            networks, {"version_id": f"v{seed}", "manifest": manifest, "parts": parts, **ASKED}
        )
        assert set(networks._tensors) == set(parts.values())


@pytest.fixture
def header(tmp_path: Path) -> dict:
    """Return the header of a request to a version with the classes a … d."""
    heads = HeadSpec(tuple("abcd"))
    network = build_network(ARCHITECTURE, ImageSpec(4, 1), "class", heads, seed=3)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([0.0, 3.0, 1.0, 1.0]))
    parts = {name: str(tmp_path / name) for name in network.copy_parts_to_cpu()}
    for name, tensors in network.copy_parts_to_cpu().items():
        save_file(tensors, parts[name])
    manifest = {
        "version": 1, "architecture": ARCHITECTURE, "image": {"size": 4, "channels": 1},
        "scenario": "class", "classes": list("abcd"), "heads": [],
    }  # fmt: skip
    return {"version_id": "ver", "version": 1, "manifest": manifest, "parts": parts, **ASKED}


def test_the_most_probable_labels_come_first_and_as_many_as_asked_for(header: dict) -> None:
    image = np.zeros((1, 4, 4, 1), np.uint8)
    (all_of_them,) = predict_images(LoadedVersionCache(OnnxGraphMaker(1)), header, image)
    assert list(all_of_them["probabilities"]) == ["b", "c", "d", "a"]
    assert abs(sum(all_of_them["probabilities"].values()) - 1) < 1e-6
    (two,) = predict_images(LoadedVersionCache(OnnxGraphMaker(1)), {**header, "top_k": 2}, image)
    assert list(two["probabilities"]) == ["b", "c"]
    assert two["probability"] == two["probabilities"]["b"] == all_of_them["probability"]


def test_a_turn_that_has_taken_its_time_answers_the_first_images_alone(header: dict) -> None:
    images = np.zeros((9, 4, 4, 1), np.uint8)
    assert len(predict_images(LoadedVersionCache(OnnxGraphMaker(1)), header, images)) == 9
    assert (
        len(predict_images(LoadedVersionCache(OnnxGraphMaker(1)), {**header, "turn_s": 0}, images))
        == 1
    )


def test_an_owner_with_many_versions_loses_his_own_and_not_another_owners(header: dict) -> None:
    networks = LoadedVersionCache(OnnxGraphMaker(1))
    load_helper_version(networks, {**header, "owner": "modest", "version_id": "modest"})
    for number in range(3 * kept.KEPT_VERSIONS):
        load_helper_version(
            networks, {**header, "owner": "greedy", "version_id": f"greedy-{number}"}
        )
    assert "modest" in networks._kept and len(networks._kept) == kept.KEPT_VERSIONS
    assert f"greedy-{3 * kept.KEPT_VERSIONS - 1}" in networks._kept


def test_probabilities_have_the_temperature_of_the_manifest_and_are_sure_from_a_threshold_on(
    tmp_path: Path,
) -> None:
    network = build_network(
        ARCHITECTURE, ImageSpec(4, 1), "class", HeadSpec(("ant", "bee")), seed=2
    )
    with torch.no_grad():
        network.get_parameter("head.weight").normal_(generator=torch.manual_seed(1))
    pixels = torch.randint(0, 256, (6, 4, 4, 1), dtype=torch.uint8, generator=torch.manual_seed(0))
    logits = network((pixels.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25).detach()
    paths = {name: str(tmp_path / name) for name in network.copy_parts_to_cpu()}
    for name, tensors in network.copy_parts_to_cpu().items():
        save_file(tensors, paths[name])
    manifest = {
        "version": 1, "architecture": ARCHITECTURE, "image": {"size": 4, "channels": 1}, "scenario": "class",
        "classes": ["ant", "bee"], "heads": [],
    }  # fmt: skip
    for value in (None, 0.2):
        told = (
            manifest
            if value is None
            else {**manifest, "temperature": {"value": value, "source": "parent"}}
        )
        header = {
            "version_id": f"ver {value}",
            "version": 1,
            "manifest": told,
            "parts": paths,
            **ASKED,
        }
        found = [
            p["probabilities"]["bee"]
            for p in predict_images(LoadedVersionCache(OnnxGraphMaker(1)), header, pixels.numpy())
        ]
        assert np.allclose(found, (logits / (value or 1)).softmax(1)[:, 1], atol=1e-5)
        probabilities = (logits / (value or 1)).softmax(1).amax(1)
        least = float(probabilities.median())
        promised = {**header, "sure": {"threshold": least - 1e-4}}
        sure = [
            p["sure"]
            for p in predict_images(LoadedVersionCache(OnnxGraphMaker(1)), promised, pixels.numpy())
        ]
        assert sure == (probabilities >= least).tolist() and len(set(sure)) == 2
        unknown = {**header, "sure": {"threshold": None}}
        assert {
            p["sure"]
            for p in predict_images(LoadedVersionCache(OnnxGraphMaker(1)), unknown, pixels.numpy())
        } == {None}
        assert all(
            "sure" not in p
            for p in predict_images(LoadedVersionCache(OnnxGraphMaker(1)), header, pixels.numpy())
        )
