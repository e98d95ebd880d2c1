"""Sources of the address and the key, and how they are stored."""

import stat
from pathlib import Path

import pytest
import stub

from perennial import ConfigError, NoKey, Perennial, config
from perennial.cli.main import run_command_line


def test_an_argument_wins_over_a_profile_over_the_environment_over_the_stored_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config.store_profile("default", "https://stored.example", "stored")
    config.store_profile("team", "https://team.example", "pk_team")
    monkeypatch.setenv("PERENNIAL_URL", "https://env.example")
    monkeypatch.setenv("PERENNIAL_API_KEY", "env")
    found = config.find_service_connection("https://said.example/v1/", "said")
    assert (found.url, found.key, found.source) == ("https://said.example", "said", "argument")
    found = config.find_service_connection(profile="team")  # as a whole
    assert (found.url, found.key, found.source) == (
        "https://team.example",
        "pk_team",
        "profile team",
    )
    found = config.find_service_connection()
    assert (found.url, found.key) == ("https://env.example", "env")


def test_a_stored_key_goes_to_its_own_service_alone() -> None:
    config.store_profile("default", "https://stored.example", "stored")
    assert config.find_service_connection("https://elsewhere.example").key is None


def test_the_key_of_a_service_beside_is_found_for_local_addresses_alone(tmp_path: Path) -> None:
    (tmp_path / "perennial-data").mkdir()
    (tmp_path / "perennial-data" / "admin-key").write_text("pk_admin\n")
    assert config.find_service_connection().key == "pk_admin"
    assert config.find_service_connection("https://perennial.example").key is None


def test_the_file_is_its_owners_alone(home: Path) -> None:
    config.store_profile("default", "https://stored.example", 'with "quotes" and \\')
    file = config.get_config_path()
    assert home in file.parents
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert config.find_service_connection().key == 'with "quotes" and \\'
    assert config.remove_service_profile("default") and config.read_profiles() == {}


def test_a_missing_profile_names_the_command_that_makes_it() -> None:
    with pytest.raises(ConfigError, match="perennial login --profile team"):
        config.find_service_connection(profile="team")


@pytest.mark.parametrize(
    "url", ["perennial.example", "ftp://perennial.example", "https://me:pw@perennial.example"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no address of a service"):
        config.find_service_connection(url)


def test_no_key_is_an_error_that_says_how_to_get_one() -> None:
    with (
        stub.run_stub(lambda _: stub.Said()) as service,
        Perennial(base_url=service.url) as client,
        pytest.raises(NoKey, match="perennial login"),
    ):
        client.models.retrieve("birds")
    assert [one.path for one in service.asked] == ["/healthz"]
    assert "authorization" not in service.asked[0].headers


@pytest.mark.parametrize(
    "command", ["status", "models create birds", "submit birds photos", "predict birds a.png"]
)
def test_without_a_key_a_service_that_does_not_answer_is_told_first(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stub.run_stub(lambda _: stub.Said()) as gone:
        monkeypatch.setenv("PERENNIAL_URL", gone.url)
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "a.png").write_bytes(b"no image")
    (tmp_path / "a.png").touch()
    assert run_command_line(command.split()) == 5
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [shown.err.strip()]
    assert f"The service at {gone.url} does not answer" in shown.err and "key" not in shown.err


def test_a_key_is_not_in_what_is_printed() -> None:
    assert "pk_secret" not in repr(
        config.find_service_connection("https://perennial.example", "pk_secret")
    )


@pytest.mark.parametrize("key", ["ключ", "pk_a\nb"])
def test_a_key_that_can_be_none_is_told_before_anything_is_sent(key: str) -> None:
    with pytest.raises(NoKey, match="one begins with pk_"):
        Perennial(key)
