"""The catalogue: everything a process without torch needs to check a recipe."""

import json

import jsonschema
from recipes import resolve_patch

from core.learning import catalogue
from core.learning.methods import registry


def test_it_is_json_and_names_every_method_with_its_defaults() -> None:
    content = json.loads(json.dumps(catalogue.build_recipe_catalogue()))
    assert set(content["methods"]) == set(registry.METHODS)
    for entry in content["methods"].values():
        jsonschema.validate(entry["defaults"], entry["schema"])
    for entry in content["architectures"].values():
        jsonschema.validate(entry["defaults"], entry["schema"])


def test_the_default_recipe_fits_the_schema_of_recipes() -> None:
    entry = catalogue.build_recipe_catalogue()["recipe"]
    jsonschema.validate(entry["defaults"], entry["schema"])
    assert resolve_patch(entry["defaults"]) == resolve_patch({})
