"""Forms generated from a JSON Schema, and the patch with the values that a user changed."""

import pytest

from api.pages.parts.schema_form import (
    InvalidFormValues,
    SchemaFormField,
    build_form_fields,
    compute_patch_of_form_values,
    iterate_form_input_names,
)

SCHEMA = {
    "$defs": {
        "Olor": {"type": "object", "properties": {"gamma": {"type": "number", "minimum": 0}}}
    },
    "properties": {
        "epochs": {"type": "integer", "minimum": 1, "maximum": 99},
        "lr": {"type": "number", "exclusiveMinimum": 0},
        "clip": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "anytime": {"type": "boolean"},
        "augment": {"enum": ["none", "flip"]},
        "version": {"const": 1},
        "olor": {"anyOf": [{"$ref": "#/$defs/Olor"}, {"type": "null"}]},
        "head": {"type": "object", "properties": {"init": {"enum": ["zero", "default"]}}},
        "layers": {"type": "array", "items": {"type": "integer"}},
    },
}
OWN = {
    "epochs": 10,
    "lr": 0.03,
    "clip": 1.0,
    "anytime": False,
    "augment": "none",
    "olor": None,
    "layers": [4],
}


def build_own_fields() -> tuple[SchemaFormField, ...]:
    return build_form_fields(SCHEMA, {**OWN, "head": {"init": "zero"}})


def test_every_kind_of_value_has_its_input() -> None:
    kinds = {
        field.path: (field.kind, field.nullable, field.displayed_text)
        for field in build_own_fields()
    }
    assert kinds == {
        "epochs": ("integer", False, "10"),
        "lr": ("number", False, "0.03"),
        "clip": ("number", True, "1.0"),
        "anytime": ("choice", False, "no"),
        "augment": ("choice", False, "none"),
        "olor": ("group", True, "off"),
        "head": ("group", False, "on"),
        "layers": ("json", False, "[4]"),
    }
    assert {"olor.gamma", "head.init"} <= set(iterate_form_input_names(build_own_fields()))


def test_an_empty_form_sends_nothing() -> None:
    assert compute_patch_of_form_values(build_own_fields(), {}) == {}
    assert (
        compute_patch_of_form_values(
            build_own_fields(), dict.fromkeys(iterate_form_input_names(build_own_fields()), " ")
        )
        == {}
    )


def test_only_what_differs_is_sent() -> None:
    same = {
        "epochs": "10",
        "lr": "0.03",
        "clip": "1",
        "anytime": "no",
        "head.init": "zero",
        "layers": "[4]",
    }
    assert compute_patch_of_form_values(build_own_fields(), same) == {}
    other = {"epochs": "3", "lr": "1e-4", "clip": "none", "anytime": "yes", "layers": "[4, 2]"}
    patch = {"epochs": 3, "lr": 0.0001, "clip": None, "anytime": True, "layers": [4, 2]}
    assert compute_patch_of_form_values(build_own_fields(), other) == patch


@pytest.mark.parametrize(
    ("given", "patch"),
    [
        ({"olor": "on"}, {"olor": {}}),
        ({"olor.gamma": "2"}, {"olor": {"gamma": 2}}),
        ({"olor": "off", "olor.gamma": "2"}, {"olor": None}),
        ({"head.init": "default"}, {"head": {"init": "default"}}),
    ],
)
def test_an_object_is_switched_on_by_what_is_in_it(given: dict[str, str], patch: object) -> None:
    assert compute_patch_of_form_values(build_own_fields(), given) == patch


def test_what_is_no_value_is_said_beside_its_input() -> None:
    given = {"epochs": "1.5", "clip": "wide", "augment": "<b>", "layers": "[", "lr": "0.1"}
    with pytest.raises(InvalidFormValues) as refused:
        compute_patch_of_form_values(build_own_fields(), given)
    assert refused.value.errors == {
        "epochs": "is '1.5'; write a whole number",
        "clip": "is 'wide'; write a number, or none",
        "augment": "is '<b>'; choose one of none, flip",
        "layers": "is no JSON",
    }
