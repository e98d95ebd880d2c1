"""Login: prompts, the parts of an address that count, and errors if login is impossible."""

import io
import os
from collections.abc import Callable, Iterator

import pytest
import stub

from perennial import ConfigError, config
from perennial.cli.main import run_command_line

Said = pytest.CaptureFixture[str]
ME = {
    "key": "key_1",
    "owner": "team",
    "scope": "write",
    "expires_at": None,
    "limits": {},
    "service": {"version": "1", "auth": "on"},
}
PAGE = b"<!doctype html><html><head><title>Sign in</title></head></html>"


class Terminal(io.StringIO):
    """Standard input of a user who types these lines."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Simulate a user who types lines; hidden input is read like the rest."""

    def type_lines(text: str) -> None:
        terminal = Terminal(text)
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr("click.termui.hidden_prompt_func", input)

    return type_lines


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the pages that a graphical browser was asked to open; there is one."""
    found: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda page: not found.append(page))
    monkeypatch.setattr("perennial.cli.service.login.has_graphical_browser", lambda: True)
    return found


@pytest.fixture
def service() -> Iterator[stub.Stub]:
    with stub.run_stub(lambda _: stub.Said(body=ME)) as found:
        yield found


def get_last_sent_key(service: stub.Stub) -> str:
    """Return the key of the last request to the service."""
    return service.asked[-1].headers["authorization"]


def test_on_a_terminal_address_and_key_are_asked_for_and_the_page_of_keys_is_opened(
    capsys: Said, service: stub.Stub, type_in: Callable[[str], None], opened: list[str]
) -> None:
    type_in(f"{service.url}/ui/models/birds?sort=name#top\npk_typed\n")
    assert run_command_line(["login"]) == 0
    out, told = capsys.readouterr()
    assert f"Logged in to {service.url} as team (write)" in out
    assert opened == [f"{service.url}/ui/admin/keys"]
    assert f"Administrators make keys at {service.url}/ui/admin/keys" in told
    assert get_last_sent_key(service) == "Bearer pk_typed"
    assert config.find_service_connection().url == service.url


def test_an_empty_answer_takes_the_address_that_was_kept(
    service: stub.Stub, type_in: Callable[[str], None], opened: list[str]
) -> None:
    config.store_profile("default", service.url, "pk_old")
    type_in("\npk_new\n")
    assert run_command_line(["login", "--no-browser"]) == 0
    assert (config.find_service_connection().key, opened) == ("pk_new", [])


@pytest.mark.parametrize(
    "text",
    [
        "/",
        "/v1",
        "/v1/models",
        "/ui",
        "/ui/",
        "/ui/models/birds?sort=name",
        "/ui/models/birds#versions",
        "/docs",
    ],
)
@pytest.mark.parametrize("base", ["https://perennial.example", "http://127.0.0.1:8000/below/it"])
def test_the_address_of_a_page_is_that_of_its_service(base: str, text: str) -> None:
    assert config.extract_service_base_url(base + text) == base


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/?x=1",
        "https://a.example:port/ui",
        "https://me@a.example/ui",
        "https://[/",
    ],
)
def test_an_address_that_is_none_is_refused_with_or_without_a_page(url: str) -> None:
    with pytest.raises(ConfigError, match="no address of a service"):
        config.extract_service_base_url(url)


def test_login_takes_the_address_as_an_argument(service: stub.Stub) -> None:
    assert run_command_line(["login", f"{service.url}/ui/models/birds", "--key", "pk_x"]) == 0
    assert config.read_profiles()["default"]["url"] == service.url


def test_login_with_two_addresses_is_wrong_usage(capsys: Said, service: stub.Stub) -> None:
    assert (
        run_command_line(["login", service.url, "--url", "https://other.example", "--key", "pk_x"])
        == 2
    )
    assert "Name one." in capsys.readouterr().err
    assert config.read_profiles() == {}


def test_a_wrong_key_is_told_without_sending_in_a_circle(capsys: Said) -> None:
    detail = "Unknown key: send `Authorization: Bearer pk_…`."
    with stub.run_stub(lambda _: stub.build_problem(401, "not-authenticated", detail)) as service:
        assert run_command_line(["login", "--url", service.url, "--key", "pk_wrong"]) == 4
        assert capsys.readouterr().err == f"{service.url} does not know this key.\n"
    assert config.read_profiles() == {}


@pytest.mark.parametrize(
    ("text", "said"), [("", "No key to"), ("\n", "No key to"), ("ключ\n", "no key of Perennial")]
)
def test_no_key_is_told_without_sending_in_a_circle(
    capsys: Said, service: stub.Stub, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv("PERENNIAL_API_KEY", "pk_other")  # which is not the one to keep
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run_command_line(["login", "--url", service.url]) in (2, 4)
    told = capsys.readouterr().err
    assert said in told and "perennial login" not in told
    assert service.asked == [] and config.read_profiles() == {}


def test_a_profile_that_does_not_exist_yet_is_made(
    service: stub.Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_PROFILE", "new")
    assert run_command_line(["login", "--url", service.url, "--key", "pk_x"]) == 0
    assert list(config.read_profiles()) == ["new"]


@pytest.mark.parametrize("status", [200, 403, 404, 502])
@pytest.mark.parametrize(
    "arguments", [["login", "--key", "pk_x"], ["models", "list"]], ids=["login", "another command"]
)
def test_a_web_page_in_place_of_an_answer_is_never_printed(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, status: int, arguments: list[str]
) -> None:
    monkeypatch.setattr("perennial._sync.http.sleep_seconds", lambda _: None)
    monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
    with stub.run_stub(lambda _: stub.Said(status, PAGE, {"Content-Type": "text/html"})) as service:
        assert run_command_line([*arguments, "--url", service.url]) != 0
    out, told = capsys.readouterr()
    assert told and "<" not in out + told and "Sign in" not in out + told
    assert "Perennial service" in told
    assert config.read_profiles() == {}


def test_the_end_of_input_at_the_question_for_the_address_is_told(
    capsys: Said, type_in: Callable[[str], None]
) -> None:
    type_in("")
    assert run_command_line(["login", "--no-browser"]) == 2
    assert "No address came. Say it with --url." in capsys.readouterr().err


PROMPTS = ("models rm birds", "tasks delete-data birds 1", "models rebase birds --finish")


@pytest.mark.parametrize("command", PROMPTS)
@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ("", 2, "nobody answered. Say --yes"),
        ("n\n", 1, "Nothing was done."),
        ("\n", 1, "Nothing was done."),
    ],
    ids=["end of input", "no", "nothing"],
)
def test_a_question_without_a_yes_changes_nothing(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, command: str, answer: str, status: int, said: str
) -> None:
    import hostile_service
    from sample_answers import answer_as_service

    with hostile_service.run_hostile_service() as service:
        service.answer = answer_as_service
        monkeypatch.setenv("PERENNIAL_URL", service.url)
        monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert run_command_line(command.split()) == status
        assert said in capsys.readouterr().err
        assert {one.method for one in service.requests} <= {"GET"}


def test_a_browser_of_text_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    from perennial.cli.service.login import has_graphical_browser

    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not has_graphical_browser()
    assert os.environ.get("DISPLAY") is None
