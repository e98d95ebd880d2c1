"""Keys on both databases: the first admin key, and what is kept of a key."""

import stat
import threading

import pytest

from core.db.tables import Key
from core.requests import keys


def test_the_first_start_leaves_an_admin_key_that_only_its_owner_can_read(database, tmp_path):
    secret = keys.ensure_admin_key(database, tmp_path)
    path = tmp_path / "admin-key"
    assert path.read_text().strip() == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.ensure_admin_key(database, tmp_path) is None


def test_an_admin_key_that_expired_is_followed_by_another(database, tmp_path):
    keys.ensure_admin_key(database, tmp_path)
    with database.write() as session:
        session.query(Key).one().expires_at = 1.0
    assert keys.ensure_admin_key(database, tmp_path) is not None


@pytest.mark.both_databases
def test_processes_that_start_together_make_one_admin_key(database, tmp_path):
    made: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: made.append(keys.ensure_admin_key(database, tmp_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4 and sum(secret is not None for secret in made) == 1
    with database.read() as session:
        assert session.query(Key).count() == 1


def test_only_the_right_secret_matches(database):
    secret, prefix = keys.new_secret()
    assert keys.prefix_of(secret) == prefix and keys.prefix_of("Bearer x") is None
    assert keys.matches(secret, keys.digest(secret))
    assert not keys.matches(secret[:-1] + ("a" if secret[-1] != "a" else "b"), keys.digest(secret))
