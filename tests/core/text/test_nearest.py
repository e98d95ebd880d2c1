"""The nearest known name to one that does not exist."""

import pytest

from core.text.nearest import (
    describe_unknown_field,
    find_nearest_field_path,
    list_schema_property_paths,
)

MODEL = [
    "name",
    "scenario",
    "image",
    "gate",
    "image.size",
    "image.channels",
    "gate.max_forgetting",
    "gate.min_acc",
]
RECIPE = [
    "method.name", "method.buffer", "method.alpha", "epochs", "batch_size", "optimizer", "optimizer.name",
    "optimizer.lr", "optimizer.head_lr", "optimizer.weight_decay", "head.init", "optimizer.olor.iota1",
]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("image_size", "image.size"),
        ("imageSize", "image.size"),
        ("size", "image.size"),
        ("scenerio", "scenario"),
        ("forgetting", "gate.max_forgetting"),
        ("colour", None),
        ("", None),
        ("💥", None),
    ],
)
def test_a_field_of_a_model_is_found_by_its_path_its_last_part_or_a_slip(
    written: str, meant: str | None
) -> None:
    assert find_nearest_field_path(written, MODEL) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lr", "optimizer.lr"),
        ("learning_rate", "optimizer.lr"),
        ("wd", "optimizer.weight_decay"),
        ("buffer_size", "method.buffer"),
        ("batchsize", "batch_size"),
        ("epoch", "epochs"),
        ("optimiser", "optimizer"),
        ("head_init", "head.init"),
        ("dropout", None),
    ],
)
def test_a_field_of_a_recipe_is_found_at_any_depth(written: str, meant: str | None) -> None:
    assert find_nearest_field_path(written, RECIPE) == meant


def test_among_equals_the_one_in_the_same_block_is_meant() -> None:
    known = ["a.rate", "b.rate", "rate"]
    assert find_nearest_field_path("rates", known, "b") == "b.rate"
    assert find_nearest_field_path("rates", known) == "rate"


def test_a_name_of_any_length_is_compared_in_no_time() -> None:
    assert find_nearest_field_path("x" * 1_000_000, RECIPE) is None


def test_the_message_names_the_block_that_the_field_was_written_in() -> None:
    assert (
        describe_unknown_field("sise", MODEL, "image")
        == "unknown field; did you mean image.size? known here: channels, size"
    )
    assert describe_unknown_field("x", ["a"], "a") == "unknown field; nothing is known here"


def test_paths_go_through_references_and_alternatives() -> None:
    schema = {
        "$defs": {"Size": {"properties": {"width": {}, "again": {"$ref": "#/$defs/Size"}}}},
        "properties": {"image": {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]}},
    }
    found = list_schema_property_paths(schema)
    assert found[:3] == ["image", "image.width", "image.again"]
    assert len(found) < 20  # a schema that contains itself ends
