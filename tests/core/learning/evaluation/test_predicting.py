"""Predicting: versions come back from their parts, and labels are those of the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from core.contract.architecture import Normalisation
from core.contract.manifest import Manifest
from core.learning.evaluation.predicting import (
    SoftmaxScoring,
    load_prediction_method,
    load_version_network,
    predict_images,
)
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network

ARCHITECTURE = {"name": "resnet20", "width": 8}
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)


def build_manifest(**changes: Any) -> Manifest:
    return Manifest.from_json({
        "version": 1, "architecture": ARCHITECTURE, "image": {"size": 16, "channels": 3}, "scenario": "class",
        "classes": ["b", "a", "c"], "heads": [], **changes,
    })  # fmt: skip


def build_seeded_network(scenario: str = "class") -> Network:
    network = build_network(ARCHITECTURE, ImageSpec(16, 3), scenario, seed=4)
    network.add_task_classes(2, ["b", "a", "c"], "default", torch.Generator().manual_seed(1))
    return network.eval()


def write_parts(folder: Path, parts: dict[str, dict[str, torch.Tensor]]) -> dict[str, Path]:
    paths = {name: folder / f"{name}.safetensors" for name in parts}
    for name, path in paths.items():
        save_file(parts[name], path)
    return paths


def test_a_version_comes_back_from_its_parts(tmp_path: Path) -> None:
    network = build_seeded_network()
    again = load_version_network(
        build_manifest(), write_parts(tmp_path, network.copy_parts_to_cpu())
    )
    assert not again.training
    assert all(torch.equal(again.state_dict()[name], t) for name, t in network.state_dict().items())
    assert again.classes == ["b", "a", "c"]


def test_parts_of_a_method_are_left_alone(tmp_path: Path) -> None:
    parts = {**build_seeded_network().copy_parts_to_cpu(), "buffer": {"images": torch.zeros(1)}}
    names = load_version_network(build_manifest(), write_parts(tmp_path, parts)).state_dict().keys()
    assert names == build_seeded_network().state_dict().keys()


def test_a_missing_part_is_refused(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, build_seeded_network().copy_parts_to_cpu())
    for name in ("head", "backbone.2"):
        with pytest.raises(ValueError, match=name):
            load_version_network(
                build_manifest(), {part: path for part, path in paths.items() if part != name}
            )
    with pytest.raises(ValueError, match="missing"):
        load_version_network(build_manifest(init={"kind": "random", "seed": 4}), {})


def test_heads_of_tasks_come_back(tmp_path: Path) -> None:
    network = build_seeded_network("task")
    described = build_manifest(
        scenario="task", classes=[], heads=[{"task": 2, "classes": ["b", "a", "c"]}]
    )
    again = load_version_network(described, write_parts(tmp_path, network.copy_parts_to_cpu()))
    assert predict_images(again, IMAGES, task=2)[0] == predict_images(network, IMAGES, task=2)[0]
    with pytest.raises(ValueError, match="task"):
        predict_images(again, IMAGES, task=3)


def test_version_0_of_a_random_base_is_rebuilt_from_its_seed() -> None:
    first = build_manifest(version=0, classes=None, init={"kind": "random", "seed": 4})
    assert torch.equal(load_version_network(first, {}).state_dict()["backbone.conv1.weight"],
                       build_seeded_network().state_dict()["backbone.conv1.weight"])  # fmt: skip


def test_version_0_of_an_upload_holds_the_uploaded_tensors(tmp_path: Path) -> None:
    state = build_seeded_network().backbone.state_dict()
    network = load_version_network(
        build_manifest(version=0, classes=["x"]), write_parts(tmp_path, {"base": state})
    )
    assert all(
        torch.equal(network.backbone.state_dict()[name], tensor) for name, tensor in state.items()
    )
    assert not network.state_dict()["head.weight"].any()


def test_version_0_from_another_models_version_takes_its_backbone(tmp_path: Path) -> None:
    parts = {
        name: part
        for name, part in build_seeded_network().copy_parts_to_cpu().items()
        if name != "head"
    }
    network = load_version_network(
        build_manifest(version=0, classes=["x", "y"]), write_parts(tmp_path, parts)
    )
    assert torch.equal(network.copy_parts_to_cpu()["backbone.3"]["backbone.layer3.0.conv1.weight"],
                       parts["backbone.3"]["backbone.layer3.0.conv1.weight"])  # fmt: skip
    assert network.classes == ["x", "y"]


def test_a_manifest_without_a_needed_field_is_refused() -> None:
    with pytest.raises(ValueError, match="architecture"):
        Manifest.from_json({"version": 0, "init": {"kind": "random", "seed": 0}})


def test_labels_are_the_most_probable_classes() -> None:
    network = build_seeded_network()
    labels, probabilities = predict_images(network, IMAGES)
    x = (torch.from_numpy(IMAGES).permute(0, 3, 1, 2).double() / 255 - 0.5) / 0.25
    logits = network.double()(x).detach()
    np.testing.assert_allclose(probabilities, logits.softmax(1).numpy(), atol=1e-5)
    assert labels == [["b", "a", "c"][i] for i in logits.argmax(1)]
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)


def test_normalisation_comes_from_the_manifest() -> None:
    network = build_seeded_network()
    statistics = {"mean": [0.4, 0.5, 0.6], "std": [0.1, 0.2, 0.3]}
    x = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255
    x = (x - torch.tensor(statistics["mean"])[:, None, None]) / torch.tensor(statistics["std"])[
        :, None, None
    ]
    expected = network(x).softmax(1).detach().numpy()
    np.testing.assert_allclose(
        predict_images(network, IMAGES, normalise=Normalisation.from_json(statistics))[1],
        expected,
        atol=1e-5,
    )


def test_the_batch_size_does_not_change_labels() -> None:
    network = build_seeded_network()
    whole, parts = predict_images(network, IMAGES), predict_images(network, IMAGES, batch=2)
    assert whole[0] == parts[0]
    np.testing.assert_allclose(whole[1], parts[1], atol=1e-6)


def test_predicting_leaves_the_mode_and_the_statistics_alone() -> None:
    network = build_seeded_network().train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    predict_images(network, IMAGES)
    assert network.training
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_a_tie_goes_to_the_first_class() -> None:
    network = build_network(ARCHITECTURE, ImageSpec(16, 3), "class", HeadSpec(("z", "a")))
    assert predict_images(network, IMAGES)[0] == ["z"] * 5


def test_no_images_give_no_labels() -> None:
    labels, probabilities = predict_images(build_seeded_network(), IMAGES[:0])
    assert labels == []
    assert probabilities.shape == (0, 3)


def test_a_version_without_classes_says_so() -> None:
    with pytest.raises(ValueError, match="knows no classes"):
        predict_images(build_network(ARCHITECTURE, ImageSpec(16, 3), "class"), IMAGES)


@pytest.mark.parametrize("bad", [IMAGES.astype(np.float32), IMAGES[0]])
def test_other_arrays_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="uint8"):
        predict_images(build_seeded_network(), bad)


def test_outputs_that_are_not_finite_are_an_error() -> None:
    network = build_seeded_network()
    with torch.no_grad():
        network.get_parameter("head.weight").fill_(float("nan"))
    with pytest.raises(ValueError, match="finite"):
        predict_images(network, IMAGES)


def load_icarl(means: torch.Tensor | None, folder: Path) -> Any:
    parts = {"exemplars": {"images": torch.zeros(1)}, "buffer": {"images": torch.zeros(1)}}
    if means is not None:
        parts["own"] = {"class_means": means}
    made = {"name": "icarl", "hyper": {"exemplars": 5}, "state": {"exemplars": {"private": 1}}}
    return load_prediction_method(build_manifest(method=made), write_parts(folder, parts))


def test_a_version_of_icarl_answers_with_the_nearest_mean_and_a_softmax_of_its_scores(
    tmp_path: Path,
) -> None:
    network = build_seeded_network()
    means = torch.nn.functional.normalize(
        torch.randn(3, 32, generator=torch.Generator().manual_seed(3))
    )
    method = load_icarl(means, tmp_path)
    labels, probabilities = predict_images(
        network, IMAGES, scoring=SoftmaxScoring(method.predict_logits)
    )
    x = (torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    features = torch.nn.functional.normalize(network.features(x).detach()).double()
    distances = torch.cdist(features, means.double())
    assert labels == [["b", "a", "c"][i] for i in distances.argmin(1)]
    np.testing.assert_allclose(probabilities, (-distances.square()).softmax(1).numpy(), atol=1e-5)
    assert not np.allclose(probabilities, predict_images(network, IMAGES)[1], atol=1e-3)


def test_only_the_state_that_answers_is_loaded(tmp_path: Path) -> None:
    method = load_icarl(torch.ones(3, 32), tmp_path)
    assert (
        method.state.collect_tensors_by_type().keys() == {"own"}
        and method.state.collect_json_by_type() == {}
    )
    assert method.hyper.exemplars == 5


def test_a_version_of_icarl_without_means_answers_by_its_head(tmp_path: Path) -> None:
    network = build_seeded_network()
    found = predict_images(
        network, IMAGES, scoring=SoftmaxScoring(load_icarl(None, tmp_path).predict_logits)
    )
    np.testing.assert_array_equal(found[1], predict_images(network, IMAGES)[1])


def test_a_version_without_a_method_is_a_plain_forward_pass() -> None:
    assert load_prediction_method(build_manifest(version=0), {}).name == "finetune"


def test_a_method_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown method 'magic'"):
        load_prediction_method(build_manifest(method={"name": "magic", "hyper": {}}), {})
