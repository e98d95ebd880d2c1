"""The files that model cards are put together from."""

import ast
from pathlib import Path
from typing import Any

import pytest

from core.contract.architecture import ImageSettings
from core.contract.manifest import Manifest
from core.export import card_code
from core.learning.networks.families import FAMILIES
from tests.learning_catalogue import copy_catalogue

LOADING = Path(card_code.__file__).parent / "loading"
CATALOGUE = copy_catalogue()


def build_manifest(manifest: dict[str, Any]) -> Manifest:
    """Build a manifest with the fields that every manifest has."""
    return Manifest.from_json(
        {"scenario": "class", "image": {"size": 8, "channels": 3}, **manifest}
    )


@pytest.mark.parametrize("name", sorted(CATALOGUE["architectures"]))
@pytest.mark.parametrize("family", ["plain", *FAMILIES])
def test_every_architecture_and_network_family_has_its_code(name: str, family: str) -> None:
    manifest = {"architecture": {"name": name}, "network": {"family": family}}
    code = card_code.build_loading_code(build_manifest(manifest), CATALOGUE)
    assert code is not None
    ast.parse(code + card_code.build_image_reading_code(ImageSettings(size=8, channels=3)))


@pytest.mark.parametrize(
    "name", [n for n, entry in CATALOGUE["methods"].items() if entry["inference"]]
)
def test_a_method_answers_by_its_own_code_where_the_version_has_what_that_reads(name: str) -> None:
    entry = CATALOGUE["methods"][name]
    manifest = {"architecture": {"name": "mlp"}, "method": {"name": name}, "parts": []}
    plain = card_code.build_loading_code(build_manifest(manifest), CATALOGUE)
    assert plain is not None and plain.endswith(
        "network = Network(tensors)\nnetwork.load_state_dict(tensors)\nnetwork.eval()\n"
    )
    manifest["parts"] = [
        {"name": kind, "type": kind, "sha256": "0", "bytes": 1} for kind in entry["predicts_with"]
    ]
    own = card_code.build_loading_code(build_manifest(manifest), CATALOGUE)
    assert own is not None and "network = Network(tensors)" not in own


@pytest.mark.parametrize(
    "manifest",
    [
        {"architecture": {"name": "of a later service"}},
        {"architecture": {"name": "mlp"}, "network": {"family": "of a later service"}},
    ],
    ids=["architecture", "network"],
)
def test_what_no_file_describes_has_no_code(manifest: dict[str, object]) -> None:
    assert card_code.build_loading_code(build_manifest(manifest), CATALOGUE) is None


@pytest.mark.parametrize("path", sorted(LOADING.rglob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_file_gives_the_card_nothing_of_this_project(path: Path) -> None:
    before, begins, code = path.read_text().partition("# The card begins here.\n")
    assert begins and ast.get_docstring(ast.parse(before))
    assert "core." not in code and "perennial" not in code.lower()
