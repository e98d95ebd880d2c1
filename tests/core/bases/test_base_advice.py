"""A base that differs in its stem or patches alone: what it fits, as the request that would be
taken.
"""

import json
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import torch

from core.bases import base_advice
from core.bases.base_advice import (
    Shapes,
    advise_on_wrong_stem_or_patch_size,
    explain_architecture_mismatch_of_base,
    format_base_upload_query,
    format_model_creation_request,
    refuse_pytorch_or_archive_file,
)
from core.errors import BaseInvalid
from core.learning.networks import (
    ImageSpec,
    backbone,
    describe_expected_base_tensors,
    get_architectures,
)


def describe_shapes(architecture: dict, image: dict) -> Shapes:
    found = describe_expected_base_tensors(architecture, ImageSpec.parse_image_field(image))
    return {name: entry["shape"] for name, entry in found["tensors"].items()}


def find_family(architecture: dict) -> str:
    return get_architectures()[architecture["name"]].family


def build_rgb_image(size: int) -> dict:
    return {"size": size, "channels": 3}


@pytest.mark.parametrize(
    ("asked", "size", "file", "file_size", "field", "fits"),
    [
        (
            {"name": "resnet18", "stem": "auto"}, 32,
            {"name": "resnet18"}, 224,
            "architecture.stem", ({"name": "resnet18", "stem": "standard"}, 32),
        ),
        (
            {"name": "resnet18", "stem": "auto"}, 224,
            {"name": "resnet18"}, 32,
            "architecture.stem", ({"name": "resnet18", "stem": "small"}, 224),
        ),
        (
            {"name": "resnet50", "stem": "small"}, 224,
            {"name": "resnet50"}, 224,
            "architecture.stem", ({"name": "resnet50", "stem": "standard"}, 224),
        ),
        (
            {"name": "convnext_tiny", "stem": "auto"}, 32,
            {"name": "convnext_tiny"}, 224,
            "architecture.stem", ({"name": "convnext_tiny", "stem": "standard"}, 32),
        ),
        (
            {"name": "convnext_tiny", "stem": "auto"}, 16,
            {"name": "convnext_tiny"}, 224,
            "image.size", ({"name": "convnext_tiny", "stem": "auto"}, 224),
        ),
        (
            {"name": "vit_b_16", "patch": None}, 32,
            {"name": "vit_b_16"}, 224,
            "architecture.patch", ({"name": "vit_b_16", "patch": 16}, 224),
        ),
        (
            {"name": "vit_b_16", "patch": 8}, 230,
            {"name": "vit_b_16"}, 224,
            "architecture.patch", ({"name": "vit_b_16", "patch": 16}, 230),
        ),
    ],
)  # fmt: skip
def test_a_file_is_told_what_it_fits(asked, size, file, file_size, field, fits):
    found, expected = (
        describe_shapes(file, build_rgb_image(file_size)),
        describe_shapes(asked, build_rgb_image(size)),
    )
    told = advise_on_wrong_stem_or_patch_size(
        asked, build_rgb_image(size), find_family(asked), found, expected
    )
    assert told is not None and (told.field, told.architecture, told.image) == (
        field,
        fits[0],
        build_rgb_image(fits[1]),
    )
    assert describe_shapes(told.architecture, told.image) == found


def test_a_first_layer_for_other_channels_is_told_as_well():
    asked = {"name": "resnet18", "stem": "auto"}
    found = describe_shapes(asked, {"size": 32, "channels": 1})
    told = advise_on_wrong_stem_or_patch_size(
        asked,
        build_rgb_image(32),
        find_family(asked),
        found,
        describe_shapes(asked, build_rgb_image(32)),
    )
    assert (
        told is not None
        and told.field == "image.channels"
        and told.image == {"size": 32, "channels": 1}
    )


@pytest.mark.parametrize("stem", [[64, 3, 5, 5], [32, 3, 7, 7], [64, 4, 7, 7], [64], []])
def test_a_stem_that_no_architecture_has_is_not_explained(stem):
    asked = {"name": "resnet18", "stem": "auto"}
    expected = describe_shapes(asked, build_rgb_image(32))
    assert (
        advise_on_wrong_stem_or_patch_size(
            asked,
            build_rgb_image(32),
            find_family(asked),
            {**expected, "conv1.weight": stem},
            expected,
        )
        is None
    )


@pytest.mark.parametrize(
    "positions", [[1, 4, 192], [1, 0, 192], [1, 1, 192], [5, 192], [1, 1_000_001, 192]]
)
def test_positions_of_no_square_image_are_not_explained(positions):
    asked = {"name": "vit", "layers": 1, "heads": 3, "hidden": 192, "mlp": 768, "patch": None}
    expected = describe_shapes(asked, build_rgb_image(32))
    assert (
        advise_on_wrong_stem_or_patch_size(
            asked,
            build_rgb_image(32),
            find_family(asked),
            {**expected, "encoder.pos_embedding": positions},
            expected,
        )
        is None
    )


def test_a_file_that_differs_elsewhere_too_is_not_explained():
    asked = {"name": "resnet18", "stem": "auto"}
    found, expected = (
        describe_shapes(asked, build_rgb_image(224)),
        describe_shapes(asked, build_rgb_image(32)),
    )
    assert (
        advise_on_wrong_stem_or_patch_size(
            asked, build_rgb_image(32), find_family(asked), {**found, "bn1.bias": [3]}, expected
        )
        is None
    )
    assert (
        advise_on_wrong_stem_or_patch_size(
            asked, build_rgb_image(32), find_family(asked), {**found, "more": [3]}, expected
        )
        is None
    )
    assert (
        advise_on_wrong_stem_or_patch_size(
            {"name": "mlp"},
            build_rgb_image(8),
            "mlp",
            {"fc1.weight": [2, 3]},
            {"fc1.weight": [2, 4]},
        )
        is None
    )


def test_the_error_names_the_field_and_the_request_that_would_be_taken():
    asked = {"name": "resnet18", "stem": "auto"}
    told = advise_on_wrong_stem_or_patch_size(
        asked,
        build_rgb_image(32),
        find_family(asked),
        describe_shapes(asked, build_rgb_image(224)),
        describe_shapes(asked, build_rgb_image(32)),
    )
    assert told is not None
    error = told.make_error([{"field": "conv1.weight", "message": "…"}])
    assert [f["field"] for f in error.fields] == ["architecture.stem", "conv1.weight"]
    sent = parse_qs(error.extra["fits"]["query"])
    assert json.loads(sent["architecture"][0]) == {"name": "resnet18", "stem": "standard"}
    assert (sent["image_size"], sent["channels"]) == (["32"], ["3"])
    assert f"POST /v1/bases?{error.extra['fits']['query']}" in error.detail
    assert (
        format_model_creation_request({"name": "resnet18", "stem": "standard"}, build_rgb_image(32))
        in error.detail
    )
    assert "POST /v1/bases?architecture=resnet18&image_size=224&channels=3" in error.detail


def test_a_query_says_only_what_is_chosen():
    assert (
        format_base_upload_query({"name": "resnet18", "stem": "auto"}, build_rgb_image(64))
        == "architecture=resnet18&image_size=64&channels=3"
    )


def test_a_model_of_another_architecture_is_told_in_plain_words():
    base = {"name": "resnet18", "stem": "standard", "image": build_rgb_image(32)}
    told = explain_architecture_mismatch_of_base(
        base, {"name": "mlp", "hidden": [4, 5]}, {"size": 8, "channels": 1}
    )
    assert 'resnet18 (stem "standard") and images of 32 × 32 pixels in 3 channels' in told
    assert "mlp (hidden [4, 5]) and images of 8 × 8 pixels in 1 channel." in told
    assert (
        '"architecture": {"name": "resnet18", "stem": "standard"}, "image": {"size": 32, '
        '"channels": 3}' in told
    )
    assert "'" not in told and "None" not in told


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_file_is_told_how_to_become_a_base(tmp_path: Path, zipped: bool):
    file = tmp_path / "model.pth"
    torch.save({"a": torch.zeros(3)}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        BaseInvalid, match=r"import_torchvision resnet34 FILE\.pth OUT\.safetensors`"
    ):
        refuse_pytorch_or_archive_file(
            file, {"name": "resnet34"}, find_family({"name": "resnet34"})
        )
    with pytest.raises(BaseInvalid, match=r"(?s)pickled PyTorch file.*save_file"):
        refuse_pytorch_or_archive_file(
            file, {"name": "small-cnn"}, find_family({"name": "small-cnn"})
        )


def test_another_archive_is_named_and_a_file_of_no_known_kind_is_left_to_the_reader(tmp_path: Path):
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(BaseInvalid, match="zip archive"):
        refuse_pytorch_or_archive_file(
            tmp_path / "a.zip", {"name": "resnet18"}, find_family({"name": "resnet18"})
        )
    (tmp_path / "b").write_bytes(b"hello")
    refuse_pytorch_or_archive_file(
        tmp_path / "b", {"name": "resnet18"}, find_family({"name": "resnet18"})
    )


def test_images_are_small_here_up_to_where_stems_are():
    assert base_advice.SMALL_IMAGE == backbone.SMALL_IMAGE
