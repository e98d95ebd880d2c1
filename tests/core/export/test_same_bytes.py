"""Downloads of older versions keep their bytes, for each architecture and each way to answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.contract.manifest import Manifest
from core.export.format import VersionPartFileToExport, VersionToExport
from core.export.formats.safetensors_zip import SafetensorsZipFormat
from core.learning.catalogue import build_recipe_catalogue
from core.learning.networks.families import FAMILIES
from tests.core.export import past_versions
from tests.core.export.past_versions import Parts


@pytest.mark.slow
def test_every_download_has_the_digest_that_older_code_gave_it(tmp_path: Path) -> None:
    known = build_recipe_catalogue()

    def write_safetensors_zip(target: Path, manifest: dict[str, Any], parts: Parts) -> None:
        SafetensorsZipFormat().write_download(
            target,
            VersionToExport(
                Manifest.from_json(manifest),
                [VersionPartFileToExport(*part) for part in parts],
                known,
            ),
        )

    recorded = json.loads(past_versions.RECORDED.read_text())
    found = past_versions.digest_downloads(tmp_path, write_safetensors_zip)
    assert {name: digest for name, digest in found.items() if recorded.get(name) != digest} == {}
    assert found.keys() == recorded.keys()


def test_every_architecture_and_every_way_to_answer_has_such_a_version() -> None:
    known = build_recipe_catalogue()
    past = past_versions.ARCHITECTURES.keys() | past_versions.LATER_ARCHITECTURES
    assert past == known["architectures"].keys()
    assert {family for family, _ in past_versions.METHODS.values()} >= FAMILIES.keys()
    answering = {name for name, method in known["methods"].items() if method["inference"]}
    assert answering <= past_versions.METHODS.keys() | past_versions.LATER
