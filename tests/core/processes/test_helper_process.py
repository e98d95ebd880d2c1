"""Helper processes: what they inherit."""

import pytest

from core.processes import helper_process


def test_a_helper_inherits_what_torch_needs_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("PERENNIAL_DATABASE_URL", "PERENNIAL_STORE_SECRET_KEY", "PERENNIAL_BROKER_URL", "PGPASSWORD",
               "AWS_SECRET_ACCESS_KEY")  # fmt: skip
    needed = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "PERENNIAL_KILL_POINTS")
    for name in (*secrets, *needed):
        monkeypatch.setenv(name, "value")
    given = helper_process.build_helper_environment(MALLOC_TOP_PAD_="1", OMP_NUM_THREADS="3")
    assert not given.keys() & set(secrets)
    assert given.keys() >= {*needed, "PATH", "MALLOC_TOP_PAD_"} and given["OMP_NUM_THREADS"] == "3"
