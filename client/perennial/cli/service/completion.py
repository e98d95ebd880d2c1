"""The command completion: a script for the shell to source."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from perennial.cli.command import CommandContext, cli_command
from perennial.cli.output import print_text


@cli_command("completion", short_help="Print the completion script of your shell.")
@click.argument("shell_name", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]))
def run_completion_command(shell: CommandContext, shell_name: str) -> None:
    """Print the script that completes commands in your shell: `eval "$(perennial completion
    bash)"`.
    """
    from perennial.cli.main import cli

    kind = get_completion_class(shell_name)
    # click has all three shells of the choice, but its types do not say so.
    assert kind is not None
    # click derives the name of this variable from the program's, and the script must use the same.
    text = kind(cli, {}, "perennial", "_PERENNIAL_COMPLETE").source()
    shell.print_result({"shell": shell_name, "script": text}, lambda: print_text(text))
