"""The catalogue of the learning code, as processes that never load that code read it."""

import json
from pathlib import Path

import pytest

from core.recipe import catalogue
from core.recipe.code_version import compute_learning_code_digest
from core.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a data directory that has a catalogue."""
    found = Settings(data_dir=tmp_path)
    path = found.make_folder("catalogue") / f"{compute_learning_code_digest()}.json"
    path.write_text(json.dumps({"methods": {}}))
    return found


def test_the_catalogue_is_parsed_once_in_a_process(settings: Settings) -> None:
    assert catalogue.load_recipe_catalogue(settings) == {"methods": {}}
    assert catalogue.load_recipe_catalogue(settings) is catalogue.load_recipe_catalogue(settings)


def test_a_catalogue_that_was_deleted_is_written_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue.load_recipe_catalogue(settings)
    (path,) = settings.make_folder("catalogue").iterdir()
    path.unlink()
    written: list[Path] = []

    def write_empty_catalogue(target: Path) -> None:
        written.append(target)
        target.write_text(json.dumps({"methods": {}}))

    monkeypatch.setattr(catalogue, "_generate_catalogue_file_in_subprocess", write_empty_catalogue)
    assert catalogue.load_recipe_catalogue(settings) == {"methods": {}}
    assert written == [path]
