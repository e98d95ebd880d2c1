import pytest

from api.app import create_app
from core.settings import Settings


def test_only_the_server_itself_leaves_its_imports_to_no_garbage_collection(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[str] = []
    monkeypatch.setattr("api.app.exclude_existing_objects_from_gc", lambda: frozen.append("once"))
    create_app(Settings(data_dir=tmp_path))
    assert frozen == []
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path))
    create_app()
    assert frozen == ["once"]
