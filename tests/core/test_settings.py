"""Passwords from files, as containers give them."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from core.settings import Settings

PASSWORD = "a/b@c:d ü%"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return path


def test_a_password_of_a_file_stands_in_the_url_of_the_database_and_of_the_broker(
    file: Path,
) -> None:
    settings = Settings(
        database_url="postgresql+psycopg://perennial@db:5432/perennial",
        database_password_file=file,
        broker_url="rediss://redis:6379/0",
        broker_password_file=file,
    )
    database, broker = (
        make_url(settings.resolved_database_url),
        make_url(settings.broker_url_with_password),
    )
    assert (database.username, database.password, database.host) == ("perennial", PASSWORD, "db")
    assert (broker.username or "", broker.password, broker.port) == ("", PASSWORD, 6379)
    assert not settings.is_brokerless


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql+psycopg://a:Canary1@db/x", "p"),
        ("postgresql+psycopg://a@db/x", "\n"),
        ("sqlite:////tmp/x", "p"),
    ],
)
def test_two_passwords_or_none_are_refused_and_not_repeated(
    tmp_path: Path, url: str, text: str
) -> None:
    file = tmp_path / "password"
    file.write_text(text)
    settings = Settings(database_url=url, database_password_file=file)
    with pytest.raises(ValueError, match="PERENNIAL_DATABASE_PASSWORD_FILE") as refused:
        settings.resolved_database_url  # noqa: B018
    assert "Canary1" not in str(refused.value)


def test_without_a_file_the_url_is_as_it_was_given() -> None:
    assert (
        Settings(broker_url="redis://:x@redis/0").broker_url_with_password == "redis://:x@redis/0"
    )
    assert Settings().broker_url_with_password == ""
