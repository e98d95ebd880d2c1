"""Names of operations in the OpenAPI document."""

import re
from collections import Counter
from typing import Any

import pytest

from api.description.operations import OPERATIONS
from tools.client_types import build_openapi_document

VERBS = {
    "append", "begin", "cancel", "check", "choose", "compare", "continue", "create", "delete", "describe", "discard",
    "download", "finish", "follow", "get", "head", "list", "pause", "predict", "purge", "redeliver", "relearn",
    "resume", "retry", "revoke", "rollback", "rotate", "set", "stream", "submit", "test", "undo", "update",
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], str]:
    """Names by method and path, as a client reads them."""
    paths: dict[str, dict[str, Any]] = build_openapi_document()["paths"]
    return {
        (method.upper(), path): operation["operationId"]
        for path, operations in paths.items()
        for method, operation in operations.items()
        if isinstance(operation, dict)
    }


def test_every_operation_has_the_name_that_is_kept_for_it(
    found: dict[tuple[str, str], str],
) -> None:
    assert found == OPERATIONS


def test_no_two_operations_have_the_same_name(found: dict[tuple[str, str], str]) -> None:
    assert [name for name, times in Counter(found.values()).items() if times > 1] == []


def test_a_name_is_a_verb_and_a_noun(found: dict[tuple[str, str], str]) -> None:
    wrong = [
        name
        for name in found.values()
        if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name) or name.partition("_")[0] not in VERBS
    ]
    assert wrong == []


def test_no_schema_is_named_after_a_path() -> None:
    assert [
        name for name in build_openapi_document()["components"]["schemas"] if "_v1_" in name
    ] == []
