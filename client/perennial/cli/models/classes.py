"""classes: list, rename, merge, drop, aliases."""

from __future__ import annotations

from typing import Any

import click

from perennial.cli.command import CommandContext, cli_command
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.models.edits import (
    add_edit_sending_options,
    collect_edit_sending_options,
    confirm_and_send_edit,
)
from perennial.cli.output import print_text
from perennial.text import make_text_one_line


@click.group("classes", cls=SuggestingCommandGroup)
def class_commands() -> None:
    """List, rename, merge and drop the classes of a model."""


@cli_command("list", class_commands, columns=("class", "images", "tasks"))
@click.argument("model")
def run_list_classes_command(shell: CommandContext, model: str) -> None:
    """List the classes of the newest version with their images, and the tasks that have them."""
    client = shell.create_client()
    details = client.models.retrieve(model)
    head = client.versions.retrieve(model, details.line_head or 0)
    names = details.classes or head.manifest.classes
    if names is None:  # a head for each task
        names = [name for one in head.manifest.heads or [] for name in one.classes]
    tasks = [one for one in client.tasks.list(model) if one.number in head.tasks]
    owners = {name: [one for one in tasks if name in one.classes] for name in dict.fromkeys(names)}
    rows = [
        (name, sum(one.classes[name] for one in each), ", ".join(str(one.number) for one in each))
        for name, each in owners.items()
    ]
    items = [
        {"class": name, "images": images, "tasks": [one.number for one in owners[name]]}
        for name, images, _ in rows
    ]
    shell.print_rows(items, rows, "Nothing is learned yet.")


@cli_command("rename", class_commands)
@click.argument("model")
@click.argument("name")
@click.argument("new_name")
@add_edit_sending_options
def run_rename_class_command(
    shell: CommandContext, model: str, name: str, new_name: str, **values: Any
) -> None:
    """Give class NAME the name NEW_NAME. Later batches may use both names."""
    operation = {"rename": {"from": name, "to": new_name}}
    confirm_and_send_edit(shell, model, [operation], collect_edit_sending_options(values))


@cli_command("merge", class_commands)
@click.argument("model")
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--into", required=True, metavar="NAME", help="The class that they become, known or new."
)
@add_edit_sending_options
def run_merge_classes_command(
    shell: CommandContext, model: str, names: tuple[str, ...], into: str, **values: Any
) -> None:
    """Make one class of the classes NAMES. Later batches may use the former names."""
    operation = {"merge": {"from": [*names], "into": into}}
    confirm_and_send_edit(shell, model, [operation], collect_edit_sending_options(values))


@cli_command("drop", class_commands)
@click.argument("model")
@click.argument("names", nargs=-1, required=True)
@add_edit_sending_options
def run_drop_classes_command(
    shell: CommandContext, model: str, names: tuple[str, ...], **values: Any
) -> None:
    """Take the classes NAMES out of the model, with their images. This cannot be undone."""
    operations = [{"drop": {"class": name}} for name in names]
    confirm_and_send_edit(shell, model, operations, collect_edit_sending_options(values))


@cli_command("aliases", class_commands, columns=("former name", "class", "edit"))
@click.argument("model")
@click.option("--remove", metavar="NAME", help="Remove this former name.")
def run_list_or_remove_class_aliases_command(
    shell: CommandContext, model: str, remove: str | None
) -> None:
    """List former class names, which batches may still use, or --remove one."""
    client = shell.create_client()
    if remove is not None:
        client.class_aliases.delete(model, remove)
        shell.print_result(
            {"model": model, "name": remove, "removed": True},
            lambda: print_text(
                make_text_one_line(f"{remove} is no former class name of {model} any more.")
            ),
        )
        return
    aliases = client.class_aliases.list(model)
    rows = [(one.name, "(dropped)" if one.to is None else one.to, one.edit) for one in aliases]
    shell.print_rows(aliases, rows, "No former class name.")
