"""The command `perennial`: its subcommands, loaded on first use, and its exit status.

See `perennial.cli.exits` for the exit statuses.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import click

from perennial import __version__
from perennial.cli.exits import (
    ExitStatus,
    FollowInterrupted,
    choose_exit_status_for_error,
    describe_exit_statuses,
)
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.output import print_notice
from perennial.errors import JobEnded, PerennialError
from perennial.words import replace_requests_by_commands, replace_requests_by_task_commands

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions raised when a response lacks required parts."""
PLUGINS = "perennial.commands"
"""Entry point group through which the service's own package adds serve, worker, migrate …"""
COMMANDS = {
    "login": ("service.login", "Store the URL of a service and a key."),
    "logout": ("service.session", "Forget them."),
    "whoami": ("service.session", "Show the owner and permissions of your key."),
    "status": ("service.session", "Show if the service responds, and what needs a decision."),
    "models": ("models.models", "Make, list, show, change and delete models."),
    "adopt": ("models.adopt", "Bring a classifier from elsewhere as version 1 of a new model."),
    "submit": ("batches.submit", "Send a batch of labelled images and follow its job."),
    "watch-folder": (
        "batches.watch_folder",
        "Send the batches that appear in a folder, one after another.",
    ),
    "uploads": (
        "batches.uploads",
        "Large batches that were begun and not submitted: list and remove them.",
    ),
    "tasks": ("batches.tasks", "Batches of a model: list, show, and settle what waits."),
    "issues": ("batches.issues", "List images of a batch to check, such as suspect labels."),
    "images": (
        "batches.images",
        "Images of a batch: list them, correct their labels, and remove them.",
    ),
    "jobs": ("batches.jobs", "List, follow, pause, cancel and retry jobs."),
    "versions": ("models.versions", "List, show and compare versions."),
    "classes": ("models.classes", "List, rename, merge and drop classes."),
    "edits": ("models.edits", "List, show and undo changes of labels, images and classes."),
    "compare": ("models.compare", "Compare two versions on the same held-out images."),
    "download": ("models.download", "Download a version as a verified zip."),
    "predict": ("models.predict", "Predict the labels of images."),
    "promote": ("models.aliases", "Move production to a version."),
    "rollback": ("models.aliases", "Move production back."),
    "follow": ("models.aliases", "Let production follow the lineage again."),
    "metrics": ("models.metrics", "Show the accuracy of each version on each task."),
    "evaluate": ("models.evaluate", "Measure a version on labelled images of your own."),
    "methods": ("service.catalogue", "List continual-learning methods."),
    "bases": ("service.catalogue", "Upload and show weights that models start from."),
    "webhooks": ("service.webhooks", "Be told by a signed POST what happens to your models."),
    "keys": ("service.accounts", "Make, list and revoke access keys."),
    "audit": ("service.accounts", "Who changed what."),
    "usage": ("service.accounts", "Bytes and jobs, by model or owner."),
    "open": ("service.session", "Open the service's page in a browser."),
    "completion": ("service.completion", "Print the completion script of your shell."),
}


class LazyCommandGroup(SuggestingCommandGroup):
    """A click group that imports a command's module on first use, so that `--help` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        # A plugin cannot take the place of a command of the client.
        return [*COMMANDS, *sorted(set(_find_command_plugins()) - set(COMMANDS))]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            module = import_module(f"perennial.cli.{COMMANDS[name][0]}")
            # By the name of the command, since its function is named after what it does.
            commands = (one for one in vars(module).values() if isinstance(one, click.Command))
            return next((one for one in commands if one.name == name), None)
        plugin = _find_command_plugins().get(name)
        return None if plugin is None else plugin.load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and descriptions of commands to `--help` without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
        added = sorted(set(_find_command_plugins()) - set(COMMANDS))
        if added:
            with formatter.section("Commands of the service on this machine"):
                rows = [(name, self.get_command(ctx, name)) for name in added]
                formatter.write_dl(
                    [
                        (name, command.get_short_help_str() if command else "")
                        for name, command in rows
                    ]
                )


def _find_command_plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=PLUGINS)}


@click.command(
    cls=LazyCommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help=f"Perennial keeps deployed image classifiers current.\n\nExit status: "
    f"{describe_exit_statuses()}.",
)
@click.version_option(__version__, prog_name="perennial")
def cli() -> None:
    """Root command `perennial`, which contains all other commands."""


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; errors are printed on standard error."""
    try:
        # In standalone mode, click would print errors and exit with statuses of its own.
        result: Any = cli.main(arguments, prog_name="perennial", standalone_mode=False)
        return result if isinstance(result, int) else ExitStatus.DONE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as stopped:
        # click raises Abort from KeyboardInterrupt, to which an upload adds how to resume it.
        _print_error_notes(stopped.__cause__ or stopped)
        return ExitStatus.INTERRUPTED
    except FollowInterrupted as detached:
        print_notice(str(detached))
        return ExitStatus.INTERRUPTED
    # Before OSError, because a WaitTimeout is both.
    except PerennialError as error:
        print_notice(
            "\n".join(
                _replace_requests_by_commands(error, message_line)
                for message_line in str(error).split("\n")
            )
        )
        _print_error_notes(error)
        return choose_exit_status_for_error(error)
    except OSError as error:
        print_notice(f"{error.filename or 'A file'}: {error.strerror or error}")
        return ExitStatus.ERROR
    except UNREADABLE as error:
        if sys.flags.dev_mode:
            raise
        print_notice(
            f"The service's answer is none that this client ({__version__}) understands "
            f"({type(error).__name__}). Is "
            "the address that of a Perennial service, and are both of the same age? `python -X dev "
            "-m perennial` shows where it was read."
        )
        return ExitStatus.ERROR


def _replace_requests_by_commands(error: PerennialError, line: str) -> str:
    """Replace the API requests in an error message by commands; commands stay unchanged."""
    if line.lstrip().startswith("perennial "):
        return line
    job = error.job if isinstance(error, JobEnded) else None
    text = (
        replace_requests_by_commands(line)
        if job is None
        else replace_requests_by_task_commands(line, job.model, job.task)
    )
    return line[: len(line) - len(line.lstrip())] + text


def _print_error_notes(error: BaseException) -> None:
    """Print the notes attached to an error, which say what a person may do."""
    for note in getattr(error, "__notes__", ()):
        print_notice(note)


def main() -> NoReturn:
    """Entry point of the script `perennial`."""
    sys.exit(run_command_line())
