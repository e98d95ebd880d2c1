"""Functions through which values of the service leave the client; commands use no others."""

import ast
import io
import json
import re
import shlex
import subprocess
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from sample_answers import find_sample_answer

import perennial
from perennial import BadAnswer, types
from perennial.bars import open_job_bar, open_transfer_bar
from perennial.guard import (
    build_api_path,
    drop_unsafe_header_value,
    escape_control_characters_in_json,
    quote_shell_word,
    require_location_below_path,
    require_number_in_response_header,
    require_safe_filename,
    require_whole_number_in_response,
)
from perennial.shapes import convert_from_json
from perennial.text import escape_control_characters, make_text_one_line
from perennial.words import replace_requests_by_commands

CLIENT = Path(perennial.__file__).parent
BASE = "https://perennial.test/prefix"
PRINTS = re.compile(
    r"(.+\.)?print|click\.(echo|secho|confirm|prompt|style)|Console|sys\.(stdout|stderr)(\.buffer)?\.write"
)
PRINTING = {
    ("cli/output.py", "print"), ("cli/output.py", "click.confirm"), ("cli/output.py", "Console"),
    ("cli/output.py", "create_console().print"), ("bars.py", "Console"), ("bars.py", "self._bars.console.print"),
    ("cli/output.py", "click.prompt"),
}  # fmt: skip
"""Calls that may print: the writer, bars with their texts, and the prompt for a key.

The prompt shows no value of a service.
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain “text”, größer 写 🙂", "plain “text”, größer 写 🙂"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2J\x07\r\x00", "\\x1b[2J\\x07\\r\\x00"),
        ("\x9b2J\x7f", "\\x9b2J\\x7f"),
        ("a\u202eb\u2066\u200f\ufeff", "a\\u202eb\\u2066\\u200f\\ufeff"),
        ("\ud800\u2028\U000e0041", "\\ud800\\u2028\\U000e0041"),
        ("\u0645\u06cc\u200c\u062e 👩\u200d🔬", "\u0645\u06cc\u200c\u062e 👩\u200d🔬"),
    ],
)
def test_text_keeps_its_letters_and_loses_its_controls(text: str, shown: str) -> None:
    assert escape_control_characters(text) == shown
    assert make_text_one_line("a\n b\r\x0b c") == "a b c"


@pytest.mark.parametrize(
    "name", ["birds-1.zip", "README.md", "größe 写.txt", "model.onnx.data", "a" * 190]
)
def test_a_plain_name_of_a_file_is_taken(name: str) -> None:
    assert require_safe_filename(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../a", "a/b", "/etc", "a\\b", "C:a", "a\0", "a\x1b", "a\u202e", ".bashrc", "-rf", "a.", "a ",
     "NUL", "com1.txt", "a" * 300, "a|b", "a*", "\ud800", None, 5, ["a"]],
)  # fmt: skip
def test_any_other_name_of_a_file_is_refused(name: object) -> None:
    with pytest.raises(BadAnswer, match="no safe name"):
        require_safe_filename(name)


@pytest.mark.parametrize(
    "word", ["a b", "$(id)", "`id`", "a;b", "a'b\"c", "a&b|c>d", "*", "~", "größe"]
)
def test_a_word_of_a_shell_is_one_word_that_does_nothing(word: str) -> None:
    assert shlex.split(quote_shell_word(word)) == [word]
    done = subprocess.run(
        ["sh", "-c", f"printf %s {quote_shell_word(word)}"], capture_output=True, check=True
    )
    assert done.stdout.decode() == word


@pytest.mark.parametrize("word", ["", "-x", "--url=http://evil.test", "a\nb", "a\x1b", "a\u202e"])
def test_a_word_that_is_an_option_or_has_controls_is_refused(word: str) -> None:
    with pytest.raises(BadAnswer):
        quote_shell_word(word)


def test_json_is_the_same_value_without_controls() -> None:
    value = {"a\u202e": ["\x1b[2J", "\x9b", "\x7f", "\U000e0041", "\ud800", "größe 写 🙂"]}
    text = escape_control_characters_in_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(text) == value
    assert escape_control_characters(text) == text and "größe 写 🙂" in text


@pytest.mark.parametrize("place", ["/v1/uploads/upl_1", f"{BASE}/v1/uploads/upl_1"])
def test_a_place_on_the_service_is_its_path(place: str) -> None:
    assert require_location_below_path(place, BASE, "/v1/uploads/") == "/v1/uploads/upl_1"


@pytest.mark.parametrize("place", [f"{BASE}.evil.test/v1/uploads/a", "https://perennial.test:8443/v1/uploads/a",
                                   "http://perennial.test/prefix/v1/uploads/a"])  # fmt: skip
def test_a_place_on_another_service_is_refused(place: str) -> None:
    with pytest.raises(BadAnswer, match="no path below"):
        require_location_below_path(place, BASE, "/v1/uploads/")


def test_parts_of_a_path_and_numbers_are_nothing_else() -> None:
    assert build_api_path("models", "a/b?c", "versions", 1) == "/v1/models/a%2Fb%3Fc/versions/1"
    assert (
        require_whole_number_in_response(3, "version"),
        require_number_in_response_header("10", "Length"),
        drop_unsafe_header_value('"tag"'),
    ) == (
        3,
        10,
        '"tag"',
    )
    assert (
        drop_unsafe_header_value("\x9b")
        == drop_unsafe_header_value("a b")
        == drop_unsafe_header_value(None)
        == drop_unsafe_header_value("a" * 3000)
        == ""
    )
    for part in ("", ".", "..", "\ud800", "a" * 3000):
        with pytest.raises(BadAnswer):
            build_api_path("models", part)
    for number in ("1", 1.0, True, -1, 1 << 63, None):
        with pytest.raises(BadAnswer):
            require_whole_number_in_response(number, "version")


@pytest.mark.parametrize(
    "said",
    [
        "PUT /v1/models/$(id)/aliases/production can move it.",
        "POST /v1/jobs/$(id)/retry",
        "DELETE /v1/models/`id`",
        'POST /v1/models {"name": "$(id)"}',
        'POST /v1/models {"name": "a", "description": "`id`"}',
        "GET /v1/models/$(id)/rebase now",
    ],
)
def test_a_suggested_command_quotes_what_the_service_names(said: str) -> None:
    for found in replace_requests_by_commands(said).split("perennial ")[1:]:
        words = found.partition("`" if not found.startswith("models create") else "\0")[0]
        assert "$(id)" not in words.replace("'$(id)'", "")


@pytest.mark.parametrize(
    "said",
    [
        'POST /v1/models {"name": "a", "url": "http://evil.test"}',
        'POST /v1/models {"name": "a", "recipe": "@/etc/passwd"}',
        'POST /v1/models {"name": "--url=http://evil.test"}',
        "DELETE /v1/models/--url=http:",
    ],
)
def test_a_service_suggests_no_option_of_its_own(said: str) -> None:
    assert "perennial" not in replace_requests_by_commands(said)


def test_commands_print_through_the_writer_alone() -> None:
    """Authors of messages then need not handle control characters themselves."""
    found = set()
    for file in [*(CLIENT / "cli").glob("*.py"), CLIENT / "bars.py"]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and PRINTS.fullmatch(ast.unparse(node.func)):
                found.add((str(file.relative_to(CLIENT)), ast.unparse(node.func)))
    assert found == PRINTING


def test_a_bar_shows_what_a_service_says_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without escaping, Rich would turn markup into a link and pass escape sequences on."""
    shown = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console", partial(Console, file=shown, force_terminal=True, width=120)
    )
    hostile = "\x1b]8;;http://evil.test\x1b\\[link=http://evil.test]x[/link]\u202e"
    job = {
        **find_sample_answer("GET", "/v1/jobs/job_1"),
        "state": "running",
        "is_terminal": False,
        "outcome": None,
    }
    waiting = {**job, "waiting_for": {"detail": hostile}}
    with open_job_bar(progress=True) as show, open_transfer_bar(hostile, progress=True) as move:
        show(
            convert_from_json(types.Job, {**job, "progress": {**job["progress"], "phase": hostile}})
        )
        show(convert_from_json(types.Job, waiting))
        assert move is not None
        move(1, 2)
    text = shown.getvalue()
    assert "evil.test" in text and "\x1b]" not in text and "\u202e" not in text
