"""Every command of `perennial` in a document exists, and has the options that are written after it.

Blocks of commands also run (`test_commands`). These tests cover the commands in sentences, and
those of blocks that do not run.
"""

import re

import click
import pytest
from documents import ROOT, list_documents

from perennial.cli.main import COMMANDS, cli
from tests.own_commands import NAMED
from tools import commands

HISTORY = "CHANGELOG.md"
"""Names commands of earlier releases."""
GENERATED = "docs/reference/command-line.md"
"""Written from the commands; its usage lines have placeholders such as `[OPTIONS]`."""
DOCUMENTS = [name for name in list_documents() if name not in (HISTORY, GENERATED)]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`(?!`)([^`]+)`")
_CALL = re.compile(
    r"(?:^|(?<!from)[\s(/])perennial +(?=(\S.*))", re.MULTILINE
)  # calls within calls too
_END = re.compile(r"\s(?:\|\|?|&&|#|>|;)|[);]\s|\)$|$", re.MULTILINE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def list_calls(document: str) -> list[str]:
    """Return what follows `perennial` in code of a document, up to the end of the command."""
    text = (ROOT / document).read_text()
    blocks = _BLOCK.findall(text)
    code = [body.replace("\\\n", " ") for name, body in blocks if name == "sh"]
    for name, body in blocks:
        if name == "text":  # output and crontabs: only lines that are commands
            code += re.findall(r"^(?:.*/| *)perennial +[a-z].*$", body, re.MULTILINE)
    spans = [" ".join(span.split()) for span in _SPAN.findall(_BLOCK.sub("", text))]
    code += [span for span in spans if re.match(r"(\S*/)?perennial ", span)]
    found = [call for part in code for call in _CALL.findall(_QUOTED.sub("QUOTED", part))]
    return [call[: _END.search(call).start()].strip() for call in found]  # type: ignore[union-attr]


def find_unknown_part(call: str) -> str | None:
    """Return the part of a call that does not exist; None if all of it does."""
    words = [word.rstrip(",.:") for word in call.split()]
    command: click.Command | None = cli
    while isinstance(command, click.Group) or command is cli:
        if not words or not re.fullmatch(r"[a-z][a-z-]*", words[0]):
            break  # a group alone, a placeholder such as COMMAND, or an option of `perennial`
        name = words.pop(0)
        command = get_subcommand(command, name)
        if command is None:
            return name
    context = click.Context(command)  # type: ignore[arg-type]
    options = {
        spelling
        for parameter in command.get_params(context)  # type: ignore[union-attr]
        if isinstance(parameter, click.Option)
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }
    named = [re.split(r"[=\[]", word)[0] for word in words if re.match(r"--?[a-z]", word)]
    return next((word for word in named if word not in options | {"-h"}), None)


def get_subcommand(command: click.Command | None, name: str) -> click.Command | None:
    """Return a command of `perennial` or of a group, also one that the service adds."""
    if command is cli and name in NAMED and name not in COMMANDS:
        found = getattr(commands, name.replace("-", "_"))
        assert isinstance(found, click.Command)
        return found
    assert isinstance(command, click.Group)
    return command.get_command(click.Context(command), name)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_and_option_that_a_document_names_exists(document: str) -> None:
    problems = {call: find_unknown_part(call) for call in list_calls(document)}
    assert {call: why for call, why in problems.items() if why is not None} == {}


def test_commands_are_found_in_sentences_blocks_and_crontabs() -> None:
    howto = "docs/howto"
    assert "issues MODEL TASK --kind conflict" in list_calls(f"{howto}/correct-a-label.md")
    assert "watch-folder inbox nightly --once" in list_calls(f"{howto}/retrain-on-a-schedule.md")
    assert "login --profile nightly --url https://perennial.example.org" in list_calls(
        f"{howto}/retrain-on-a-schedule.md"
    )
    assert "tasks show birds 2" in list_calls("docs/howto/handle-a-bad-batch.md"), "inside $( )"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("check --images", "--images"),
        ("tasks undo birds 2", "undo"),
        ("learn birds", "learn"),
        ("submit birds week.zip --check", None),
        ("check", None),
        ("COMMAND --help", None),
    ],
)
def test_a_name_that_does_not_exist_is_found(call: str, why: str | None) -> None:
    assert find_unknown_part(call) == why
