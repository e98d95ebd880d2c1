"""completion: what a shell sources."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from perennial.cli.command import Shell, command
from perennial.cli.output import say


@command("completion", short_help="Completion of commands for your shell.")
@click.argument("shell_name", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: Shell, shell_name: str) -> None:
    """Print what your shell needs to complete commands: `eval "$(perennial completion bash)"`."""
    from perennial.cli.main import cli

    kind = get_completion_class(shell_name)
    assert kind is not None
    text = kind(cli, {}, "perennial", "_PERENNIAL_COMPLETE").source()
    shell.answer({"shell": shell_name, "script": text}, lambda: say(text))
