"""images: list, relabel, remove."""

from __future__ import annotations

from itertools import islice
from typing import Any, Literal

import click

from perennial.cli.command import CommandContext, cli_command
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.models.edits import (
    add_edit_sending_options,
    collect_edit_sending_options,
    confirm_and_send_edit,
)

PART = click.option(
    "--part",
    type=click.Choice(["train", "held-out"]),
    default="train",
    show_default=True,
    help="Images to learn from, or held-out ones.",
)
NUMBER = click.IntRange(min=0)
Split = Literal["train", "held_out"]


@click.group("images", cls=SuggestingCommandGroup)
def image_commands() -> None:
    """List images of a batch, correct their labels, and remove them."""


@cli_command("list", image_commands, columns=("image", "label", "path"))
@click.argument("model")
@click.argument("task", type=int)
@PART
@click.option("--class", "label", metavar="NAME", help="Only this class.")
@click.option("--limit", "-n", type=click.IntRange(1), help="Largest number of rows.")
def run_list_images_command(
    shell: CommandContext, model: str, task: int, part: str, label: str | None, limit: int | None
) -> None:
    """List the images of a batch by number, as `relabel` and `remove` take them."""
    pages = shell.create_client().tasks.images(
        model, task, split=_parse_dataset_part_option(part), label=label
    )
    images = list(islice(pages, limit))
    rows = [(image.index, image.label, image.path) for image in images]
    shell.print_rows(images, rows, "No image.")


@cli_command("relabel", image_commands)
@click.argument("model")
@click.argument("task", type=int)
@click.argument("images", nargs=-1, type=NUMBER, required=True)
@click.option("--to", "label", required=True, metavar="LABEL", help="The right label.")
@PART
@add_edit_sending_options
def run_relabel_images_command(
    shell: CommandContext,
    model: str,
    task: int,
    images: tuple[int, ...],
    label: str,
    part: str,
    **values: Any,
) -> None:
    """Give images of a batch another label, known or new. IMAGES are numbers of `images list`."""
    operations = [
        {
            "relabel": {
                "task": task,
                "image": image,
                "part": _parse_dataset_part_option(part),
                "label": label,
            }
        }
        for image in images
    ]
    confirm_and_send_edit(shell, model, operations, collect_edit_sending_options(values))


@cli_command("remove", image_commands)
@click.argument("model")
@click.argument("task", type=int, required=False)
@click.argument("images", nargs=-1, type=NUMBER)
@click.option(
    "--path",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="All images of this path, such as 'cat/anna*'; without TASK, of all tasks. Can be repeated.",
)
@click.option("--all", "is_whole", is_flag=True, help="All images of TASK.")
@PART
@add_edit_sending_options
def run_remove_images_command(
    shell: CommandContext,
    model: str,
    task: int | None,
    images: tuple[int, ...],
    patterns: tuple[str, ...],
    is_whole: bool,
    part: str,
    **values: Any,
) -> None:
    """Remove images, by their numbers in a batch or by path. This cannot be undone.

    A path finds images to learn from and held-out ones.
    """
    if sum((bool(images), bool(patterns), is_whole)) != 1:
        raise click.UsageError("Say one of numbers of images, --path PATTERN and --all.")
    if is_whole and task is None:
        raise click.UsageError("--all is of a TASK.")
    scope = {} if task is None else {"task": task}
    operations: list[dict[str, Any]] = [
        {"remove": {**scope, "image": image, "part": _parse_dataset_part_option(part)}}
        for image in images
    ]
    operations += [{"remove": {**scope, "name": pattern}} for pattern in patterns]
    if is_whole:
        operations = [{"remove": scope}]
    confirm_and_send_edit(shell, model, operations, collect_edit_sending_options(values))


def _parse_dataset_part_option(part: str) -> Split:
    return "train" if part == "train" else "held_out"
