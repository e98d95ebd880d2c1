"""Faults are tried with the tests that lie nearest to them."""

from pathlib import Path

from tests.mutants import find_nearest_tests


def test_tests_of_the_same_name_come_first_then_those_of_the_folder_and_of_importers(
    tmp_path: Path,
) -> None:
    sources = {
        "core/lineage/gate.py": "",
        "core/tasks.py": "import core.lineage.gate\n",
        "tests/core/lineage/test_standing.py": "",
        "tests/core/lineage/test_gate.py": "",
        "tests/core/test_other.py": "",
        "tests/core/test_tasks.py": "import core.tasks\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert find_nearest_tests(tmp_path, "core/lineage/gate.py") == [
        "tests/core/lineage/test_gate.py",
        "tests/core/lineage/test_standing.py",
        "tests/core/test_tasks.py",
    ]
