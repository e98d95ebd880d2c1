"""The importer turns torchvision's own checkpoint into a base, and refuses everything else in a
sentence.
"""

from __future__ import annotations

import functools
import json
import os
import struct
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

from core.contract.manifest import Manifest
from core.learning.evaluation.predicting import load_version_network
from core.learning.networks import ImageSpec, list_backbone_tensor_dtypes_and_shapes
from core.learning.torchvision_import import import_torchvision_models
from tests.loading import load_module

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def importer() -> ModuleType:
    """The tool, loaded into this process to save starts."""
    return load_module(ROOT / "tools" / "import_torchvision.py")


@functools.cache
def build_resnet18() -> dict[str, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return dict(import_torchvision_models().resnet18(weights=None).state_dict())


def save_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    torch.save(build_resnet18(), path)
    return build_resnet18()


def test_a_checkpoint_becomes_a_base_that_loads(tmp_path: Path, importer: ModuleType) -> None:
    state = save_checkpoint(tmp_path / "in.pth")
    out = tmp_path / "out.safetensors"
    importer.main(["resnet18", str(tmp_path / "in.pth"), str(out)])
    tensors = load_file(out)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        name: shape
        for name, (_, shape) in list_backbone_tensor_dtypes_and_shapes(
            {"name": "resnet18"}, ImageSpec(224, 3)
        ).items()
    }
    assert all(torch.equal(tensor, state[name]) for name, tensor in tensors.items())
    manifest = {
        "version": 0, "architecture": {"name": "resnet18"}, "image": {"size": 224, "channels": 3},
        "scenario": "class",
    }  # fmt: skip
    network = load_version_network(Manifest.from_json(manifest), {"base": out})
    assert torch.equal(network.state_dict()["backbone.conv1.weight"], state["conv1.weight"])


def test_the_base_carries_no_metadata_and_is_a_function_of_the_weights(
    tmp_path: Path, importer: ModuleType
) -> None:
    state = save_checkpoint(tmp_path / "in.pth")
    torch.save({name: state[name] for name in reversed(state)}, tmp_path / "reversed.pth")
    for name in ("in", "reversed"):
        importer.main(
            ["resnet18", str(tmp_path / f"{name}.pth"), str(tmp_path / f"{name}.safetensors")]
        )
    content = (tmp_path / "in.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    assert "__metadata__" not in header
    assert content == (tmp_path / "reversed.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("arch", "sentence"),
    [
        ("resnet34", r"lacks the tensor layer1\.2"),
        ("vit_b_16", "has no tensor conv1"),
        ("small-cnn", "not one of torchvision's"),
        ("vgg", "unknown architecture"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(
    tmp_path: Path, importer: ModuleType, arch: str, sentence: str
) -> None:
    save_checkpoint(tmp_path / "in.pth")
    with pytest.raises(SystemExit, match=sentence):
        importer.main([arch, str(tmp_path / "in.pth"), str(tmp_path / "out.safetensors")])
    assert [path.name for path in tmp_path.iterdir()] == ["in.pth"]


def test_with_a_stem_it_fits_small_images_and_says_what_to_send(
    tmp_path: Path, importer: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(tmp_path / "in.pth")
    files = [str(tmp_path / "in.pth"), str(tmp_path / "out.safetensors")]
    importer.main(["resnet18", *files, "--image-size", "32", "--stem", "standard"])
    told = capsys.readouterr().out
    assert (
        "POST /v1/bases?architecture=%7B%22name%22%3A%22resnet18%22%2C%22stem%22%3A%22standard%22%7D"
        "&image_size=32&channels=3\n"
    ) in told
    architecture = {"name": "resnet18", "stem": "standard"}
    assert json.dumps(architecture) in told and '"image": {"size": 32, "channels": 3}' in told
    manifest = {"version": 0, "architecture": architecture, "image": {"size": 32, "channels": 3}}
    load_version_network(
        Manifest.from_json({**manifest, "scenario": "class"}),
        {"base": tmp_path / "out.safetensors"},
    )
    importer.main(["resnet18", *files])
    assert (
        "POST /v1/bases?architecture=resnet18&image_size=224&channels=3\n"
        in capsys.readouterr().out
    )


def test_a_stem_that_does_not_fit_is_refused_with_the_options_that_do(
    tmp_path: Path, importer: ModuleType
) -> None:
    save_checkpoint(tmp_path / "in.pth")
    files = [str(tmp_path / "in.pth"), str(tmp_path / "out.safetensors")]
    with pytest.raises(SystemExit, match=r"64×3×7×7.*fits with --image-size 32 --stem standard$"):
        importer.main(["resnet18", *files, "--image-size", "32"])


def test_patches_that_do_not_fit_are_refused_with_the_options_that_do(
    tmp_path: Path, importer: ModuleType
) -> None:
    shapes = {"hidden": 24, "heads": 3, "mlp": 8, "layers": 1}
    made = import_torchvision_models().VisionTransformer(48, 16, 1, 3, 24, 8)
    torch.save(made.state_dict(), tmp_path / "in.pth")
    state = torch.load(tmp_path / "in.pth", weights_only=True)  # noqa: TID251
    with pytest.raises(ValueError, match=r"fits with --image-size 48 --patch 16$"):
        importer.convert_torchvision_state_dict({"name": "vit", **shapes}, state, 32)
    fitting = importer.convert_torchvision_state_dict(
        {"name": "vit", **shapes, "patch": 16}, state, 48
    )
    assert fitting["conv_proj.weight"].shape == (24, 3, 16, 16)


def test_a_whole_pickled_model_is_refused_with_what_to_do(
    tmp_path: Path, importer: ModuleType
) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "in.pth")
    with pytest.raises(
        SystemExit, match=r"a whole pickled model.*save its state dict: torch\.save\("
    ):
        importer.main(["resnet18", str(tmp_path / "in.pth"), str(tmp_path / "out.safetensors")])


def test_a_file_that_would_run_code_is_refused(tmp_path: Path, importer: ModuleType) -> None:
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {marker}",)

    torch.save({"conv1.weight": Evil()}, tmp_path / "in.pth")
    with pytest.raises(SystemExit, match="holds more than tensors"):
        importer.main(["resnet18", str(tmp_path / "in.pth"), str(tmp_path / "out.safetensors")])
    assert not marker.exists()
    assert not (tmp_path / "out.safetensors").exists()
