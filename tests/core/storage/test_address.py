"""Store URLs: the store that each one names, and URLs that are refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from core.settings import Settings
from core.storage import ObjectStorage, open_object_store
from core.storage.address import S3Address
from core.storage.folder import FolderStore
from core.storage.timed import TimedStore


def get_store_root(store: ObjectStorage) -> Path:
    """Return the root of a folder store that `open_object_store` made."""
    assert isinstance(store, TimedStore) and isinstance(store.inner, FolderStore)
    return store.inner.root


def test_the_default_store_is_a_folder_in_the_data_directory(tmp_path: Path) -> None:
    store = open_object_store(Settings(data_dir=tmp_path))
    assert get_store_root(store) == tmp_path / "store"


def test_a_folder_with_a_space_and_a_percent_sign_is_itself(tmp_path: Path) -> None:
    store = open_object_store(Settings(data_dir=tmp_path / "my data 100%"))
    assert get_store_root(store) == tmp_path / "my data 100%" / "store"


def test_an_s3_url_is_read_whole() -> None:
    address = S3Address.parse("s3://minio:9000/perennial/prod/eu?secure=0&region=eu-west-1")
    assert address == S3Address("minio:9000", "perennial", "prod/eu/", False, "eu-west-1")
    assert str(address) == "s3://minio:9000/perennial/prod/eu"


def test_tls_is_on_unless_switched_off() -> None:
    assert S3Address.parse("s3://s3.example.org/perennial").secure


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://host:9000",
        "s3://host:9000/",
        "s3://host:9000/UPPER",
        "s3://host:9000/ab",
        "s3://host:9000/bucket/../x",
        "s3://host:9000/bucket?secure=yes",
        "s3://host:9000/bucket?tls=1",
        "s3://host:9000/bucket#x",
        "s3://host:9000/bucket?region=eu west",
    ],
)
def test_another_s3_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="PERENNIAL_STORE_URL"):
        S3Address.parse(url)


def test_keys_inside_the_url_are_refused_without_repeating_them() -> None:
    with pytest.raises(ValueError, match="must not hold keys") as refused:
        S3Address.parse("s3://key:hunter2@host:9000/bucket")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["file://relative/folder", "/no/scheme", "gs://bucket", "http://host/bucket"]
)
def test_another_store_url_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="PERENNIAL_STORE_URL"):
        open_object_store(Settings(data_dir=tmp_path, store_url=url))


def test_an_s3_store_without_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="PERENNIAL_STORE_SECRET_KEY"):
        open_object_store(Settings(data_dir=tmp_path, store_url="s3://host:9000/bucket"))


def test_the_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from-a-file\n")
    settings = Settings(
        data_dir=tmp_path,
        store_url="s3://host:9000/bucket",
        store_access_key="key",
        store_secret_key_file=tmp_path / "secret",
    )
    assert "from-a-file" not in repr(open_object_store(settings))


def test_a_folder_store_does_not_load_the_s3_client(tmp_path: Path) -> None:
    code = (
        "import sys; from core.settings import Settings; from core.storage import open_object_store;"
        "open_object_store(Settings()); assert 'minio' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True, timeout=60
    )
