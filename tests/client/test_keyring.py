"""Keys of profiles go to the system's keyring where the package `keyring` is installed; here one
that lives in memory."""

import sys
from types import ModuleType

import pytest

from perennial import ConfigError, config

URL = "https://perennial.example"


class KeyringError(Exception):
    """As keyring.errors has it."""


class NoKeyringError(KeyringError, RuntimeError):
    """The machine has none."""


class Keyring(ModuleType):
    """The three functions of `keyring` that the client calls, over a dict. `is_there` False: as on
    a server.
    """

    def __init__(self) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.is_there = True

    def get_password(self, service_name: str, username: str) -> str | None:
        self._require()
        return self.kept.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str) -> None:
        self._require()
        self.kept[service_name, username] = password

    def delete_password(self, service_name: str, username: str) -> None:
        self._require()
        del self.kept[service_name, username]

    def _require(self) -> None:
        if not self.is_there:
            raise NoKeyringError("No recommended backend was available.")


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> Keyring:
    """An installed keyring."""
    made, errors = Keyring(), ModuleType("keyring.errors")
    vars(errors).update(KeyringError=KeyringError, NoKeyringError=NoKeyringError)
    monkeypatch.setitem(sys.modules, "keyring", made)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    return made


def test_a_key_is_kept_in_the_keyring_and_not_in_the_file(keyring: Keyring) -> None:
    assert config.store_profile("team", URL, "pk_secret") == "the system's keyring"
    assert keyring.kept == {("perennial", "team"): "pk_secret"}
    assert "pk_secret" not in config.get_config_path().read_text()
    found = config.find_service_connection(profile="team")
    assert (found.url, found.key, found.source) == (URL, "pk_secret", "profile team")


def test_a_profile_that_is_forgotten_leaves_no_key_in_the_keyring(keyring: Keyring) -> None:
    config.store_profile("team", URL, "pk_secret")
    assert config.remove_service_profile("team")
    assert keyring.kept == {} and config.read_profiles() == {}


def test_without_a_keyring_on_the_machine_the_file_has_the_key(keyring: Keyring) -> None:
    keyring.is_there = False
    assert config.store_profile("team", URL, "pk_secret") == str(config.get_config_path())
    assert config.find_service_connection(profile="team").key == "pk_secret"


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("key is lost", "perennial login"),
        ("cannot be read", "cannot be read.*perennial login --profile team"),
        ("is not installed", "keyring is not installed: pip install"),
    ],
)
def test_a_key_that_the_keyring_does_not_give_is_told_with_the_way_back(
    keyring: Keyring, monkeypatch: pytest.MonkeyPatch, trouble: str, told: str
) -> None:
    config.store_profile("team", URL, "pk_secret")
    if trouble == "key is lost":
        keyring.kept.clear()
    elif trouble == "cannot be read":
        keyring.is_there = False
    else:
        monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError, match=told):
        config.find_service_connection(profile="team")
