"""Building: first weights are a function of the seed alone, and schemas say what can be built."""

import json
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest
import torch
from jsonschema import Draft202012Validator

from core.learning.networks import (
    ImageSpec,
    build_initialised_backbone,
    describe_expected_base_tensors,
    expected,
    get_architectures,
    list_backbone_tensor_dtypes_and_shapes,
)
from core.learning.networks.backbone import Backbone
from core.learning.networks.init import initialise_by_torch_rule, initialise_weights

ROOT = Path(__file__).parents[4]


def build_seeded_state(architecture, seed: int) -> dict[str, torch.Tensor]:
    return build_initialised_backbone(
        architecture, ImageSpec(16, 3), torch.Generator().manual_seed(seed)
    ).state_dict()


def test_weights_are_a_function_of_the_seed_alone_and_the_global_generator_stays(
    architecture,
) -> None:
    before = torch.get_rng_state()
    one, two, other = (build_seeded_state(architecture, seed) for seed in (3, 3, 4))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(before, torch.get_rng_state())


def test_every_tensor_is_filled(architecture, monkeypatch) -> None:
    # Uninitialised memory is made visible: whatever keeps the poison was not filled.
    plain = Backbone.to_empty

    def build_poisoned_backbone(self, **arguments) -> Backbone:
        module = plain(self, **arguments)
        for tensor in module.state_dict().values():
            tensor.fill_(-(2**20))
        return module

    monkeypatch.setattr(Backbone, "to_empty", build_poisoned_backbone)
    for name, tensor in build_seeded_state(architecture, 0).items():
        assert not (tensor == -(2**20)).any(), name


@pytest.mark.slow
def test_a_network_is_built_without_importing_sympy() -> None:
    """Its import takes half a second, which each process of a job would pay."""
    build = 'build_network({"name": "small-cnn"}, ImageSpec(16, 3), "class")'
    program = f"from core.learning.networks import *; {build}; import sys; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_a_module_without_a_rule_is_an_error() -> None:
    with pytest.raises(TypeError, match="Embedding"):
        initialise_weights(
            torch.nn.Sequential(torch.nn.Embedding(2, 2)),
            initialise_by_torch_rule,
            torch.Generator(),
        )


def test_the_expected_tensors_are_those_of_the_backbone(architecture) -> None:
    names = {torch.float32: "F32", torch.int64: "I64"}
    built = {
        name: (names[t.dtype], tuple(t.shape))
        for name, t in build_seeded_state(architecture, 0).items()
    }
    assert list_backbone_tensor_dtypes_and_shapes(architecture, ImageSpec(16, 3)) == built


def test_the_expected_base_is_printed_for_a_process_without_torch(capsys) -> None:
    request = {"architecture": {"name": "small-cnn"}, "image": {"size": 28, "channels": 1}}
    assert expected.main(json.dumps(request)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == describe_expected_base_tensors({"name": "small-cnn"}, ImageSpec(28, 1))
    assert printed["tensors"]["conv1.weight"] == {"dtype": "F32", "shape": [32, 1, 3, 3]}


UNKNOWN = '{"architecture": {"name": "vgg"}, "image": {"size": 8, "channels": 3}}'


@pytest.mark.parametrize("request_text", ["{", "[]", "{}", UNKNOWN])
def test_a_request_without_sense_is_answered_with_a_sentence_and_2(
    request_text: str, capsys
) -> None:
    assert expected.main(request_text) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("cannot say")


@pytest.mark.parametrize(
    ("architecture", "size", "error", "words"),
    [
        pytest.param(
            {"name": "vgg"}, 16, ValueError, "small-cnn", id="an unknown name, with the list"
        ),
        pytest.param(
            {"name": "mlp", "hiden": [3]}, 16, pydantic.ValidationError, "extra", id="unknown field"
        ),
        pytest.param(
            {"name": "convnext_tiny"}, 8, ValueError, "16 pixels", id="too small an image"
        ),
        pytest.param(
            {"name": "vit", "patch": 32}, 16, ValueError, "patch", id="a patch beyond the image"
        ),
    ],
)
def test_what_cannot_be_built_is_refused(architecture, size, error, words) -> None:
    with pytest.raises(error, match=words):
        build_initialised_backbone(architecture, ImageSpec(size, 3), torch.Generator())


@pytest.mark.slow
def test_every_architecture_takes_images_of_its_smallest_size() -> None:
    for name, info in get_architectures().items():
        if info.family == "timm":
            continue  # each of its networks has a smallest size of its own: test_timm.py
        if info.family in ("resnet", "vit", "convnext") and name not in (
            "resnet50",
            "vit",
            "convnext_tiny",
        ):
            continue  # one variant of a family is enough here
        backbone = build_initialised_backbone(
            {"name": name}, ImageSpec(info.min_size, 1), torch.Generator()
        ).eval()
        assert backbone(torch.zeros(2, 1, info.min_size, info.min_size)).shape == (
            2,
            backbone.width,
        )


def test_every_schema_accepts_its_defaults_and_refuses_unknown_fields() -> None:
    for name, info in get_architectures().items():
        schema = info.hyper.model_json_schema()
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator(schema)
        assert validator.is_valid({}), name
        assert validator.is_valid(info.hyper().model_dump(mode="json")), name
        assert not validator.is_valid({"no-such-field": 1}), name


@pytest.mark.parametrize("value", [{"heads": 4, "hidden": 66}, {"hidden": 64}, {"heads": 5}])
def test_the_schema_of_vit_refuses_what_the_model_refuses(value: dict[str, int]) -> None:
    hyper = get_architectures()["vit"].hyper
    assert not Draft202012Validator(hyper.model_json_schema()).is_valid(value)
    with pytest.raises(pydantic.ValidationError):
        hyper.model_validate(value)
    assert Draft202012Validator(hyper.model_json_schema()).is_valid({"heads": 4, "hidden": 64})
