"""`/openapi.json` names every field: of no value it says "an object" and no more, but for a few
with reasons.
"""

from typing import Any

import pytest

from core.errors import PerennialError
from tests.openapi import Contract, find_bare_objects

FREE = {
    "ArchitectureChoice[]": "a hyper-parameter; GET /v1/architectures has their schemas",
    "ArchitectureIn[]": "the same, as a request has it",
    "MethodChoice[]": "a hyper-parameter; GET /v1/methods has their schemas",
    "RecipePatch.method[]": "the same, as a request has it",
    "JsonValue": "a value inside of a JSON Schema, a hyper-parameter, or a number of a method's "
    "memory",
}
"""Values of any kind, and why."""


@pytest.fixture(scope="module")
def document(shared: Any) -> Any:
    return shared.get("/openapi.json").json()


def test_no_value_is_a_bare_object_but_those_with_reasons(document: Any) -> None:
    assert find_bare_objects(document) == set(FREE)


def test_every_answer_is_described(document: Any) -> None:
    missing = [
        (method, path, status)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for status, answer in operation["responses"].items()
        if status not in ("204", "304", "307") and method != "head" and "content" not in answer
    ]
    assert missing == []


def _list_error_classes(error: type[PerennialError]) -> set[type[PerennialError]]:
    return {error}.union(*map(_list_error_classes, error.__subclasses__()))


def test_each_status_of_an_error_is_one_that_the_service_has(document: Any) -> None:
    documented = {
        int(status)
        for operations in document["paths"].values()
        for operation in operations.values()
        for status in operation["responses"]
        if status >= "400"
    }
    # 416 is the answer to a range of a download, and 431 comes from the server before any route.
    assert documented - {416, 431} <= {
        error.status for error in _list_error_classes(PerennialError)
    }


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("VersionOut", {"gate": "Verdict", "manifest": "ManifestOut"}),
        ("TaskOut", {"report": "BatchReport", "recipe": "RecipeOut"}),
        (
            "JobOut",
            {
                "recipe": "RecipeOut",
                "progress": "Progress",
                "error": "JobError",
                "report": "BatchCheck",
            },
        ),
        (
            "ModelOut",
            {"recipe": "RecipeOut", "architecture": "ArchitectureChoice", "gate": "GateOut"},
        ),
        ("MetricsOut", {"summary": "Summary", "rows": "MatrixRow", "columns": "MatrixColumn"}),
        ("UsagePage", {"items": "ModelUsage"}),
        ("ModelIn", {"recipe": "RecipePatch", "gate": "GateIn", "architecture": "ArchitectureIn"}),
    ],
)
def test_what_was_an_object_has_a_shape_of_its_own(
    document: Any, name: str, fields: dict[str, str]
) -> None:
    properties = document["components"]["schemas"][name]["properties"]
    for field, shape in fields.items():
        assert f"#/components/schemas/{shape}'" in str(properties[field])


def test_a_field_without_a_name_is_a_fault(document: Any) -> None:
    contract = Contract(document)
    found = {"status": "ok"}
    contract.check("Alive", found)
    with pytest.raises(AssertionError):
        contract.check("Alive", {**found, "since": 3})


def test_a_map_takes_any_key_and_checks_its_values(document: Any) -> None:
    contract = Contract(document)
    found: dict[str, Any] = {"task": 1, "items": 2, "per_class": {"cat": 1, "dog": 1}}
    contract.check("TaskMemory", found)
    with pytest.raises(AssertionError):
        contract.check("TaskMemory", {**found, "per_class": {"cat": "one"}})
