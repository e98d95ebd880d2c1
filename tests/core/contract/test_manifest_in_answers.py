from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from typing_extensions import is_typeddict

from core.contract.document import Document
from core.contract.manifest import Manifest
from core.contract.responses.recipe import OlorOut
from core.contract.responses.versions.manifest import ManifestOut, NetworkDescription

OF_THE_FAMILY: set[Any] = {NetworkDescription, OlorOut}
"""Shapes that are stored without named fields: what is in them depends on the family of networks,
or on the group.
"""


def test_the_manifest_in_answers_has_the_fields_of_the_stored_one() -> None:
    found = list(_find_differences(Manifest, ManifestOut, "manifest"))
    assert found == [
        "manifest: ['anytime']"
    ]  # of a state that is no version, so in none of its answers


def _find_differences(stored: type[Document], shown: Any, name: str) -> Iterator[str]:
    """Yield where the fields of two types differ, at this level and below."""
    if shown in OF_THE_FAMILY:
        return
    hints = get_type_hints(shown)
    if set(hints) != set(stored.model_fields):
        yield f"{name}: {sorted(set(hints) ^ set(stored.model_fields))}"
    for field in sorted(set(hints) & set(stored.model_fields)):
        within = [
            t
            for t in _iterate_annotation_parts(stored.model_fields[field].annotation)
            if _is_document(t)
        ]
        beside = [t for t in _iterate_annotation_parts(hints[field]) if is_typeddict(t)]
        for one, other in zip(within, beside, strict=False):
            yield from _find_differences(one, other, f"{name}.{field}")


def _iterate_annotation_parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _iterate_annotation_parts(part)


def _is_document(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Document)
