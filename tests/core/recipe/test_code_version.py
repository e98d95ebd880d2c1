"""The version of the learning code."""

import subprocess
import sys
from pathlib import Path

from core.recipe.catalogue import load_recipe_catalogue
from core.recipe.code_version import compute_learning_code_digest, digest_python_files
from core.settings import Settings
from tools.service import link_shared_test_catalogue

LEARN = Path(__file__).parents[3] / "core" / "learning"


def test_it_is_the_digest_of_all_learning_code() -> None:
    assert compute_learning_code_digest() == digest_python_files(LEARN)


def test_it_changes_with_a_file_with_its_name_and_with_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1")
    found = {digest_python_files(tmp_path)}
    file.write_text("x = 2")
    found.add(digest_python_files(tmp_path))
    file = file.rename(tmp_path / "b.py")
    found.add(digest_python_files(tmp_path))
    (tmp_path / "inner").mkdir()
    file.rename(tmp_path / "inner" / "b.py")
    found.add(digest_python_files(tmp_path))
    assert len(found) == 4


def test_the_catalogues_file_has_its_name(tmp_path: Path) -> None:
    link_shared_test_catalogue(tmp_path)
    settings = Settings(data_dir=tmp_path)
    load_recipe_catalogue(settings)
    assert (settings.make_folder("catalogue") / f"{compute_learning_code_digest()}.json").exists()


def test_it_does_not_load_that_code() -> None:
    code = (
        "import sys, core.recipe.code_version as c; c.compute_learning_code_digest(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=LEARN.parents[1]).returncode == 0
