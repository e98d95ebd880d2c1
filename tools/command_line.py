"""Generator of `docs/reference/command-line.md`: every command of `perennial`, from its code.

    python -m tools.command_line

A test fails if the document differs from the generated one.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from perennial.cli.exits import MEANINGS
from perennial.cli.main import COMMANDS, Perennial, cli
from tools import commands

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "command-line.md"
SERVICE = (
    "serve",
    "worker",
    "migrate",
    "check",
    "sweep",
    "backup",
    "restore",
    "doctor",
    "compare-methods",
)
# Options of every command stand once, in the head of the document.
COMMON = {"is_json", "jq", "profile", "url", "is_csv", "is_quiet", "has_headers"}
HEAD = """# The command line

Written by `python -m tools.command_line` from the code. `perennial COMMAND --help` says the same.

- Every command that asks a service takes `--json` (one document; a line for each event, image or change), \
`--profile NAME`
  (of `perennial login`) and `--url URL`.
- `--jq EXPRESSION` is `--json` through the program jq, where it is installed; texts come without quotes.
- Every command that lists something takes `--columns A,B` (which, in which order), `--csv` (with headings), `-q` or \
`--quiet`
  (the first column alone, a value a line) and `--headers` or `--no-headers`. Headings may be typed
  with a hyphen for a \
space.
- Where a name is as good as an id (`keys revoke`, `webhooks …`, `uploads rm`), several with this name are told with \
their ids.
- A place to write to (`-o`) that ends with `/` is a folder, and is made.
- A question that nobody can answer, because standard input has ended, ends the command with 2; `--yes` is the answer.
- Results go to standard output: tables on a terminal, tab-separated lines without headings elsewhere. Progress, \
warnings and
  errors go to standard error. `NO_COLOR` is kept to.
- Address and key: an option, then `PERENNIAL_URL` and `PERENNIAL_API_KEY`, then the profile (`--profile`,
  `PERENNIAL_PROFILE`), then `perennial-data/admin-key` in the working directory for a service on the same machine.

| exit status | means |
| --- | --- |
"""


def main() -> None:
    """Write the document."""
    TARGET.write_text(render_document())


def render_document() -> str:
    """Return the whole document."""
    root = click.Context(cli, info_name="perennial")
    assert isinstance(cli, Perennial)
    client_commands = [(name, cli.get_command(root, name)) for name in COMMANDS]
    service = [(name, getattr(commands, name.replace("-", "_"))) for name in SERVICE]
    statuses = [f"| {status.value} | {text} |" for status, text in MEANINGS.items()]
    document_lines = [
        HEAD.rstrip(),
        *statuses,
        "",
        "## Commands of the client",
        "",
        *_render_sections(client_commands),
    ]
    document_lines += ["## Commands of the service", ""]
    document_lines += [
        "They come with the package of the service, and read its settings.",
        "",
        *_render_sections(service),
    ]
    return "\n".join(document_lines).rstrip() + "\n"


def _render_sections(each: list[tuple[str, click.Command | None]]) -> Iterator[str]:
    for name, command in each:
        if isinstance(command, click.Group):
            # Groups themselves do nothing, so only their commands have a section.
            for inner, of in command.commands.items():
                yield from _render_section(f"{name} {inner}", of)
        elif command is not None:
            yield from _render_section(name, command)


def _render_section(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"perennial {name}")
    listed_parameters = [one for one in command.params if one.name not in COMMON]
    usage = [piece for one in command.params for piece in one.get_usage_pieces(context) if piece]
    options = (
        " [OPTIONS]" if any(isinstance(one, click.Option) for one in listed_parameters) else ""
    )
    yield f"### perennial {name}"
    yield ""
    yield f"`perennial {name}{options}{''.join(f' {piece}' for piece in usage)}`"
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""
    records = [
        one.get_help_record(context) for one in listed_parameters if isinstance(one, click.Option)
    ]
    rows = [record for record in records if record is not None]
    if rows:
        yield "| option | |"
        yield "| --- | --- |"
        yield from (f"| `{_escape_cell(option)}` | {_escape_cell(text)} |" for option, text in rows)
        yield ""


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
